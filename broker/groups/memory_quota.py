"""The memory quota of the groups of a broker: counts everything that clients make its coordinators keep.

All data are of one of four kinds. The log does not yet have `NEWCOMERS` (invitations, members that are in no committed
generation in their present form, groups that have nothing else) and `COMMITS` (offsets on their way). The log has
`MEMBERS` and `OFFSETS`. Invariants, for all shards of a broker together, between the events of all shards:

- `held` of a kind is the sum of the sizes of all data of that kind; every addition, change and removal is booked;
- newcomers have at most a quarter of the limit, and together with members a half. Newcomers beyond that evict other
  newcomers, never members;
- commits have at most an eighth, and together with offsets a half. A commit that replaces offsets by others of the same
  size needs only room in the eighth, so that consumers can always continue;
- beyond these bounds there is only what a log already contained when this broker took it over. Meanwhile no data are
  added to it.

Sizes are upper estimates of the allocated memory, with a minimum: a consumer of a few topics, its assignment included,
always counts the same. It can therefore rebalance without new room, however full the quota is.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from broker.errors import ErrorCode, ProtocolError

INVITATION_BYTES: Final = 1024
"""Without its id. Timers are included, here and below."""
MEMBER_BYTES: Final = 3 << 10
"""Without its data. Its requests that wait for a generation and for an assignment are included."""
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
    """The most bytes that a text takes: four per character unless all are ASCII."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


class MemoryKind(IntEnum):
    """The kinds of data; see the module."""

    NEWCOMERS = 0
    MEMBERS = 1
    COMMITS = 2
    OFFSETS = 3


class Account:
    """The memory of all shards of a broker. Sizes are in bytes."""

    def __init__(self, limit: int) -> None:
        self.newcomers_at_most = limit // 4
        self.members_at_most = limit // 2
        self.commits_at_most = limit // 8
        self.growth_up_to = limit // 2 - limit // 8
        """The bound for added offsets. The rest is for replaced ones, which are held twice for a while."""
        self._held = [0] * len(MemoryKind)
        self._small: dict[Newcomer, None] = {}
        self._large: dict[Newcomer, None] = {}
        """Newcomers, oldest first. Large ones are evicted before small ones, so that clients which send much do not
        evict those which send the usual amount."""
        self._making_room = False

    def held(self, kind: MemoryKind) -> int:
        """The bytes held of a kind."""
        return self._held[kind]

    @property
    def _newcomers_have(self) -> int:
        """The bytes that members leave for newcomers."""
        return max(min(self.newcomers_at_most, self.members_at_most - self._held[MemoryKind.MEMBERS]), 0)

    def make_room(self) -> None:
        """Evict newcomers until the rest have room. Call it between events, after all effects of a request: the request
        may have been refused in the end."""
        if self._making_room:
            return
        self._making_room = True
        try:
            while self._held[MemoryKind.NEWCOMERS] > self._newcomers_have and (newcomers := self._large or self._small):
                newcomer = next(iter(newcomers))
                del newcomers[newcomer]
                holdings, group, member = newcomer
                holdings.evict(group, member)
        finally:
            self._making_room = False


class Holdings:
    """The memory of one shard. `evict` is called with a group and the id of a member or invitation to remove."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.evict: Callable[[str, str], None] = _evict_nothing
        self._held = [0] * len(MemoryKind)

    def close(self) -> None:
        """The shard ends with all of its data."""
        for kind in MemoryKind:
            self.book(kind, -self._held[kind])
        for newcomers in (self.account._small, self.account._large):
            for newcomer in [entry for entry in newcomers if entry[0] is self]:
                del newcomers[newcomer]

    # --- held data

    def book(self, kind: MemoryKind, size: int) -> None:
        """Add `size` bytes; negative: subtract."""
        self._held[kind] += size
        self.account._held[kind] += size

    def enlist(self, group: str, member: str, *, large: bool) -> None:
        """Add a newcomer that may be evicted, as the newest one."""
        (self.account._large if large else self.account._small)[self, group, member] = None

    def strike(self, group: str, member: str) -> None:
        """This member or invitation may no longer be evicted."""
        self.account._large.pop((self, group, member), None)
        self.account._small.pop((self, group, member), None)

    # --- admission

    def admit_newcomer(self, size: int, now_member: int = 0) -> None:
        """Raises `ProtocolError` when a newcomer has no room even after all evictions: COORDINATOR_NOT_AVAILABLE, on
        which clients wait and retry, or GROUP_MAX_SIZE_REACHED where that would not help.

        `now_member`: the bytes of it that count as a member's until then.
        """
        account = self.account
        if size > account.newcomers_at_most:
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if account._held[MemoryKind.MEMBERS] - now_member + size > account.members_at_most:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def admit_assignment(self, newcomers: int, growth: int) -> None:
        """Admit an assignment: members grow by `growth` bytes, and newcomers of the group then have `newcomers` bytes.
        Raises `ProtocolError`."""
        account = self.account
        if growth <= 0 and newcomers <= 0:
            return
        together = account._held[MemoryKind.MEMBERS] + growth + newcomers
        if newcomers > account.newcomers_at_most or together > account.members_at_most:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def admit_commit(self, size: int, growth: int) -> None:
        """Admit a commit of `size` bytes, after which offsets grow by `growth` bytes. Raises `ProtocolError`:
        COORDINATOR_NOT_AVAILABLE, or INVALID_COMMIT_OFFSET_SIZE where there will never be room."""
        account = self.account
        if size > account.commits_at_most:
            raise ProtocolError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        commits, offsets = account._held[MemoryKind.COMMITS], account._held[MemoryKind.OFFSETS]
        if commits + size > account.commits_at_most or (growth > 0 and offsets + commits + size > account.growth_up_to):
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


Newcomer = tuple[Holdings, str, str]
"""Its shard's holdings, its group, and the id of a member or an invitation."""


def _evict_nothing(_group: str, _member: str) -> None:
    """Eviction before the shard serves requests: there is no newcomer."""


def sized(minimum: int, fixed: int, texts: Iterable[str | None], data: int = 0) -> int:
    """The size of data with these texts and `data` bytes, at least `minimum`."""
    return max(minimum, fixed + data + sum(map(text_bytes, texts)))
