"""Who votes: the ids of the quorum's voters, each with the disk that its vote and its log are on (KIP-853).

A voter that comes back with an empty disk has forgotten its vote and what it had acknowledged. By its id alone nobody
could tell; by its *key*, the id and the directory id of the disk, everybody can (H22): an unknown disk has no vote, and
counts for nothing, until the log itself has taken it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.protocol.schema import NO_ID


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters by id, ascending, each with its directory id; `NO_ID` for all of them where no log has named a disk yet:
    then ids alone count."""

    keys: tuple[tuple[int, bytes], ...]

    @classmethod
    def of_ids(cls, ids: tuple[int, ...]) -> VoterSet:
        """Voters of which only the ids are known, as `quorum.voters` gives them."""
        return cls(tuple((voter, NO_ID) for voter in sorted(ids)))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter for voter, _ in self.keys)

    @property
    def keyed(self) -> bool:
        """Whether it says which disks count."""
        return any(directory != NO_ID for _, directory in self.keys)

    @property
    def majority(self) -> int:
        return len(self.keys) // 2 + 1

    def directory_of(self, voter: int) -> bytes:
        """The disk of a voter; `NO_ID` where none is named."""
        return dict(self.keys).get(voter, NO_ID)

    def has(self, replica: int, directory: bytes) -> bool:
        """Whether this replica, on this disk, is a voter."""
        named = dict(self.keys).get(replica)
        return named is not None and named in (NO_ID, directory)

    def others(self, voter: int) -> tuple[int, ...]:
        return tuple(each for each in self.ids if each != voter)

    def without(self, voter: int) -> VoterSet:
        return VoterSet(tuple(key for key in self.keys if key[0] != voter))

    def with_voter(self, voter: int, directory: bytes) -> VoterSet:
        return VoterSet(tuple(sorted((*self.without(voter).keys, (voter, directory)))))


class VoterHistory:
    """The voter sets of a metadata log, by the offset of the record that names each.

    The last one in the log is in force, committed or not (KIP-853): who appends or truncates the log tells it here.
    """

    def __init__(self, configured: tuple[int, ...]) -> None:
        """`configured`: the ids of `quorum.voters`, in force while the log names no set."""
        self._configured = VoterSet.of_ids(configured)
        self._sets: list[tuple[int, VoterSet]] = []

    @property
    def current(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self._configured

    @property
    def sets(self) -> Sequence[tuple[int, VoterSet]]:
        """All that are known, oldest first, each with where it is in the log."""
        return tuple(self._sets)

    @property
    def offset(self) -> int:
        """Where the set in force is in the log; -1 where the log names none."""
        return self._sets[-1][0] if self._sets else -1

    @property
    def first_offset(self) -> int:
        """Where the oldest set that is known is in the log; -1 where the log names none."""
        return self._sets[0][0] if self._sets else -1

    def appended(self, offset: int, voters: VoterSet) -> None:
        self._sets.append((offset, voters))

    def truncated(self, offset: int) -> None:
        """Nothing at or past `offset` is in the log any more."""
        self._sets = [known for known in self._sets if known[0] < offset]

    def begins_at(self, offset: int, voters: VoterSet | None) -> None:
        """The log begins anew at the end of a snapshot, which knows these voters."""
        self._sets = [] if voters is None else [(offset - 1, voters)]

    def as_of(self, offset: int) -> VoterSet | None:
        """The set that is in force with everything below `offset`; None where that names none."""
        return next((voters for at, voters in reversed(self._sets) if at < offset), None)
