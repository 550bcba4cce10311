"""Supposed followers of a partition that is mostly in remote storage: each starts at the right place, except for a
bug."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.replica import tiered_start
from broker.replica.follower import PartitionFollower, Truncate
from broker.replica.tiered_start import Bootstrap, RetryLater, StartAbove, StartAt
from simulator.oracles import supposed_starts
from tests.simulator.test_tiered import TOPIC
from tests.simulator.tiered_bootstrap import Joining, run

DELETED = 40
Plant = Callable[[pytest.MonkeyPatch], None]


def sentences(*mutants: str) -> list[str]:
    """The findings of two brokers, one of which has stopped in between, and of a deletion of the first epoch."""
    found: list[str] = []

    async def story(joining: Joining) -> None:
        await joining.begin()
        await joining.fill()
        await joining.client.delete_records(TOPIC, 0, DELETED)
        await joining.cluster.until(lambda: joining.led.log.log_start_offset == DELETED)
        findings = joining.cluster.watch.findings
        assert findings.checks["followed-unmatched"] > 30
        found.extend(each.sentence for each in findings.found if each.oracle == "followed-unmatched")

    run(1, story, mutants=mutants)
    return found


@pytest.mark.conforms(*(f"K1023-{number}" for number in range(4, 11)), "H29", "H34")
def test_followers_start_where_they_must_at_each_border_of_their_leaders_log() -> None:
    assert sentences() == []


def follower(name: str, change: Callable[[Any], Any]) -> Plant:
    return lambda patch: patch.setattr(PartitionFollower, name, change(getattr(PartitionFollower, name)))


def bootstrap(jumps: Callable[[Bootstrap], bool]) -> Plant:
    return lambda patch: patch.setattr(Bootstrap, "jumps", property(jumps))


def last_step(kind: type, instead: Callable[[Any, Bootstrap], Any]) -> Plant:
    """Supposed followers end their dialogue with another step. Those of the run are as always."""

    def step(state: Bootstrap) -> Any:
        right = tiered_start.next_step(state)
        return instead(right, state) if isinstance(right, kind) else right

    return lambda patch: patch.setattr(supposed_starts, "next_step", step)


def restart(_: Any) -> Callable[..., Truncate]:
    return lambda _self, log, _start: Truncate(log.log_end_offset, "leader-start", restart=True)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        pytest.param(bootstrap(lambda state: state.enabled), "with a log up to", id="records are skipped"),
        pytest.param(bootstrap(lambda _: False), "which may skip", id="no record is skipped"),
        pytest.param(last_step(StartAbove, lambda _, state: StartAt(state.log_start or 0)), "StartAbove", id="too low"),
        pytest.param(last_step(StartAt, lambda *_: StartAt(0)), "StartAt(offset=0)", id="below the log"),
        pytest.param(last_step(StartAbove, lambda *_: RetryLater("")), "RetryLater", id="it waits for ever"),
        pytest.param(follower("in_range", lambda _: lambda *_: None), "would keep its log", id="an old log is kept"),
        pytest.param(follower("in_range", restart), "would drop its log", id="a good log is dropped"),
        pytest.param(follower("out_of_range", lambda _: lambda *_: None), "would keep its log", id="no start is found"),
    ],
)
def test_a_follower_that_would_start_elsewhere_is_found(
    plant: Plant, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    (sentence,) = sentences("tier_above_hw")
    assert text in sentence
