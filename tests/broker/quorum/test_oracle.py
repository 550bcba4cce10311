"""The simulation would see the bug: each rule is broken in turn, and some schedule must trip an assertion.

The names are those of the design's table of mutants. Each is one changed line of the state machine.
"""

# ruff: noqa: ARG001, ARG005 - what a rule ignores once it is broken is the point

from collections.abc import Callable

import pytest

from broker.quorum import core, raft_node
from broker.quorum.core import Core
from broker.quorum.leading import Leading
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.raft_node import Following
from broker.quorum.request_pacing import Outreach
from broker.quorum.roles import Ballot, Follower, Leader, ReplicaProgress, Role
from tests.broker.quorum.memory import MemoryDisk, MemoryLog
from tests.broker.quorum.simulation import BrokenPromiseError, Chaos, Simulation
from tests.broker.quorum.test_simulation import trouble

SEEDS = 600
VOTERS = (3, 4, 5)
WILD = Chaos(crash=0.004, duplicate=0.2, flush=(0.005, 0.06))
Break = Callable[[pytest.MonkeyPatch], None]


def vote_not_persisted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryDisk, "persist", lambda self, state: None)


def revote_same_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Role, "may_vote_for", lambda self, candidate_id, up_to_date: up_to_date)
    patch.setattr(core, "check_transition", lambda old, new, is_voter: None)


def vote_ignores_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetAndEpoch, "up_to_date_with", lambda self, other: True)


def vote_length_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetAndEpoch, "up_to_date_with", lambda self, other: self.offset >= other.offset)


def minority_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ballot, "won", property(lambda self: len(self.granted) >= len(self.voters) // 2))


def duplicate_grants_counted(patch: pytest.MonkeyPatch) -> None:
    def record(self: Ballot, voter: int, granted: bool, heard_at: float) -> None:
        if granted:
            self.granted[1000 + len(self.granted)] = heard_at
        else:
            self.rejected[1000 + len(self.rejected)] = None

    patch.setattr(Ballot, "record", record)


def late_vote_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raft_node.Votes, "_is_current", lambda self, request: True)


def observer_counts(patch: pytest.MonkeyPatch) -> None:
    def majority_offset(self: Leader, own_durable_end: int, **_: bool) -> int:
        offsets = sorted([own_durable_end, *(replica.fetch_offset or 0 for replica in self.replicas())], reverse=True)
        return offsets[(len(self.voters) + 1) // 2]

    patch.setattr(Leader, "majority_offset", majority_offset)


def resume_as_leader(patch: pytest.MonkeyPatch) -> None:
    original = core.initial_role

    def initial_role(now, stored, settings, log, voters, rng, **_):  # type: ignore[no-untyped-def]
        if stored.leader_id != settings.node_id:
            return original(now, stored, settings, log, voters, rng)
        others = settings.other_voters
        replicas = {voter: ReplicaProgress() for voter in others}
        return Leader(
            stored.epoch, settings.node_id, log.log_end_offset, replicas, Outreach(others, settings), now + 1.5
        )

    patch.setattr("broker.quorum.raft_node.initial_role", initial_role)


def follower_fetch_before_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "log_in_motion", property(lambda self: False, lambda self, value: None), raising=False)


def leader_counts_unsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "durable_end_offset", property(lambda self: len(self.entries), lambda self, value: None))


def fetch_no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "_divergence", lambda self, fetch_from: None)


def diverging_strictly_less(patch: pytest.MonkeyPatch) -> None:
    original = Following._truncate

    def truncate(self: Following, diverging: OffsetAndEpoch) -> None:
        original(self, min(diverging, self._core.end_offset_for(diverging.epoch - 1), key=lambda end: end.offset))

    patch.setattr(Following, "_truncate", truncate)


def vote_lost_on_follow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Follower, "voted_id", property(lambda self: None))
    patch.setattr(Follower, "elected_id", property(lambda self: None))
    patch.setattr(core, "check_transition", lambda old, new, is_voter: None)


TWO_LEADERS = ("SingleLeaderPerEpoch", "OneVotePerEpoch")
LOST = ("LeaderCompleteness", "NoCommittedRecordLost", "MajorityReachedHighWatermark", "refused")
DIVERGED = (*LOST, "LogMatching")

BROKEN_RULES: list[tuple[Break, tuple[str, ...]]] = [
    (vote_not_persisted, TWO_LEADERS),
    (revote_same_epoch, TWO_LEADERS),
    (vote_ignores_log, LOST),
    (vote_length_only, LOST),
    (minority_wins, TWO_LEADERS),
    (duplicate_grants_counted, TWO_LEADERS),
    (late_vote_counted, TWO_LEADERS),
    (observer_counts, LOST),
    (resume_as_leader, DIVERGED),
    (follower_fetch_before_fsync, LOST),
    (leader_counts_unsynced, LOST),
    (fetch_no_epoch_check, DIVERGED),
    (diverging_strictly_less, LOST),
    (vote_lost_on_follow, TWO_LEADERS),
]


def first_broken_promise(seed: int) -> str | None:
    """The invariant that a schedule shows to be broken; "refused" when a node stopped itself instead."""
    simulation = Simulation(seed, VOTERS[seed % len(VOTERS)], 1, WILD)
    try:
        simulation.start_all()
        trouble(simulation, 6.0)
    except BrokenPromiseError as broken:
        return str(broken)
    return "refused" if simulation.failures else None


@pytest.mark.rotating(7)
@pytest.mark.parametrize(("break_rule", "anomalies"), BROKEN_RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_found(break_rule: Break, anomalies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(monkeypatch)
    for seed in range(SEEDS):
        if first_broken_promise(seed) in anomalies:
            return
    pytest.fail(f"{break_rule.__name__} was not noticed in {SEEDS} schedules")
