"""Mutants: deliberate bugs of the broker that a cell switches on, to show that a campaign detects them.

A mutant is a branch at the exact line of the rule that it breaks. Documents and tests read the table below. An object
resolves `active(name)` once, when it is built, so that a mutant that is off costs nothing.

The benign mutants change the broker's configuration in ways on which no promise depends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.config import BrokerConfig


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug: the rule that it breaks, the anomaly that it must cause, and the shortest known schedule."""

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
            schedule="a follower truncates to its own high watermark instead of asking the leader for the end of "
            "its last epoch; campaigns/kip101-scenario2.toml, and with bounce_unseen "
            "campaigns/kip101-scenario1.toml",
        ),
        Mutant(
            name="bounce_unseen",
            rule="H12",
            anomaly="lost-acknowledged-write, leader-incomplete, high-watermark-invalid",
            schedule="a broker restarts after a power loss without its data and stays in the ISR; "
            "campaigns/mutants/bounce-unseen.toml",
        ),
        Mutant(
            name="hw_below_min_isr",
            rule="H16",
            anomaly="lost-acknowledged-write, high-watermark-invalid",
            schedule="a leader that is the only ISR member commits records that must wait for a second replica, "
            "then loses power; campaigns/mutants/kip966-min-isr.toml",
        ),
        Mutant(
            name="elect_unclean_shutdown_isr",
            rule="H16",
            anomaly="lost-acknowledged-write, leader-incomplete",
            schedule="the last running replica loses power and is elected again, although another replica was only "
            "killed; campaigns/mutants/kip966-last-replica.toml",
        ),
        Mutant(
            name="last_known_leader_leads",
            rule="K101-15",
            anomaly="lost-acknowledged-write, leader-incomplete",
            schedule="all eligible replicas have shut down uncleanly, and the last leader leads again although its "
            "log may have lost records; campaigns/mutants/kip966-last-leader.toml",
        ),
        Mutant(
            name="isr_grows_while_recovering",
            rule="K704-4",
            anomaly="isr-would-be-granted, election-not-allowed, replica-divergence",
            schedule="a leader in recovery from an unclean election would get a second ISR member if it requested "
            "one; campaigns/mutants/joins-in-recovery.toml",
        ),
        Mutant(
            name="serve_while_recovering",
            rule="K704-5",
            anomaly="served-in-recovery",
            schedule="a leader in recovery from an unclean election serves produce and fetch requests of clients; "
            "campaigns/mutants/unclean-in-recovery.toml",
        ),
        Mutant(
            name="recovery_flag_lost",
            rule="K704-9",
            anomaly="election-not-allowed",
            schedule="a leader is stopped during its recovery and leads again without completing it; "
            "campaigns/mutants/unclean-in-recovery.toml",
        ),
        Mutant(
            name="unclean_keeps_isr",
            rule="K704-1",
            anomaly="election-not-allowed, lost-acknowledged-write, leader-incomplete",
            schedule="C is elected uncleanly and acknowledges writes; C fails, and a replica that was eligible "
            "before is elected; campaigns/mutants/unclean-in-recovery.toml",
        ),
        Mutant(
            name="vote_not_persisted",
            rule="K595-19",
            anomaly="vote-not-on-disk, election-state-regression, two-votes, two-leaders, vote-before-disk, "
            "epoch-fell, two-leaders-of-one-epoch",
            schedule="a voter grants its vote without writing it to disk, restarts before it knows the leader, and "
            "votes again; campaigns/mutants/vote-not-persisted.toml",
        ),
        Mutant(
            name="refused_is_dead",
            rule="H31",
            anomaly="stale-read, lease-shared",
            schedule="a firewall rejects packets between a leader and the controller; the controller takes the "
            "refused connection as proof that the leader is dead, and another broker leads during the "
            "first one's lease; campaigns/mutants/lease.toml",
        ),
        Mutant(
            name="leave_under_lease",
            rule="H31",
            anomaly="stale-read, lease-shared",
            schedule="a leader that shuts down keeps its lease until the controller's answer, which a one-way "
            "partition drops; campaigns/mutants/unheard-leave.toml",
        ),
        Mutant(
            name="moves_under_lease",
            rule="H31",
            anomaly="lease-shared, stale-read",
            schedule="the controller moves a leadership from a broker that it cannot reach, and another broker "
            "leads during the first one's lease; campaigns/mutants/moved-under-lease.toml",
        ),
        Mutant(
            name="sequence_unchecked",
            rule="K98-2",
            anomaly="duplicate, duplicate-on-replica, producer-order, append-reorder, sequence-gap, "
            "sequence-gap-on-replica",
            schedule="a leader appends every copy of an idempotent producer's batch; the answer to an appended "
            "batch is lost, and the producer sends it again; campaigns/mutants/sequence-unchecked.toml",
        ),
        Mutant(
            name="any_first_sequence",
            rule="K98-10",
            anomaly="sequence-gap-on-replica, sequence-gap",
            schedule="a leader accepts any first sequence of a producer that never wrote to its log; of two "
            "requests in flight to a new partition it rejects the first and accepts the second; "
            "campaigns/mutants/first-sequence.toml",
        ),
        Mutant(
            name="any_first_after_restart",
            rule="K98-10",
            anomaly="sequence-gap-on-replica, sequence-gap",
            schedule="a broker loses power before its log has a producer snapshot, restarts and leads; it accepts any "
            "first sequence, and of two requests in flight it rejects the first and accepts the second; "
            "campaigns/mutants/first-sequence-after-restart.toml",
        ),
        Mutant(
            name="delete_answered_early",
            rule="K107-1",
            anomaly="answered-start-fell, deletion-undone",
            schedule="DeleteRecords is answered when the leader alone has moved its log's start; the leader fails "
            "before a follower learns it; campaigns/deleted-records.toml",
        ),
        Mutant(
            name="unflushed_roll",
            rule="LOG-2",
            anomaly="recovery-point-ahead",
            schedule="a segment is complete and its recovery point is written, but the segment is not flushed; "
            "campaigns/mutants/unflushed-segments.toml",
        ),
        Mutant(
            name="no_producer_snapshot",
            rule="K98-6",
            anomaly="duplicate, duplicate-on-replica, producer-order, append-reorder, sequence-gap, "
            "sequence-gap-on-replica",
            schedule="a broker starts without the producer state of its log; a producer sends a batch again that "
            "was appended before; campaigns/mutants/no-producer-snapshot.toml",
        ),
        Mutant(
            name="producer_state_survives_truncation",
            rule="K98-7",
            anomaly="lost-acknowledged-write, offset-mismatch, sequence-gap",
            schedule="a deposed leader truncates a batch, leads again, and treats the batch as already appended "
            "when the producer sends it again; campaigns/mutants/producer-state-survives-truncation.toml",
        ),
        Mutant(
            name="compaction_drops_epochs",
            rule="K101-11",
            anomaly="epochs-contradict-log, replica-divergence",
            schedule="compaction removes the first batch of a leader epoch with its header; after a crash the "
            "leader computes a later start of the epoch, and a follower keeps records that it should "
            "truncate; campaigns/mutants/compacted-epochs.toml",
        ),
        Mutant(
            name="commit_acked_before_hw",
            rule="CG-3",
            anomaly="lost-acknowledged-commit",
            schedule="a group coordinator answers OffsetCommit after its own append, and fails before the other "
            "replicas have it; campaigns/mutants/commit-acked-before-hw.toml",
        ),
        Mutant(
            name="ofle_no_epoch",
            rule="H1",
            anomaly="followed-unmatched, replica-divergence, log-mismatch, committed-prefix-changed",
            schedule="a leader answers where an epoch ends without naming the epoch; two failovers leave a follower "
            "with a different suffix; campaigns/mutants/fast-failovers.toml",
        ),
        Mutant(
            name="epoch_file_unsynced",
            rule="H10",
            anomaly="epochs-contradict-log",
            schedule="the epoch file is replaced without a sync; every new leader shows it, a power loss makes it "
            "harmful",
        ),
        Mutant(
            name="epoch_after_data",
            rule="K101-8",
            anomaly="epochs-contradict-log",
            schedule="a follower appends the first batch of an epoch before its epoch file has the entry; every "
            "change of leader shows it",
        ),
        Mutant(
            name="keep_epochs_past_leo",
            rule="K101-12",
            anomaly="epochs-contradict-log",
            schedule="a leader loses power before its epoch has a record, and keeps the epoch's entry after its "
            "restart; campaigns/mutants/idle-leaders.toml",
        ),
        Mutant(
            name="noop_truncate_keeps_cache",
            rule="H8",
            anomaly="epochs-contradict-log",
            schedule="A is elected without any write, B is elected, A follows with an epoch that has no record; "
            "campaigns/mutants/idle-leaders.toml",
        ),
        Mutant(
            name="trim_drops_live_epoch",
            rule="H27",
            anomaly="epochs-contradict-log, replica-divergence, committed-prefix-changed",
            schedule="records are deleted up to the middle of an epoch, and the epoch's entry is deleted with them; "
            "campaigns/mutants/forgotten-start.toml",
        ),
        Mutant(
            name="no_fence_fetch",
            rule="H3",
            anomaly="counted-not-shared, fetch-would-be-counted, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write",
            schedule="a leader accepts the fetch of a follower that is in an older epoch; "
            "campaigns/mutants/stale-leader-epoch.toml",
        ),
        Mutant(
            name="diverging_updates_leo",
            rule="H6",
            anomaly="fetch-would-be-counted, counted-not-shared, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write",
            schedule="a leader would count the first fetch of a deposed leader, whose log diverges, as progress; "
            "campaigns/mutants/deposed-leader.toml",
        ),
        Mutant(
            name="isr_join_at_hw_only",
            rule="H5",
            anomaly="member-incomplete, leader-incomplete, high-watermark-invalid, lost-acknowledged-write",
            schedule="a new leader's high watermark lags; a slow follower joins the ISR below the true one and is "
            "elected; campaigns/mutants/lagging-high-watermark.toml",
        ),
        Mutant(
            name="hw_on_committed_isr",
            rule="H13",
            anomaly="isr-too-narrow, high-watermark-invalid, leader-incomplete, lost-acknowledged-write",
            schedule="a follower joins the ISR, and until the controller's answer the leader commits without it",
        ),
        Mutant(
            name="shrink_applied_early",
            rule="H13",
            anomaly="isr-too-narrow, high-watermark-invalid, leader-incomplete, lost-acknowledged-write, "
            "committed-not-durable",
            schedule="a leader whose requests do not reach the controller commits without a follower that can still "
            "be elected",
        ),
        Mutant(
            name="stale_partition_epoch_ok",
            rule="H13",
            anomaly="isr-not-granted, isr-would-be-granted, isr-too-narrow, high-watermark-invalid, "
            "leader-incomplete, lost-acknowledged-write",
            schedule="the controller applies an AlterPartition to a state that has changed since the request; "
            "campaigns/mutants/stale-partition-epoch.toml",
        ),
        Mutant(
            name="stale_broker_epoch_ok",
            rule="H15",
            anomaly="isr-not-granted, isr-would-be-granted, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write",
            schedule="a follower fetches, loses power, and joins the ISR with the log end of its previous process; "
            "campaigns/mutants/stale-proposal.toml",
        ),
        Mutant(
            name="fenced_in_isr",
            rule="H14",
            anomaly="isr-not-granted, isr-would-be-granted, high-watermark-invalid, leader-incomplete, "
            "lost-acknowledged-write, not-converged",
            schedule="the controller fences a follower while its leader proposes it for the ISR; "
            "campaigns/mutants/fenced-follower.toml",
        ),
        Mutant(
            name="ack_before_hw",
            rule="K101-15",
            anomaly="lost-acknowledged-write",
            schedule="a leader answers acks=all after its own append, and fails",
        ),
        Mutant(
            name="consume_past_hw",
            rule="H5",
            anomaly="committed-then-truncated, phantom, aborted-read, stale-read, offset-mismatch",
            schedule="readers get records that a deposed leader has appended and no other replica has",
        ),
        Mutant(
            name="full_truncate_keeps_hw",
            rule="H9",
            anomaly="high-watermark-invalid",
            schedule="a follower starts its log again behind deleted records, and its high watermark stays before "
            "the log's start; campaigns/mutants/forgotten-start.toml",
        ),
        Mutant(
            name="leader_hw_kept",
            rule="H33",
            anomaly="non-monotonic-high-watermark, stale-read, session-violation",
            schedule="a new leader answers with a high watermark below that of its predecessor; "
            "campaigns/mutants/lagging-high-watermark.toml",
        ),
        Mutant(
            name="hw_forgotten_at_lead",
            rule="H33",
            anomaly="high-watermark-fell",
            schedule="a new leader forgets the high watermark that it had as a follower; every election shows it",
        ),
        Mutant(
            name="vote_reply_before_fsync",
            rule="K595-19",
            anomaly="vote-before-disk",
            schedule="a voter answers before its vote is on its disk",
        ),
        Mutant(
            name="self_vote_not_persisted",
            rule="K595-13",
            anomaly="vote-before-disk, vote-not-on-disk, epoch-fell, election-state-regression, two-votes, two-leaders",
            schedule="a candidate requests votes before its own vote is on its disk, and forgets it with a restart",
        ),
        Mutant(
            name="vote_ignores_log",
            rule="K595-18",
            anomaly="vote-against-log, leader-incomplete, lost-committed-metadata, committed-prefix-changed",
            schedule="a voter with a shorter log is elected; campaigns/mutants/lagging-voter.toml",
        ),
        Mutant(
            name="voter_key_ignored",
            rule="H22",
            anomaly="leader-incomplete, lost-committed-metadata, committed-prefix-changed, election-state-regression",
            schedule="a voter's disk is replaced by an empty one, and it elects a voter that lags; "
            "campaigns/mutants/wiped-majority.toml",
        ),
        Mutant(
            name="vote_length_only",
            rule="K595-18",
            anomaly="vote-against-log, leader-incomplete, lost-committed-metadata, committed-prefix-changed",
            schedule="a voter with a long log of an old epoch is elected over one with a shorter, newer log; "
            "campaigns/mutants/long-old-log.toml",
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
            schedule="a grant for an earlier epoch arrives and is counted; campaigns/mutants/late-vote.toml",
        ),
        Mutant(
            name="commit_old_epoch",
            rule="K595-36",
            anomaly="committed-old-epoch, committed-prefix-changed, leader-incomplete, lost-committed-metadata",
            schedule="a leader commits a record of an earlier epoch because a majority has it (Raft, figure 8)",
        ),
        Mutant(
            name="observer_counts",
            rule="K595-36",
            anomaly="committed-without-majority, committed-not-durable, lost-committed-metadata, leader-incomplete",
            schedule="an observer fetches before the voters do, and the leader counts it; "
            "campaigns/mutants/slow-observers.toml",
        ),
        Mutant(
            name="resume_as_leader",
            rule="H18",
            anomaly="two-leaders-of-one-epoch, log-mismatch",
            schedule="a leader is killed, restarts within the fetch timeout, and continues to lead in its epoch",
        ),
        Mutant(
            name="follower_fetch_before_fsync",
            rule="K595-7",
            anomaly="committed-not-durable, lost-committed-metadata",
            schedule="a voter sends its next fetch before the records of the last one are on its disk",
        ),
        Mutant(
            name="leader_counts_unsynced",
            rule="K595-7",
            anomaly="committed-not-durable, lost-committed-metadata",
            schedule="the quorum's leader counts itself before the record is on its disk",
        ),
        Mutant(
            name="truncate_below_hw",
            rule="K595-40",
            anomaly="committed-prefix-changed",
            schedule="a voter truncates committed records when a leader requests it; "
            "campaigns/mutants/rolled-back-majority.toml",
        ),
        Mutant(
            name="fetch_no_epoch_check",
            rule="K595-35",
            anomaly="log-mismatch, replica-divergence, applied-metadata-mismatch",
            schedule="a deposed leader of the quorum with its own records appends new ones after them; "
            "campaigns/mutants/deposed-controller.toml",
        ),
        Mutant(
            name="diverging_strictly_less",
            rule="H25",
            anomaly="committed-prefix-changed, unexpected-exit",
            schedule="logs that share an epoch are treated as different from the start of that epoch",
        ),
        Mutant(
            name="tier_above_hw",
            rule="K1023-14",
            anomaly="uncommitted-record-in-store, tiered-bounds-violated",
            schedule="a leader uploads a closed segment that is not committed; another replica is elected without it; "
            "campaigns/mutants/tiered-uncommitted.toml",
        ),
        Mutant(
            name="remote_ignores_lineage",
            rule="H28",
            anomaly="not-converged",
            schedule="after an unclean election, the new leader takes segments of the lost history for its own, and an "
            "empty follower waits for their state; campaigns/mutants/tiered-lineage.toml",
        ),
        Mutant(
            name="epuo_off_by_one",
            rule="K1023-3",
            anomaly="not-converged",
            schedule="a leader's earliest pending upload is one too high; an empty follower asks for a start whose "
            "state remote storage never has; campaigns/mutants/tiered-unknown.toml",
        ),
        Mutant(
            name="epuo_unknown_as_zero",
            rule="K1023-9",
            anomaly="follower-starts-below-log",
            schedule="an empty follower of a new leader that does not know yet what is tiered starts at 0, again and "
            "again; campaigns/mutants/tiered-unknown.toml",
        ),
        Mutant(
            name="epuo_no_clamp",
            rule="K1023-10",
            anomaly="wrong-bootstrap-offset",
            schedule="remote storage is switched off and on again; an empty follower starts at the last tiered offset "
            "below the log's start, if a leader states such an offset",
        ),
        Mutant(
            name="lso_set_to_epuo",
            rule="K1023-12",
            anomaly="removed-before-upload, lost-acknowledged-write",
            schedule="a follower that started after the last tiered offset takes it for the log's start, leads, and "
            "serves nothing below; campaigns/mutants/tiered-join.toml",
        ),
        Mutant(
            name="no_epoch_cache_from_remote",
            rule="K1023-11",
            anomaly="bootstrap-epochs-differ, replica-divergence, no-progress",
            schedule="a follower that started after the last tiered offset has no epochs of the records below; "
            "campaigns/mutants/tiered-join.toml",
        ),
        Mutant(
            name="no_remote_producer_snapshot",
            rule="K1023-11",
            anomaly="duplicate",
            schedule="a follower that started after the last tiered offset knows no producer, leads, and appends a "
            "batch again that was acknowledged; tests/simulator/test_tiered_bootstrap.py",
        ),
        Mutant(
            name="lookup_ignores_remote",
            rule="LOG-1",
            anomaly="wrong-offset-for-timestamp",
            schedule="a leader looks up offsets by timestamp in its local segments only; "
            "campaigns/mutants/tiered-lookups.toml",
        ),
        Mutant(
            name="sweep_by_manifest",
            rule="K405-1",
            anomaly="object-removed-unasked",
            schedule="the store has objects of a segment that the metadata do not know, and the leader deletes them; "
            "campaigns/mutants/tiered-mixed.toml",
        ),
        Mutant(
            name="digest_unchecked",
            rule="K405-2",
            anomaly="phantom",
            schedule="the store returns another segment's object, and its records are served as those of the log; "
            "campaigns/mutants/tiered-mixed.toml",
        ),
        Mutant(
            name="auxiliary_not_uploaded",
            rule="K405-3",
            anomaly="remote-segment-incomplete",
            schedule="a leader finishes copies without the objects with the epochs and the producers; "
            "campaigns/mutants/tiered-mixed.toml",
        ),
        Mutant(
            name="growth_answered_early",
            rule="ADM-1",
            anomaly="administration-undone",
            schedule="a controller answers CreatePartitions before the partitions are committed, and is deposed; "
            "campaigns/mutants/administration.toml",
        ),
        Mutant(
            name="alter_drops_others",
            rule="ADM-2",
            anomaly="administration-undone",
            schedule="an incremental change of a topic's settings removes the settings that it does not name; "
            "campaigns/mutants/administration.toml",
        ),
        Mutant(
            name="removed_leader_stays",
            rule="ADM-3",
            anomaly="administration-undone",
            schedule="a reassignment that removes the leader is completed with the leader among the replicas; "
            "campaigns/mutants/administration.toml",
        ),
        Mutant(
            name="jump_if_nonempty",
            rule="K1023-6",
            anomaly="local-records-dropped",
            schedule="a follower with records that was down past the local retention drops them and starts after the "
            "last tiered offset; campaigns/mutants/tiered-rejoin.toml",
        ),
    )
}

