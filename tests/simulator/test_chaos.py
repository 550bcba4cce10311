"""Random faults: a correct broker keeps every promise, and the judge sees it when one does not."""

from __future__ import annotations

import pytest

from broker.log.log import PartitionLog
from simulator.chaos import Chaos, ChaosOutcome, ChaosPlan
from simulator.disk import FileSystem

PAGE_CACHE = {"min.insync.replicas": "2", "default.replication.factor": "3"}
FLUSHED = {**PAGE_CACHE, "log.flush.interval.messages": "1"}
PLANS = {
    "everything": ChaosPlan(),
    "power": ChaosPlan(kinds=("power-loss-all",), pause_s=(0.1, 1.5), faults=6, file_system=FileSystem.STRICT),
    "page cache": ChaosPlan(properties=PAGE_CACHE, kinds=("kill", "partition-one", "power-loss", "restart")),
    "small segments, fast": ChaosPlan(
        properties={**FLUSHED, "log.segment.bytes": "4096"}, pause_s=(0.01, 0.5), outage_s=(0.01, 1.0), faults=15
    ),
    "five brokers": ChaosPlan(nodes=5, pause_s=(0.05, 1.5)),
}


def first_violation(plan: ChaosPlan, seeds: int) -> ChaosOutcome:
    """The first of some runs that breaks a promise."""
    for seed in range(seeds):
        outcome = Chaos(seed, plan).run()
        if outcome.violations:
            return outcome
    raise AssertionError(f"none of {seeds} runs saw a violation")


@pytest.mark.conforms("K101-15", "K595-54")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_every_promise_is_kept(plan: ChaosPlan, seed: int) -> None:
    outcome = Chaos(seed, plan).run()
    assert outcome.violations == [], "\n".join([*outcome.faults, *outcome.violations])
    assert outcome.acknowledged > 50, "a run in which little was acknowledged shows little"
    assert len(outcome.faults) == plan.faults


@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [("bounce_unseen", ("power-loss",)), ("truncate_to_hw", ("kill", "power-loss", "partition-one", "restart"))],
)
def test_the_judge_sees_a_broken_rule(mutant: str, kinds: tuple[str, ...]) -> None:
    outcome = first_violation(ChaosPlan(mutants=(mutant,), properties=PAGE_CACHE, kinds=kinds), seeds=12)
    assert "acknowledged" in outcome.violations[0]
    again = Chaos(outcome.seed, ChaosPlan(mutants=(mutant,), properties=PAGE_CACHE, kinds=kinds)).run()
    assert again == outcome, "a finding can be replayed from its seed"


def test_the_judge_sees_a_broker_that_acknowledges_before_the_disk_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pretend(log: PartitionLog) -> int:
        log._durable = log.log_end_offset
        return log.log_end_offset

    monkeypatch.setattr(PartitionLog, "flush", pretend)
    outcome = first_violation(ChaosPlan(kinds=("power-loss-all",), faults=2), seeds=3)
    assert "acknowledged" in outcome.violations[0] or "not whole" in outcome.violations[0]
