"""What a coordinator wants done, in this order, before the next event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.errors import ErrorCode
from broker.protocol.messages.group_records import LogRecord
from broker.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class GroupReply:
    """Answer the request that came in under `ticket`."""

    ticket: int
    response: Message


@dataclass(frozen=True, slots=True)
class AppendEffect:
    """Append records as one batch. Its fate comes back under `token`: `refused` (nothing was appended), `committed`,
    or `late` (not committed in time) and then, perhaps, `committed`."""

    token: int
    records: tuple[LogRecord, ...]


Effect = GroupReply | AppendEffect


def told(error: ErrorCode) -> ErrorCode:
    """What members are told of an append that was refused: that a group is too large for the log is not their doing."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error is ErrorCode.MESSAGE_TOO_LARGE else error


@dataclass(slots=True)
class Fate:
    """What to do once the fate of an append is known."""

    committed: Callable[[float], None]
    refused: Callable[[float, ErrorCode], None]
    late: Callable[[float, ErrorCode], None]


def _nothing(_now: float, _error: ErrorCode = ErrorCode.NONE) -> None:
    """The fate of this append changes nothing here."""


@dataclass(slots=True)
class Outbox:
    """Collects effects, and remembers who waits for the fate of an append."""

    _effects: list[Effect] = field(default_factory=list)
    _fates: dict[int, Fate] = field(default_factory=dict)
    _last_token: int = 0

    def reply(self, ticket: int, response: Message) -> None:
        self._effects.append(GroupReply(ticket, response))

    def append(
        self,
        records: Sequence[LogRecord],
        *,
        committed: Callable[[float], None] = _nothing,
        refused: Callable[[float, ErrorCode], None] = _nothing,
        late: Callable[[float, ErrorCode], None] | None = None,
    ) -> None:
        """`late` is what `refused` is, unless it is given."""
        self._last_token += 1
        self._fates[self._last_token] = Fate(committed, refused, refused if late is None else late)
        self._effects.append(AppendEffect(self._last_token, tuple(records)))

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def committed(self, now: float, token: int) -> None:
        self._fates.pop(token).committed(now)

    def refused(self, now: float, token: int, error: ErrorCode) -> None:
        self._fates.pop(token).refused(now, error)

    def late(self, now: float, token: int, error: ErrorCode) -> None:
        """May be told once; `committed` may follow."""
        self._fates[token].late(now, error)
