"""The effects that a coordinator must execute, in this order, before the next event."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.errors import ErrorCode
from broker.protocol.messages.group_records import LogRecord
from broker.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class GroupReply:
    """Answer the request with `ticket`."""

    ticket: int
    response: Message


@dataclass(frozen=True, slots=True)
class AppendEffect:
    """Append records as one batch. Its outcome is reported with `token`: `refused` (nothing was appended), `committed`,
    or `late` (not committed in time), possibly followed by `committed`."""

    token: int
    records: tuple[LogRecord, ...]


Effect = GroupReply | AppendEffect


def client_error(error: ErrorCode) -> ErrorCode:
    """The error that members get for a refused append: a group too large for the log is not the member's mistake."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error is ErrorCode.MESSAGE_TOO_LARGE else error


@dataclass(slots=True)
class Fate:
    """What to do once the outcome of an append is known."""

    committed: Callable[[float], None]
    refused: Callable[[float, ErrorCode], None]
    late: Callable[[float, ErrorCode], None]


def _nothing(_now: float, _error: ErrorCode = ErrorCode.NONE) -> None:
    """Used where the outcome of an append changes nothing."""


@dataclass(slots=True)
class Outbox:
    """Collects effects, and keeps the callbacks of pending appends."""

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
        """`late` defaults to `refused`."""
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
        """Called at most once per token; `committed` may follow."""
        self._fates[token].late(now, error)