BENIGN: dict[str, Mutant] = {
    name: Mutant(name, rule="", anomaly="", schedule=schedule)
    for name, schedule in (
        ("slow_retry", "requests between nodes are repeated after four times the delay"),
        ("more_elections", "the quorum's members start an election after half of the fetch timeout"),
        ("long_elections", "the random delay before an election of the quorum is up to three times as long"),
        ("small_fetches", "replicas fetch at most 700 bytes at a time"),
        ("short_polls", "replicas' fetches wait for a tenth of the time"),
        ("many_heartbeats", "brokers send three times as many heartbeats"),
        ("short_leases", "a lease lasts half as long"),
        ("nervous_leaders", "a lagging follower leaves the ISR after half of the time"),
        ("small_segments", "log segments have 4,096 bytes"),
        ("sparse_index", "an index has one entry per 64 KiB"),
        ("rare_checkpoints", "high watermarks are written to disk a tenth as often"),
        ("many_snapshots", "the metadata log is replaced by a snapshot after every 2,000 bytes"),
    )
}
"""Changes that break no promise (`CHANGES` implements them): any alarm about one is false."""


class UnknownMutantError(ValueError):
    """An unknown mutant; the message lists the known ones."""


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


# ---- What benign mutants change.

Change = Callable[[BrokerConfig], BrokerConfig]

