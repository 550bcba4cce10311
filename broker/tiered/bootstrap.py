"""A follower whose next offset is not in the leader's local log: where it starts (KIP-405, KIP-1023). Pure.

Theory of operation. The leader's log has four borders: the log start (LSO), the local log start (LLSO), the earliest
pending upload (EPUO: the offset after the last tiered one) and the log end; LSO <= LLSO <= EPUO <= end. A fetch below
LSO is answered with OFFSET_OUT_OF_RANGE, a fetch from LSO to LLSO with OFFSET_MOVED_TO_TIERED_STORAGE. `next_step`
takes all that the follower has asked and been answered since then, and returns the next question, or the place to start
from. The follower changes nothing before that, so it may ask again at any time.

A start above LSO (`StartAbove`) needs the state of the log below: epochs and producers, from remote storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.errors import ErrorCode
from broker.mutants import Mutants

UNKNOWN = -1
NO_MUTANTS = Mutants()
EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -2, -4, -6
"""The special timestamps of ListOffsets that a bootstrap asks for."""


class LogPlace(NamedTuple):
    """An offset of the leader's log and the epoch there; both -1 if the leader does not know them."""

    offset: int
    epoch: int


@dataclass(frozen=True)
class Bootstrap:
    """What a follower has asked and been answered. None: not asked yet.

    `refusal`: the error of the fetch at `log_end`. `enabled`: `follower.fetch.last.tiered.offset.enable`. `tiered`: the
    topic uses remote storage and is not compacted. `log_start`, `local_start`, `pending`: the leader's LSO, LLSO and
    EPUO. `earlier`: the end of the epochs below that of the chosen start, from OffsetForLeaderEpoch. `waited_ms`: the
    time since the leader first did not know its EPUO, `patience_ms` the longest such time (H29).
    """

    refusal: ErrorCode
    log_end: int
    enabled: bool = False
    tiered: bool = True
    log_start: int | None = None
    local_start: LogPlace | None = None
    pending: LogPlace | None = None
    earlier: LogPlace | None = None
    waited_ms: int = 0
    patience_ms: int = 0

    @property
    def jumps(self) -> bool:
        """Whether the follower may skip what is tiered: only a replica without a record loses nothing (K1023-6)."""
        return self.enabled and self.tiered and self.log_end == 0


@dataclass(frozen=True)
class AskOffset:
    """Ask the leader for an offset by its special timestamp (ListOffsets)."""

    timestamp: int


@dataclass(frozen=True)
class AskEarlierEpoch:
    """Ask the leader for the largest epoch that is not above `epoch`, and its end (OffsetForLeaderEpoch)."""

    epoch: int


@dataclass(frozen=True)
class KeepFetching:
    """The leader has the offset: append what it sent."""


@dataclass(frozen=True)
class MatchLogs:
    """The offset is past the leader's end: ask again where the logs diverge."""


@dataclass(frozen=True)
class RetryLater:
    """Change nothing, pause, and ask again."""

    reason: str


@dataclass(frozen=True)
class StartAt:
    """Drop the whole log and start it at `offset`, which is the leader's log start: nothing is below."""

    offset: int


@dataclass(frozen=True)
class StartAbove:
    """Drop the whole log and start it at `offset`, with the state of [`log_start`, `offset`) from remote storage.

    `epoch`: that of the record at `offset` - 1. The remote segment with that record is found by epoch and offset.
    """

    offset: int
    log_start: int
    epoch: int


Step = AskOffset | AskEarlierEpoch | KeepFetching | MatchLogs | RetryLater | StartAt | StartAbove


def next_step(known: Bootstrap, mutants: Mutants = NO_MUTANTS) -> Step:
    """The next step of a follower. A bootstrap ends with `KeepFetching`, `MatchLogs`, `StartAt` or `StartAbove`."""
    if known.refusal is ErrorCode.NONE:
        return KeepFetching()  # case 1 (K1023-4)
    if known.refusal not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
        return RetryLater(known.refusal.name)
    if known.log_start is None or known.log_start == UNKNOWN:
        return AskOffset(EARLIEST)  # K1023-7
    if known.refusal is ErrorCode.OFFSET_OUT_OF_RANGE and known.log_end > known.log_start:
        return MatchLogs()
    if known.jumps or (known.enabled and known.tiered and mutants.active("jump_if_nonempty")):
        return _after_tiered(known, known.log_start, mutants)
    if known.refusal is ErrorCode.OFFSET_OUT_OF_RANGE:
        return StartAt(known.log_start)  # case 2.1 (K1023-5)
    if not known.tiered:
        return RetryLater("this broker does not know yet that the topic uses remote storage")
    return _at_local_start(known, known.log_start)  # case 2.2 (K1023-5)


def _after_tiered(known: Bootstrap, log_start: int, mutants: Mutants) -> Step:
    """Start behind the last tiered offset, if the leader knows it."""
    if known.pending is None:
        return AskOffset(EARLIEST_PENDING_UPLOAD)  # K1023-7
    if known.pending.offset == UNKNOWN:
        if mutants.active("epuo_unknown_as_zero"):
            return StartAt(0)
        return _without_pending(known, log_start)
    if known.pending.offset < log_start:
        if mutants.active("epuo_no_clamp"):
            return StartAbove(known.pending.offset, log_start, known.pending.epoch)
        return _all_local(known, log_start)
    return _start(known, log_start, known.pending)


def _without_pending(known: Bootstrap, log_start: int) -> Step:
    """The leader does not know what is tiered: its log is not, or its task has not run yet, or never will (H29)."""
    if known.local_start is None:
        return AskOffset(EARLIEST_LOCAL)
    if known.local_start.offset == log_start or known.waited_ms >= known.patience_ms:
        return _start(known, log_start, known.local_start)  # K1023-8, H29
    return RetryLater("the leader does not know yet what it has in remote storage")  # K1023-9


def _all_local(known: Bootstrap, log_start: int) -> Step:
    """What is tiered ends below the log: remote storage was switched off and on again, and all of the log is local
    (K1023-10)."""
    if known.local_start is None:
        return AskOffset(EARLIEST_LOCAL)
    if known.local_start.offset > log_start:
        return RetryLater("neither the leader nor remote storage has the start of the log")
    return StartAt(log_start)


def _at_local_start(known: Bootstrap, log_start: int) -> Step:
    if known.local_start is None:
        return AskOffset(EARLIEST_LOCAL)
    return _start(known, log_start, known.local_start)


def _start(known: Bootstrap, log_start: int, place: LogPlace) -> Step:
    """Start at a place of the leader's log; above its start this needs the epoch of the record below."""
    if place.offset <= log_start:
        return StartAt(log_start)
    if place.epoch == UNKNOWN:
        return RetryLater(f"the leader does not know the epoch of offset {place.offset}")
    if place.epoch == 0:
        return StartAbove(place.offset, log_start, place.epoch)
    if known.earlier is None:
        return AskEarlierEpoch(place.epoch - 1)
    below = known.earlier.epoch if known.earlier.offset >= place.offset else place.epoch
    return StartAbove(place.offset, log_start, below)
