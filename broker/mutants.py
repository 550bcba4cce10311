"""Named, switchable faults of the protocol code: how a campaign shows that it would have seen the bug.

A mutant is a branch at the exact line of the rule that it breaks. The table below is read by the docs and the tests; an
object resolves `active(name)` once, when it is built, so that a mutant that is off costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug: the rule it breaks, the anomaly that it must cause, and the shortest known schedule."""

    name: str
    rule: str
    anomaly: str
    schedule: str


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            name="truncate_to_hw",
            rule="K101-7",
            anomaly="lost-acknowledged-write, replica-divergence, committed-prefix-changed, leader-incomplete",
            schedule="a follower truncates to its own high watermark instead of asking for the epoch's end; "
            "campaigns/kip101-scenario2.toml, and with bounce_unseen campaigns/kip101-scenario1.toml",
        ),
        Mutant(
            name="bounce_unseen",
            rule="H12",
            anomaly="lost-acknowledged-write, leader-incomplete, high-watermark-invalid",
            schedule="a broker that comes back after a power loss stays in the ISR without its data; "
            "campaigns/bounce-unseen.toml",
        ),
        Mutant(
            name="hw_below_min_isr",
            rule="H16",
            anomaly="lost-acknowledged-write, high-watermark-invalid",
            schedule="a leader that is alone in its ISR commits what waits for a second replica, then loses power; "
            "campaigns/kip966-min-isr.toml",
        ),
        Mutant(
            name="elect_unclean_shutdown_isr",
            rule="H16",
            anomaly="lost-acknowledged-write, leader-incomplete",
            schedule="the last replica standing loses power and is elected again, though another was only killed; "
            "campaigns/kip966-last-replica.toml",
        ),
        Mutant(
            name="last_known_leader_leads",
            rule="K101-15",
            anomaly="lost-acknowledged-write, leader-incomplete",
            schedule="all that were eligible have shut down uncleanly, and the last leader leads again whatever its "
            "log has lost; campaigns/kip966-last-leader.toml",
        ),
        Mutant(
            name="isr_grows_while_recovering",
            rule="K704-4",
            anomaly="isr-would-be-granted, election-not-allowed, replica-divergence",
            schedule="a leader that recovers from an unclean election would get a second member of its ISR, if it "
            "asked for it; campaigns/joins-in-recovery.toml",
        ),
        Mutant(
            name="serve_while_recovering",
            rule="K704-5",
            anomaly="served-in-recovery",
            schedule="clients produce to and consume from a leader that recovers from an unclean election; "
            "campaigns/unclean-in-recovery.toml",
        ),
        Mutant(
            name="recovery_flag_lost",
            rule="K704-9",
            anomaly="election-not-allowed",
            schedule="a leader is stopped in the middle of its recovery, and leads again; "
            "campaigns/unclean-in-recovery.toml",
        ),
        Mutant(
            name="unclean_keeps_isr",
            rule="K704-1",
            anomaly="election-not-allowed, lost-acknowledged-write, leader-incomplete",
            schedule="C is elected uncleanly and acknowledges writes; it dies, and who was eligible before is "
            "elected; campaigns/unclean-in-recovery.toml",
        ),
        Mutant(
            name="vote_not_persisted",
            rule="K595-19",
            anomaly="vote-not-on-disk, election-state-regression, two-votes, two-leaders, vote-before-disk, "
            "epoch-fell, two-leaders-of-one-epoch",
            schedule="a voter grants its vote without writing it down, and votes again after a restart that comes "
            "before it knows the leader; campaigns/vote-not-persisted.toml",
        ),
        Mutant(
            name="refused_is_dead",
            rule="H31",
            anomaly="stale-read, lease-shared",
            schedule="a firewall rejects what passes between a leader and the controller; the refused connection "
            "counts as proof of death, and another leads while the first one's lease goes on; campaigns/lease.toml",
        ),
        Mutant(
            name="leave_under_lease",
            rule="H31",
            anomaly="stale-read, lease-shared",
            schedule="a leader that is stopped keeps its lease until the controller's answer, which a one-way cut "
            "takes away; campaigns/unheard-leave.toml",
        ),
        Mutant(
            name="moves_under_lease",
            rule="H31",
            anomaly="lease-shared, stale-read",
            schedule="a leadership is moved from a broker that cannot hear of it, and another leads while the first "
            "one's lease goes on; campaigns/moved-under-lease.toml",
        ),
        Mutant(
            name="sequence_unchecked",
            rule="K98-2",
            anomaly="duplicate, duplicate-on-replica, producer-order, append-reorder, sequence-gap",
            schedule="a leader appends an idempotent producer's batch as often as it comes; the answer to one that was "
            "appended is lost, and it is sent again; campaigns/sequence-unchecked.toml",
        ),
        Mutant(
            name="any_first_sequence",
            rule="K98-10",
            anomaly="sequence-gap",
            schedule="a leader accepts any first sequence of a producer that never wrote to its log; of two requests "
            "in flight to a new partition the first is refused and the second accepted",
        ),
        Mutant(
            name="no_producer_snapshot",
            rule="K98-6",
            anomaly="duplicate, duplicate-on-replica, producer-order, append-reorder, sequence-gap",
            schedule="a broker starts without what its log knew of producers; a batch that was appended before is sent "
            "again; campaigns/no-producer-snapshot.toml",
        ),
        Mutant(
            name="producer_state_survives_truncation",
            rule="K98-7",
            anomaly="lost-acknowledged-write, offset-mismatch, sequence-gap",
            schedule="a deposed leader cuts a batch off and still takes it for written when it leads again and the "
            "batch is sent again; campaigns/producer-state-survives-truncation.toml",
        ),
        Mutant(
            name="compaction_drops_epochs",
            rule="K101-11",
            anomaly="epochs-contradict-log, replica-divergence",
            schedule="compaction removes all that is left of the batch with which a leader epoch begins; after a crash "
            "the leader takes the epoch to begin later, and a follower keeps what it should cut off; "
            "campaigns/compacted-epochs.toml",
        ),
        Mutant(
            name="commit_acked_before_hw",
            rule="CG-3",
            anomaly="lost-acknowledged-commit",
            schedule="a group coordinator answers OffsetCommit once it has appended it itself, and dies before the "
            "others have it; campaigns/commit-acked-before-hw.toml",
        ),
        Mutant(
            name="ofle_no_epoch",
            rule="H1",
            anomaly="followed-unmatched, replica-divergence, log-mismatch, committed-prefix-changed",
            schedule="a leader answers where an epoch ends without saying which epoch that is; two failovers leave a "
            "follower with another suffix; campaigns/fast-failovers.toml",
        ),
        Mutant(
            name="epoch_file_unsynced",
            rule="H10",
            anomaly="epochs-contradict-log",
            schedule="the file of epochs is replaced without any sync; every new leader shows it, a power loss makes "
            "it hurt",
        ),
        Mutant(
            name="epoch_after_data",
            rule="K101-8",
            anomaly="epochs-contradict-log",
            schedule="a follower appends the first batch of an epoch before its file of epochs knows it; every "
            "change of leader shows it",
        ),
        Mutant(
            name="keep_epochs_past_leo",
            rule="K101-12",
            anomaly="epochs-contradict-log",
            schedule="a leader loses power without a record of its epoch, and keeps the epoch when it comes back; "
            "campaigns/idle-leaders.toml",
        ),
        Mutant(
            name="noop_truncate_keeps_cache",
            rule="H8",
            anomaly="epochs-contradict-log",
            schedule="A is elected and nobody writes, B is elected, A follows with an epoch that has no record; "
            "campaigns/idle-leaders.toml",
        ),
        Mutant(
            name="trim_drops_live_epoch",
            rule="H27",
            anomaly="epochs-contradict-log, replica-divergence, committed-prefix-changed",
            schedule="records are deleted up to the middle of an epoch, and the epoch goes with them; "
            "campaigns/forgotten-start.toml",
        ),
        Mutant(
            name="no_fence_fetch",
            rule="H3",
            anomaly="counted-not-shared, fetch-would-be-counted, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write",
            schedule="a leader takes the fetch of a follower that is in an older epoch for one of its own; "
            "campaigns/stale-leader-epoch.toml",
        ),
        Mutant(
            name="diverging_updates_leo",
            rule="H6",
            anomaly="fetch-would-be-counted, counted-not-shared, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write",
            schedule="the first fetch of a deposed leader, whose log diverges, would count as progress; "
            "campaigns/deposed-leader.toml",
        ),
        Mutant(
            name="isr_join_at_hw_only",
            rule="H5",
            anomaly="member-incomplete, leader-incomplete, high-watermark-invalid, lost-acknowledged-write",
            schedule="a new leader's high watermark lags; a slow follower joins below the true one, and is elected; "
            "campaigns/lagging-high-watermark.toml",
        ),
        Mutant(
            name="hw_on_committed_isr",
            rule="H13",
            anomaly="isr-too-narrow, high-watermark-invalid, leader-incomplete, lost-acknowledged-write",
            schedule="a follower joins, and until the controller's answer the leader commits without it",
        ),
        Mutant(
            name="shrink_applied_early",
            rule="H13",
            anomaly="isr-too-narrow, high-watermark-invalid, leader-incomplete, lost-acknowledged-write, "
            "committed-not-durable",
            schedule="a leader that the controller does not hear commits without a follower that may still be elected",
        ),
        Mutant(
            name="stale_partition_epoch_ok",
            rule="H13",
            anomaly="isr-not-granted, isr-would-be-granted, isr-too-narrow, high-watermark-invalid, "
            "leader-incomplete, lost-acknowledged-write",
            schedule="an AlterPartition is decided on top of a state that has changed since; "
            "campaigns/stale-partition-epoch.toml",
        ),
        Mutant(
            name="stale_broker_epoch_ok",
            rule="H15",
            anomaly="isr-not-granted, isr-would-be-granted, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write",
            schedule="a follower fetches, loses power, and joins by what its process before had; "
            "campaigns/stale-proposal.toml",
        ),
        Mutant(
            name="fenced_in_isr",
            rule="H14",
            anomaly="isr-not-granted, isr-would-be-granted, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write, not-converged",
            schedule="a follower is fenced while its leader proposes it; campaigns/fenced-follower.toml",
        ),
        Mutant(
            name="ack_before_hw",
            rule="K101-15",
            anomaly="lost-acknowledged-write",
            schedule="acks=all is answered once the leader has the record, and the leader dies",
        ),
        Mutant(
            name="consume_past_hw",
            rule="H5",
            anomaly="committed-then-truncated, phantom, aborted-read, stale-read, offset-mismatch",
            schedule="readers are shown what a deposed leader has appended and nobody else has",
        ),
        Mutant(
            name="full_truncate_keeps_hw",
            rule="H9",
            anomaly="high-watermark-invalid",
            schedule="a follower begins anew behind the records that were deleted, and its high watermark stays in "
            "front of them; campaigns/forgotten-start.toml",
        ),
        Mutant(
            name="leader_hw_kept",
            rule="H33",
            anomaly="non-monotonic-high-watermark, stale-read, session-violation",
            schedule="a new leader answers with a high watermark below that of the one before it; "
            "campaigns/lagging-high-watermark.toml",
        ),
        Mutant(
            name="hw_forgotten_at_lead",
            rule="H33",
            anomaly="high-watermark-fell",
            schedule="a new leader forgets which high watermark it had as a follower; every election shows it",
        ),
        Mutant(
            name="vote_reply_before_fsync",
            rule="K595-19",
            anomaly="vote-before-disk",
            schedule="a voter answers while its vote is on the way to its disk",
        ),
        Mutant(
            name="self_vote_not_persisted",
            rule="K595-13",
            anomaly="vote-before-disk, vote-not-on-disk, epoch-fell, election-state-regression, two-votes, two-leaders",
            schedule="a candidate asks for votes before its own is on its disk, and forgets it with a restart",
        ),
        Mutant(
            name="vote_ignores_log",
            rule="K595-18",
            anomaly="vote-against-log, leader-incomplete, lost-committed-metadata, committed-prefix-changed",
            schedule="a voter with a shorter log is elected; campaigns/lagging-voter.toml",
        ),
        Mutant(
            name="voter_key_ignored",
            rule="H22",
            anomaly="leader-incomplete, lost-committed-metadata, committed-prefix-changed, election-state-regression",
            schedule="a voter's disk is replaced by an empty one, and it elects a voter that lagged behind; "
            "campaigns/wiped-majority.toml",
        ),
        Mutant(
            name="vote_length_only",
            rule="K595-18",
            anomaly="vote-against-log, leader-incomplete, lost-committed-metadata, committed-prefix-changed",
            schedule="a voter with a long log of an old epoch is elected over a shorter, newer one; "
            "campaigns/long-old-log.toml",
        ),
        Mutant(
            name="minority_wins",
            rule="K595-21",
            anomaly="led-without-votes, elected-by-minority, two-leaders, two-leaders-of-one-epoch, leader-incomplete, "
            "committed-without-majority",
            schedule="a candidate leads with one vote less than a majority",
        ),
        Mutant(
            name="late_vote_counted",
            rule="K595-21",
            anomaly="led-without-votes, elected-by-minority, two-leaders, two-votes, two-leaders-of-one-epoch",
            schedule="a grant of an earlier epoch arrives, and counts; campaigns/late-vote.toml",
        ),
        Mutant(
            name="commit_old_epoch",
            rule="K595-36",
            anomaly="committed-old-epoch, committed-prefix-changed, leader-incomplete, lost-committed-metadata",
            schedule="a leader counts a record of an earlier epoch that a majority has (Raft, figure 8)",
        ),
        Mutant(
            name="observer_counts",
            rule="K595-36",
            anomaly="committed-without-majority, committed-not-durable, lost-committed-metadata, leader-incomplete",
            schedule="a broker that has no vote fetches sooner than the voters do, and the leader counts it; "
            "campaigns/slow-observers.toml",
        ),
        Mutant(
            name="resume_as_leader",
            rule="H18",
            anomaly="two-leaders-of-one-epoch, log-mismatch",
            schedule="a leader is killed, restarted within the fetch timeout, and leads on in its epoch",
        ),
        Mutant(
            name="follower_fetch_before_fsync",
            rule="K595-7",
            anomaly="committed-not-durable, lost-committed-metadata",
            schedule="a voter fetches on before what it has fetched is on its disk",
        ),
        Mutant(
            name="leader_counts_unsynced",
            rule="K595-7",
            anomaly="committed-not-durable, lost-committed-metadata",
            schedule="the quorum's leader counts itself before its disk has the record",
        ),
        Mutant(
            name="truncate_below_hw",
            rule="K595-40",
            anomaly="committed-prefix-changed",
            schedule="a voter that is asked to cut off what is committed does so; campaigns/rolled-back-majority.toml",
        ),
        Mutant(
            name="fetch_no_epoch_check",
            rule="K595-35",
            anomaly="log-mismatch, replica-divergence, applied-metadata-mismatch",
            schedule="a deposed leader of the quorum with records of its own goes on behind them; "
            "campaigns/deposed-controller.toml",
        ),
        Mutant(
            name="diverging_strictly_less",
            rule="H25",
            anomaly="committed-prefix-changed, unexpected-exit",
            schedule="logs that share an epoch are taken for different from its beginning on",
        ),
    )
}

