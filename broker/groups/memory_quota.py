"""What the groups of one broker hold in memory, and how much that may be: the one place where it is counted.

Everything that a client can make a coordinator keep is of one of four kinds: what the log knows nothing of yet
(`NEWCOMERS`: invitations, members that no committed generation has as they are, groups that have nothing else; and
`COMMITS`: offsets on their way), and what it has (`MEMBERS`, `OFFSETS`). Invariants, for all shards of a broker
together, whenever no shard is in the middle of something:

- `held` of a kind is the sum of the sizes of what there is of it: whatever comes, changes or goes is booked as it does;
- newcomers have a quarter of the limit at most, and together with members a half. Newcomers that come past it make
  others of them go; members, never;
- commits have an eighth at most, and together with offsets a half. What only replaces offsets by others as large needs
  no more than the eighth, so that nobody is kept from going on;
- past these bounds there is only what a log had when it was taken over, and while that lasts nothing is added to it.

Sizes are no less than what is allocated, and have a floor: a consumer of a few topics, its assignment included, is
counted alike whatever it says, and so needs no new room in order to rebalance, however full it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from broker.errors import ErrorCode, ProtocolError

INVITATION_BYTES: Final = 1024
"""Without its id; with its timers, as all of these."""
MEMBER_BYTES: Final = 3 << 10
"""Without what it says. Requests of it that wait for a generation, and for an assignment, are counted in."""
MEMBER_LEAST: Final = 6 << 10
PROTOCOL_BYTES: Final = 256
GROUP_BYTES: Final = 2 << 10
GROUP_LEAST: Final = 3 << 10
OFFSET_BYTES: Final = 640
OFFSET_LEAST: Final = 768
COMMIT_BYTES: Final = 4 << 10
"""Without the offsets, and without the entries of its answer."""
ANSWER_BYTES: Final = 192
"""An entry of the answer to a commit."""


def text_bytes(text: str | None) -> int:
    """What a text takes at most: where not all of its characters are ASCII, each may take four."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


class MemoryKind(IntEnum):
    """See above."""

    NEWCOMERS = 0
    MEMBERS = 1
    COMMITS = 2
    OFFSETS = 3


class Account:
    """What all shards of a broker hold. Sizes are in bytes."""

    def __init__(self, limit: int) -> None:
        self.newcomers_at_most = limit // 4
        self.members_at_most = limit // 2
        self.commits_at_most = limit // 8
        self.growth_up_to = limit // 2 - limit // 8
        """As far as offsets are added; those that are replaced are held twice for a while, in what is left."""
        self._held = [0] * len(MemoryKind)
        self._small: dict[Newcomer, None] = {}
        self._large: dict[Newcomer, None] = {}
        """Newcomers, who has been one for longest first. Large ones go before small ones: who sends much keeps nobody
        out who sends what everybody does."""
        self._making_room = False

    def held(self, kind: MemoryKind) -> int:
        """What is held of a kind."""
        return self._held[kind]

    @property
    def _newcomers_have(self) -> int:
        """What is left for newcomers by members."""
        return max(min(self.newcomers_at_most, self.members_at_most - self._held[MemoryKind.MEMBERS]), 0)

    def make_room(self) -> None:
        """Have newcomers go until those that are left have room. To be called when no shard is in the middle of
        something, and after all that a request has brought about: it may have come to nothing."""
        if self._making_room:
            return
        self._making_room = True
        try:
            while self._held[MemoryKind.NEWCOMERS] > self._newcomers_have and (those := self._large or self._small):
                newcomer = next(iter(those))
                del those[newcomer]
                holdings, group, member = newcomer
                holdings.evict(group, member)
        finally:
            self._making_room = False


class Holdings:
    """What one shard holds. `evict` is called with a group and the id of a member or an invitation that has to go."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.evict: Callable[[str, str], None] = _nobody
        self._held = [0] * len(MemoryKind)

    def close(self) -> None:
        """The shard is no more, with all that it has."""
        for kind in MemoryKind:
            self.book(kind, -self._held[kind])
        for those in (self.account._small, self.account._large):
            for newcomer in [each for each in those if each[0] is self]:
                del those[newcomer]

    # --- what there is

    def book(self, kind: MemoryKind, size: int) -> None:
        """So many bytes more are held; negative: fewer."""
        self._held[kind] += size
        self.account._held[kind] += size

    def enlist(self, group: str, member: str, *, large: bool) -> None:
        """The newest of those who can be told to go."""
        (self.account._large if large else self.account._small)[self, group, member] = None

    def strike(self, group: str, member: str) -> None:
        """Can be told to go no more."""
        self.account._large.pop((self, group, member), None)
        self.account._small.pop((self, group, member), None)

    # --- what there may be

    def admit_newcomer(self, size: int, now_member: int = 0) -> None:
        """Raises `ProtocolError` where a newcomer has no room even when all others are gone: COORDINATOR_NOT_AVAILABLE,
        which clients take as a reason to wait and ask again, or GROUP_MAX_SIZE_REACHED where that would not help.

        `now_member`: what is counted of it among members until then.
        """
        account = self.account
        if size > account.newcomers_at_most:
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if account._held[MemoryKind.MEMBERS] - now_member + size > account.members_at_most:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def admit_assignment(self, newcomers: int, growth: int) -> None:
        """Members grow by so many bytes, and newcomers of their group have so many then. Raises `ProtocolError`."""
        account = self.account
        if growth <= 0 and newcomers <= 0:
            return
        together = account._held[MemoryKind.MEMBERS] + growth + newcomers
        if newcomers > account.newcomers_at_most or together > account.members_at_most:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def admit_commit(self, size: int, growth: int) -> None:
        """A commit of so many bytes is on its way, after which offsets have so many more. Raises `ProtocolError`:
        COORDINATOR_NOT_AVAILABLE, or INVALID_COMMIT_OFFSET_SIZE where there will never be room."""
        account = self.account
        if size > account.commits_at_most:
            raise ProtocolError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        commits, offsets = account._held[MemoryKind.COMMITS], account._held[MemoryKind.OFFSETS]
        if commits + size > account.commits_at_most or (growth > 0 and offsets + commits + size > account.growth_up_to):
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


Newcomer = tuple[Holdings, str, str]
"""Whose it is, its group, and the id of a member or an invitation."""


def _nobody(_group: str, _member: str) -> None:
    """There is nobody to be told: the shard only answers questions."""


def sized(least: int, fixed: int, texts: Iterable[str | None], data: int = 0) -> int:
    """The size of something with these texts and so many bytes of data."""
    return max(least, fixed + data + sum(map(text_bytes, texts)))
