"""The voters of the quorum: their ids, each with the disk that holds its vote and its log (KIP-853).

A voter that restarts with an empty disk has forgotten its vote and the records that it acknowledged. Its id alone does
not
show that. Its *key*, the id together with the directory id of the disk, does (H22): an unknown disk has no vote and
does
not count until the log itself names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.protocol.schema import NO_ID


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters by id, ascending, each with its directory id. While no log has named a disk, all directory ids are
    `NO_ID`, and
    the ids alone count."""

    keys: tuple[tuple[int, bytes], ...]

    @classmethod
    def of_ids(cls, ids: tuple[int, ...]) -> "VoterSet":
        """Voters with known ids and unknown disks, as `quorum.voters` gives them."""
        return cls(tuple((voter, NO_ID) for voter in sorted(ids)))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter for voter, _ in self.keys)

    @property
    def keyed(self) -> bool:
        """Whether the set names disks."""
        return any(directory != NO_ID for _, directory in self.keys)

    @property
    def majority(self) -> int:
        return len(self.keys) // 2 + 1

    def directory_of(self, voter: int) -> bytes:
        """The disk of a voter; `NO_ID` if the set names no disks."""
        return dict(self.keys).get(voter, NO_ID)

    def has(self, replica: int, directory: bytes) -> bool:
        """Whether this replica with this disk is a voter."""
        named = dict(self.keys).get(replica)
        return named is not None and named in (NO_ID, directory)

    def others(self, voter: int) -> tuple[int, ...]:
        return tuple(voter_id for voter_id in self.ids if voter_id != voter)

    def without(self, voter: int) -> "VoterSet":
        return VoterSet(tuple(key for key in self.keys if key[0] != voter))

    def with_voter(self, voter: int, directory: bytes) -> "VoterSet":
        return VoterSet(tuple(sorted((*self.without(voter).keys, (voter, directory)))))


class VoterHistory:
    """The voter sets of a metadata log, each with the offset of the record that names it.

    The last set in the log is in force, committed or not (KIP-853). The owner of the log reports its appends and
    truncations to this object.
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
        """All known sets with their offsets in the log, oldest first."""
        return tuple(self._sets)

    @property
    def offset(self) -> int:
        """The offset of the set in force; -1 while the log names none."""
        return self._sets[-1][0] if self._sets else -1

    @property
    def first_offset(self) -> int:
        """The offset of the oldest known set; -1 while the log names none."""
        return self._sets[0][0] if self._sets else -1

    def appended(self, offset: int, voters: VoterSet) -> None:
        self._sets.append((offset, voters))

    def truncated(self, offset: int) -> None:
        """Drop the sets at or past `offset`."""
        self._sets = [voter_set for voter_set in self._sets if voter_set[0] < offset]

    def begins_at(self, offset: int, voters: VoterSet | None) -> None:
        """The log was restarted at the end of a snapshot that contains these voters."""
        self._sets = [] if voters is None else [(offset - 1, voters)]

    def as_of(self, offset: int) -> VoterSet | None:
        """The set in force for a log that ends at `offset`; None if that log names none."""
        return next((voters for at, voters in reversed(self._sets) if at < offset), None)