CHANGES: Final[Mapping[str, Change]] = {
    "slow_retry": lambda it: replace(
        it,
        quorum_retry_backoff_ms=4 * it.quorum_retry_backoff_ms,
        quorum_retry_backoff_max_ms=4 * it.quorum_retry_backoff_max_ms,
        replica_fetch_backoff_ms=4 * it.replica_fetch_backoff_ms,
    ),
    "more_elections": lambda it: replace(it, quorum_fetch_timeout_ms=max(1, it.quorum_fetch_timeout_ms // 2)),
    "long_elections": lambda it: replace(it, quorum_election_backoff_max_ms=3 * it.quorum_election_backoff_max_ms),
    "small_fetches": lambda it: replace(it, replica_fetch_max_bytes=700),
    "short_polls": lambda it: replace(it, replica_fetch_wait_max_ms=max(1, it.replica_fetch_wait_max_ms // 10)),
    "many_heartbeats": lambda it: replace(
        it, broker_heartbeat_interval_ms=max(1, it.broker_heartbeat_interval_ms // 3)
    ),
    "short_leases": lambda it: replace(it, broker_lease_ms=max(1, it.broker_lease_ms // 2)),
    "nervous_leaders": lambda it: replace(it, replica_lag_time_max_ms=max(1, it.replica_lag_time_max_ms // 2)),
    "small_segments": lambda it: replace(it, log_segment_bytes=4096),
    "sparse_index": lambda it: replace(it, log_index_interval_bytes=1 << 16),
    "rare_checkpoints": lambda it: replace(
        it, high_watermark_checkpoint_interval_ms=10 * it.high_watermark_checkpoint_interval_ms
    ),
    "many_snapshots": lambda it: replace(it, metadata_log_max_record_bytes_between_snapshots=2000),
}


def altered(config: BrokerConfig, mutants: Mutants) -> BrokerConfig:
    """The configuration that a broker with these mutants uses."""
    for name, change in CHANGES.items():
        if mutants.active(name):
            config = change(config)
    return config