BENIGN: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(name="slow_retry", rule="", anomaly="", schedule="requests between nodes are repeated four times later"),
        Mutant(
            name="more_elections",
            rule="",
            anomaly="",
            schedule="the quorum's members lose patience with their leader twice as fast",
        ),
        Mutant(
            name="long_elections",
            rule="",
            anomaly="",
            schedule="elections of the quorum wait three times as long, each by chance",
        ),
        Mutant(name="small_fetches", rule="", anomaly="", schedule="replicas fetch at most 700 bytes at a time"),
        Mutant(
            name="short_polls", rule="", anomaly="", schedule="replicas' fetches are parked for a tenth of the time"
        ),
        Mutant(name="many_heartbeats", rule="", anomaly="", schedule="brokers send three times as many heartbeats"),
        Mutant(name="short_leases", rule="", anomaly="", schedule="a lease lasts half as long"),
        Mutant(name="nervous_leaders", rule="", anomaly="", schedule="a follower leaves the in-sync set twice as fast"),
        Mutant(name="small_segments", rule="", anomaly="", schedule="segments of logs have 4,096 bytes"),
        Mutant(name="sparse_index", rule="", anomaly="", schedule="one batch in 64 KiB is in an index"),
        Mutant(
            name="rare_checkpoints", rule="", anomaly="", schedule="high watermarks are written down a tenth as often"
        ),
        Mutant(
            name="many_snapshots",
            rule="",
            anomaly="",
            schedule="the metadata log is replaced by a snapshot after every 2,000 bytes",
        ),
    )
}
"""Changes that break no promise (`broker/benign_mutants.py` makes them): whoever raises an alarm about one is wrong."""


class UnknownMutantError(ValueError):
    """A mutant that is not in the table; the message lists those that are."""


class Mutants:
    """The mutants that are switched on in one broker."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._active = frozenset(names)
        known = MUTANTS.keys() | BENIGN.keys()
        unknown = sorted(self._active - known)
        if unknown:
            raise UnknownMutantError(f"unknown mutant {', '.join(unknown)}; known: {', '.join(sorted(known))}")

    def active(self, name: str) -> bool:
        """Whether a mutant is on. Call it when an object is built, not on a hot path."""
        if name not in MUTANTS and name not in BENIGN:
            raise UnknownMutantError(f"unknown mutant {name}; known: {', '.join(sorted(MUTANTS.keys() | BENIGN))}")
        return name in self._active

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._active))
