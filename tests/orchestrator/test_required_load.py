"""The requirements of a campaign for a world, and the load that its runs need: the campaign sets the minimum."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.campaign.load_targets import Stake, stake_of
from orchestrator.errors import UsageError
from orchestrator.running.runner import require_faults
from orchestrator.worlds.selection import lab_named
from tests.orchestrator.campaigns import campaign

RANDOM = '[nemesis]\nkind = "random"\nfaults = ["kill", "power-loss", "partition-one"]\n'
LOAD = "[workload]\nrate = 200\nduration_s = 60\nproducers = 3\nconsumers = 2\n"
NO_LOAD = "[workload]\nproducers = 0\nconsumers = 0\nduration_s = 0\n"
SCRIPT = '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "{}"\n{}\n'


def stake(text: str) -> Stake:
    return stake_of(campaign(text))


@pytest.mark.parametrize(
    ("text", "changes", "queries", "min_ok", "min_queries"),
    [
        # 70 % of the load are appends; 20 % of the consumers' operations are queries of ends
        (LOAD, 8_400, 720, 4_200, 180),
        (LOAD + "[checks]\nmin_ok = 3000", 8_400, 720, 3_000, 128),
        (LOAD + "[checks]\nmin_ok = 8000", 8_400, 720, 8_000, 180),
        (LOAD + "[checks]\nmin_ok = 0", 8_400, 720, 0, 0),
        (LOAD + "[checks]\nmin_queries = 700", 8_400, 720, 4_200, 700),
        (LOAD + "[checks]\nmin_share = 0.3", 8_400, 720, 2_520, 108),
        (LOAD + "[checks]\nmin_share = 0.9", 8_400, 720, 4_200, 180),
        (LOAD + "[checks]\nmin_share = 0.1\nmin_ok = 3000", 8_400, 720, 3_000, 72),
        (LOAD.replace("consumers = 2", "consumers = 0"), 12_000, 0, 6_000, 0),
        (NO_LOAD, 0, 0, 1, 0),
        (LOAD + SCRIPT.format("kill", 'node = "n1"'), 0, 0, 1, 0),
    ],
    ids=[
        "defaults",
        "own minimum",
        "high minimum",
        "none",
        "own queries",
        "little share",
        "large share",
        "own minimum and share",
        "no consumers",
        "no load",
        "script",
    ],
)
def test_minima_scale_with_the_planned_load_unless_they_are_given(
    text: str, changes: int, queries: int, min_ok: int, min_queries: int
) -> None:
    found = stake(text)
    assert (found.changes, found.queries) == (changes, queries)
    assert (found.min_ok, found.min_queries) == (min_ok, min_queries)


def test_the_weights_of_registers_give_the_planned_operations() -> None:
    workload = '[workload]\nkind = "register"\nrate = 100\nduration_s = 10\nreads = 5\nwrites = 3\ncas = 2\n'
    found = stake('[system]\nname = "etcd"\n' + workload)
    assert (found.changes, found.queries, found.min_ok, found.min_queries) == (300, 500, 150, 125)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (LOAD + RANDOM, ""),
        (LOAD, "little was at stake: no fault"),
        (NO_LOAD, "nothing was at stake: no load, no fault"),
        (NO_LOAD + "[checks]\nmin_ok = 0", "nothing was at stake: no load, no fault, no minimum"),
        (LOAD + RANDOM + "[checks]\nmin_ok = 0", "little was at stake: no minimum"),
        (NO_LOAD + SCRIPT.format("kill", 'node = "n1"') + "[checks]\nmin_ok = 0", "nothing was at stake: no load, no"),
        (NO_LOAD + SCRIPT.format("produce", ""), "little was at stake: no fault"),
        (NO_LOAD + SCRIPT.format("produce", "acks = 1"), "nothing was at stake: no load, no fault"),
    ],
)
def test_missing_loads_and_faults_are_stated_as_limits(text: str, limit: str) -> None:
    found = "".join(stake(text).limits)
    assert found.startswith(limit)
    assert bool(found) == bool(limit)


def test_a_campaign_with_a_low_minimum_load_gets_a_note() -> None:
    assert stake(LOAD + RANDOM + "[checks]\nmin_share = 0.25").limits == (
        "the campaign expects its load to be throttled: 25% of the planned changes are enough",
    )
    assert stake(LOAD + RANDOM + "[checks]\nmin_share = 0.5").limits == ()
    assert stake(LOAD + RANDOM + "[checks]\nmin_ok = 1").min_share == 0.5
    nothing_planned = stake(LOAD + SCRIPT.format("kill", 'node = "n1"') + "[checks]\nmin_share = 0.1")
    assert nothing_planned.limits == ()


def lab(name: str) -> Any:
    return lab_named(name)


@pytest.mark.parametrize("nemesis", [RANDOM, RANDOM + '[checks]\nrequired_faults = ["kill"]\n'])
def test_a_world_that_lacks_a_fault_is_refused_with_those_that_do_not(nemesis: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_faults(campaign(nemesis), lab("process"), "this machine has no root")
    assert str(refused.value) == (
        "campaigns/x.toml: it needs partition-one, power-loss, which the process world cannot do: this machine has no "
        "root; worlds that can: namespaces, vagrant, inventory, simulation; or list what it can do without in "
        "[nemesis] optional_faults"
    )
    require_faults(campaign(nemesis), lab("namespaces"), "it was asked for")


def test_a_script_is_refused_where_the_world_lacks_one_of_its_faults() -> None:
    script = campaign(SCRIPT.format("set-clock", 'node = "n1"\njump_s = 5'))
    with pytest.raises(UsageError, match=r"needs clock-jump, .*; worlds that can: vagrant, inventory, simulation$"):
        require_faults(script, lab("namespaces"), "it was asked for")


def test_only_optional_faults_of_a_campaign_are_omitted() -> None:
    asked = campaign(RANDOM + 'optional_faults = ["power-loss", "partition-one"]\n')
    poor = SimpleNamespace(systems=None, workloads=None, name="process", capabilities=frozenset({"kill"}))
    require_faults(asked, poor, "")  # type: ignore[arg-type]
    assert asked.nemesis.scheduled(poor.capabilities) == ("kill",)
    assert asked.nemesis.left_out(poor.capabilities) == ("power-loss", "partition-one")
    assert asked.nemesis.scheduled(lab("namespaces").capabilities) == ("kill", "power-loss", "partition-one")
    nothing = SimpleNamespace(
        systems=None,
        workloads=None,
        name="bare",
        capabilities=frozenset({"power-loss"}),
        limits=["no kill: it has no signals"],
    )
    with pytest.raises(UsageError, match="needs kill, which the bare world cannot do: no kill: it has no signals"):
        require_faults(asked, nothing, "")  # type: ignore[arg-type]
