"""A follower of a partition in one epoch: the truncation dialogue of KIP-101 as corrected by KIP-279, then fetching.

Pure: it looks at the log and returns the next step. Its caller asks the leader, truncates and fetches. One object lasts
one leader epoch, so every new epoch starts with the dialogue again, also under the same leader.

    TRUNCATING --(the logs match)--> FETCHING --(the leader finds a divergence)--> TRUNCATING

A truncation may go below this replica's own high watermark, and so remove committed records. That happens only when
every member of the ISR lost data (K101-15): a leader that was elected from the ISR has everything that is left, and a
follower that kept more would diverge from it. The truncation is done and traced (`Truncate.lossy`).
"""

from dataclasses import dataclass, replace
from enum import Enum

from broker.mutants import Mutants
from broker.replica.log_view import UNDEFINED, LogView


class Phase(Enum):
    """The phase of a follower in its leader epoch."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"


@dataclass(frozen=True)
class AskEpochEnd:
    """Ask the leader for the end of `epoch`, the latest in the follower's cache (OffsetForLeaderEpoch)."""

    epoch: int


@dataclass(frozen=True)
class Truncate:
    """Remove the records from `to_offset` on, and the epochs that start there or later, even without records (H8).

    `final`: the logs match afterwards, and fetching may start. `restart`: drop the whole log, with its epochs and its
    producers, and start it at `to_offset`. `rule` names the reason: `epoch`, `high-watermark`, `none` (an empty log) or
    `leader-start`. `lossy`: the truncation is below this replica's high watermark, so it removes committed records.
    """

    to_offset: int
    rule: str
    final: bool = True
    restart: bool = False
    lossy: bool = False


class PartitionFollower:
    """One leader epoch of one follower. Invariant: `high_watermark` never exceeds the end of the log."""

    def __init__(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        high_watermark: int,
        in_sync: bool = False,
        mutants: Mutants | None = None,
    ) -> None:
        """`in_sync`: the replica is in the ISR that the leader was elected from, or has joined this leader's ISR."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.high_watermark = high_watermark
        self.phase = Phase.TRUNCATING
        # The mutant `truncate_to_hw`: a follower as before KIP-101, without epochs.
        mutants = mutants or Mutants()
        self._truncate_to_hw = mutants.active("truncate_to_hw")
        self._keeps_high_watermark = mutants.active("full_truncate_keeps_hw")
        self._in_sync = in_sync
        self._is_verified = in_sync  # whether all that the log ever had is known to be the leader's

    # -- the truncation dialogue --------------------------------------------------------------------------------

    def next_step(self, log: LogView) -> AskEpochEnd | Truncate:
        """The next step in the phase `TRUNCATING`.

        The dialogue compares nothing of an empty log. Its producers may be those of records that the leader never had,
        so it starts again without them, before a fetch can bring the replica into the ISR (H34).
        """
        if self._truncate_to_hw:
            return Truncate(min(self.high_watermark, log.log_end_offset), "high-watermark")
        if log.log_end_offset == log.log_start_offset:
            return Truncate(log.log_end_offset, "none", restart=not self._in_sync and log.log_end_offset > 0)
        if log.epochs.latest_epoch == UNDEFINED:
            return self._weighed(Truncate(self.high_watermark, "high-watermark"))
        return AskEpochEnd(log.epochs.latest_epoch)

    def epoch_end_answered(self, log: LogView, leader_epoch: int, end_offset: int) -> Truncate:
        """The leader's answer: its largest epoch <= the epoch in the question, and that epoch's end."""
        if end_offset == UNDEFINED:
            # K101-9: a leader without epoch information leaves only the old rule.
            return self._weighed(Truncate(self.high_watermark, "high-watermark"))
        if leader_epoch == UNDEFINED:
            return self._weighed(Truncate(min(end_offset, log.log_end_offset), "epoch"))
        own_epoch, own_end = log.epochs.end_offset_for(leader_epoch, log.log_end_offset)
        if own_epoch == UNDEFINED or own_epoch > leader_epoch:
            # The leader knows no epoch of this log, so none of it can stay.
            return self._weighed(Truncate(log.log_start_offset, "epoch"))
        if own_epoch != leader_epoch:
            # This log does not have the leader's epoch. The records after our next smaller epoch cannot match; the next
            # question is the end of that epoch on the leader (H1).
            return self._weighed(Truncate(min(own_end, log.log_end_offset), "epoch", final=False))
        end = min(own_end, end_offset, log.log_end_offset)
        # If the leader has more of this epoch, the two logs are equal up to here: an epoch has one leader. Otherwise
        # the leader may only know that its log starts here, with a later epoch (H2).
        self._is_verified = self._in_sync or end_offset > end
        return self._weighed(Truncate(end, "epoch"))

    def truncated(self, step: Truncate, log: LogView) -> None:
        """The step is on disk: first the epoch file, then the log (K101-7)."""
        if step.restart and not self._keeps_high_watermark:
            # H9: everything below is committed. If this replica becomes leader now, its high watermark does not go
            # back.
            self.high_watermark = step.to_offset
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        is_empty = log.log_start_offset == log.log_end_offset > 0
        if step.final and (step.restart or self._in_sync or not is_empty):
            self.phase = Phase.FETCHING

    def _weighed(self, step: Truncate) -> Truncate:
        return replace(step, lossy=step.to_offset < self.high_watermark)

    # -- fetching -----------------------------------------------------------------------------------------------

    def last_fetched_epoch(self, log: LogView) -> int:
        """The epoch of the last record, by which the leader detects a divergence (KIP-595); -1 disables the check."""
        return UNDEFINED if self._truncate_to_hw else log.epochs.latest_epoch

    def diverged(self) -> None:
        """The logs diverge before the fetch offset: ask again, and adopt no high watermark (H7)."""
        self.phase = Phase.TRUNCATING
        self._is_verified = self._in_sync

    def in_range(self, log: LogView, leader_log_start: int) -> Truncate | None:
        """The leader has the offset. None: this log continues there; else it starts again at the leader's start (H34).

        The first answer after the dialogue decides: the dialogue compares nothing below the leader's start, so a log
        that ends there may consist of records that the leader never had. Later, all of the log came from this leader.
        """
        is_verified, self._is_verified = self._is_verified, True
        if is_verified or not log.log_start_offset < log.log_end_offset <= leader_log_start:
            return None
        return self._weighed(Truncate(leader_log_start, "leader-start", restart=True))

    def out_of_range(self, log: LogView, leader_log_start: int) -> Truncate | None:
        """The leader does not have the offset. None: the dialogue starts again (this log is longer than the leader's).

        The dialogue cannot find a divergence in an empty log; the log then starts where the leader's log starts.
        """
        behind = leader_log_start > log.log_end_offset
        empty = log.log_end_offset == log.log_start_offset
        if behind or (leader_log_start != UNDEFINED and (empty or self._truncate_to_hw)):
            return self._weighed(Truncate(leader_log_start, "leader-start", restart=True))
        self.phase = Phase.TRUNCATING
        return None

    def high_watermark_reported(self, leader_high_watermark: int, log_end_offset: int) -> None:
        """The leader's high watermark arrived with a fetch, whose records have been appended."""
        assert self.phase is Phase.FETCHING, "the high watermark may rise only once the log matches the leader's (H7)"
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, log_end_offset))
