"""Swarm on systems other than our own broker: what their descriptions declare is drawn, and mistakes are refused."""

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.evidence.meetings import met
from history.journal.timeline import CONFIRMED, FaultSpan
from nemeses import plan_schedule
from orchestrator.campaign.parser import load
from orchestrator.campaign.profiles import PROFILES
from orchestrator.campaign.swarm import LENGTHS, as_text, draw
from orchestrator.command.line import main
from orchestrator.errors import UsageError
from orchestrator.running.runner import require_faults
from orchestrator.worlds.selection import lab_named
from systems import load_system
from systems.registry import known
from tests.campaign_text import campaign_text, random_faults
from tests.orchestrator.test_own_system_mistakes import replaced
from tests.systems.test_etcd_runs import FAKE

CAMPAIGNS: Final = Path(__file__).resolve().parents[2] / "campaigns"
DELIVERED: Final = {name: load(CAMPAIGNS / f"{name}.toml") for name in ("etcd-swarm", "kafka-swarm")}
RANGES: Final = """
[roles.member.draws]
timeouts.election = "election-timeout"
timeouts.lag = "lag"
[roles.member.draws.ranges]
lag = [300, 800]
heartbeat-interval = [20, 40]
election-timeout = [500, 900]
[roles.member.draws.profiles.anything]
heartbeat-interval = [60, 70]
"""
SWARM: Final = campaign_text(
    "mine",
    system={"path": "fake"},
    topology={"nodes": 1, "world": "process"},
    swarm={"nodes": [1, 1], "rate": [50, 80], "duration_s": [5, 5]},
    workload={"kind": "register"},
    client={"client_class": "CLIENT:FirstSeen", "options": {"stale": "no"}},
    nemesis=random_faults("pause", interval_s=[0.1, 0.2], duration_s=[0.1, 0.2]),
    checks={"min_ok": 1, "min_queries": 1, "min_share": 0.01},
    seeds={"first": 3},
)


@pytest.mark.parametrize("name", DELIVERED)
@given(seed=st.integers(0, 2**40))
def test_a_draw_is_within_the_declared_ranges(name: str, seed: int) -> None:
    campaign = DELIVERED[name]
    drawn = draw(campaign, seed)
    assert drawn == draw(campaign, seed)
    assert campaign.swarm is not None
    assert drawn.swarm is None
    assert campaign.swarm.nodes[0] <= drawn.topology.nodes <= campaign.swarm.nodes[1]
    assert drawn.topology.filesystem == campaign.topology.filesystem
    assert drawn.workload.replication_factor == campaign.workload.replication_factor
    assert PROFILES[drawn.profile].flushes
    assert not drawn.nemesis.overlap, "the members start only with a majority"
    for role, draws in campaign.draws.items():
        common, stated = drawn.settings[role].common, campaign.settings[role].common if campaign.settings else {}
        assert stated.items() <= common.items()
        assert common.keys() == draws.ranges.keys() | stated.keys()
        for key, bounds in {**draws.ranges, **draws.profiles.get(drawn.profile, {})}.items():
            assert bounds[0] <= int(common[key]) <= bounds[1]
        for name_of, key in draws.timeouts.items():
            assert drawn.timeouts_s[name_of] == pytest.approx(int(common[key]) * draws.timeout_unit_s)
    nemesis = drawn.nemesis
    shares = [tuple(length / timeout for length in nemesis.duration_s) for timeout in drawn.timeouts_s.values()]
    assert any(share == pytest.approx(LENGTHS, rel=0.01) for share in shares), "faults are as long as a time-out"
    assert set(nemesis.faults) <= set(campaign.nemesis.faults)
    schedule = plan_schedule(
        seed,
        nemesis.faults,
        total_s=drawn.workload.duration_s,
        interval_s=nemesis.interval_s,
        duration_s=nemesis.duration_s,
        overlap=nemesis.overlap,
    )
    assert {plan.kind for plan in schedule} == set(nemesis.faults)


@given(st.tuples(st.floats(1e-6, 1e15), st.floats(1e-6, 1e15)).map(sorted), st.floats(0, 1))
def test_a_number_as_text_is_within_its_bounds(bounds: list[float], share: float) -> None:
    low, high = bounds
    text = as_text(min(max(low, low + share * (high - low)), high), (low, high))
    assert low <= float(text) <= high
    assert ("." in text or "e" in text) == (low % 1 != 0 or high % 1 != 0)


@pytest.mark.parametrize("name", DELIVERED)
def test_every_kind_and_several_profiles_are_drawn(name: str) -> None:
    drawn = [draw(DELIVERED[name], seed) for seed in range(200)]
    assert {kind for each in drawn for kind in each.nemesis.faults} == set(DELIVERED[name].nemesis.faults)
    assert {each.profile for each in drawn} >= {"anything", "rare-quorum", "power-loss", "long-partitions"}


@pytest.mark.parametrize("name", known())
def test_each_system_that_comes_with_brownout_declares_its_draws(name: str) -> None:
    draws = [role.draws for role in load_system(name).description.roles.values() if role.draws.ranges]
    assert len(draws) == 1
    assert draws[0].timeouts


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A campaign with [swarm] of a user's own system."""
    fake, here = tmp_path / "fake", Path(__file__).resolve().parents[1] / "systems"
    fake.mkdir()
    (fake / "system.toml").write_text(FAKE + RANGES)
    (fake / "fake.py").write_text("from systems.etcd.etcd import Etcd\n")
    path = tmp_path / "mine.toml"
    path.write_text(SWARM.replace("CLIENT", str(here / "stale_etcd_client.py")))
    return path


SYSTEM: Final = "fake/system.toml"


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        (SYSTEM, RANGES, "", "mine.toml:8: swarm: FAKE declares no ranges of settings to draw from; add [roles.ROLE"),
        (
            SYSTEM,
            'timeouts.election = "election-timeout"\ntimeouts.lag = "lag"',
            "",
            "FAKE declares no timeouts of settings",
        ),
        (
            SYSTEM,
            "[500, 900]",
            "[900, 500]",
            "[roles.member.draws.ranges] election-timeout: the upper bound 500 is smaller",
        ),
        (SYSTEM, "[500, 900]", "500", "system.toml:18: [roles.member.draws.ranges] election-timeout"),
        (SYSTEM, "[500, 900]", '["a", 900]', "ranges] election-timeout: ['a', 900] is not a pair [low, high]"),
        (SYSTEM, "[500, 900]", "[0, 900]", "election-timeout: 0 is smaller than 1e-06"),
        (SYSTEM, '"election-timeout"', '"elections"', "timeouts] election: 'elections' has no range; add it to"),
        (SYSTEM, "timeouts.el", "time_out.el", "time_out"),
        (SYSTEM, "ranges]", "ranges]\nlag=[1, 2]\n[roles.member.draws.knobs]", "draws.knobs] lag: is a time-out"),
        (
            SYSTEM,
            "profiles.anything",
            "knobs]\nname = [1, 2]\n[roles.member.draws.profiles.anything",
            "draws.knobs] name",
        ),
        (SYSTEM, "profiles.anything", "profiles.rare", "draws.profiles.rare] 'rare' is not a profile"),
        (SYSTEM, "interval = [60, 70]", "rate = [1, 2]", "heartbeat-rate: has no range outside of the profile"),
        (
            SYSTEM,
            "[20, 40]",
            "[20, 40]\nname = [1, 2]",
            "draws.ranges] name: the run sets this flag itself; leave it out",
        ),
        ("mine.toml", "nodes = [1, 1]", "nodes = [1, 1]\nvoters = [1, 1]", "[swarm] voters: nodes of fake-etcd have"),
        ("mine.toml", "nodes = 1\n", "nodes = 3\n", "[swarm] nodes: [topology] nodes is 3; set it to the most"),
        ("mine.toml", "[swarm]", "[swarm]\nsizes = 3", "[swarm] unknown key 'sizes'; known: "),
        ("mine.toml", "[nemesis]", '[member]\nlag = "2 s"\n[nemesis]', "[member] lag: '2 s' is not a number"),
        ("mine.toml", '"pause"', '"old-disk"', "[nemesis] faults: a cluster of 1 with one replica per partition"),
    ],
)
def test_a_swarm_that_cannot_be_drawn_is_refused(
    mine: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, complaint: str
) -> None:
    replaced(file, old, new)(mine.parent)
    assert main(["run", str(mine), "--dry-run"]) == 64
    assert complaint.replace("FAKE", str(mine.parent / SYSTEM)) in capsys.readouterr().err


@pytest.mark.parametrize(("nodes", "is_refused"), [("[1, 1]", False), ("[1, 2]", True)])
def test_a_lab_with_the_same_machines_for_all_runs_has_one_number_of_nodes(
    mine: Path, nodes: str, is_refused: bool
) -> None:
    text = (
        mine.read_text().replace("nodes = [1, 1]", f"nodes = {nodes}").replace("nodes = 1\n", f"nodes = {nodes[4]}\n")
    )
    mine.write_text(text)
    refused = pytest.raises(
        UsageError, match=r"all runs of the vagrant world have the same machines; set \[swarm\] nodes"
    )
    with refused if is_refused else contextlib.nullcontext():
        require_faults(load(mine), lab_named("vagrant"), "it was asked for")
    require_faults(load(mine), lab_named("process"), "it was asked for")


@pytest.mark.rotating(13, among="real-time campaigns")
def test_a_run_of_ones_own_system_is_as_drawn_and_lists_its_meetings(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "store")]
    drawn = draw(load(mine), 3)
    assert main(["run", str(mine), *store, "--engine", "in-process", "--no-plots"]) == 0
    error = capsys.readouterr().err
    (run,) = (tmp_path / "store" / "mine").glob("*-main-3")
    stored = tomllib.loads((run / "run.toml").read_text())
    assert stored["profile"] == drawn.profile
    assert stored["settings"]["member"] == drawn.settings["member"].common
    assert stored["timeouts_s"] == drawn.timeouts_s
    assert tuple(stored["nemesis"]["faults"]) == drawn.nemesis.faults
    lengths = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in drawn.timeouts_s.items())
    line = f"profile {drawn.profile}: 1 node, {lengths}; met: pause "
    assert line in error
    assert main(["gate", "mine", *store]) == 0
    capsys.readouterr()
    assert main(["list", *store, "--json", "--search", drawn.profile]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["drawn"].startswith(line)
    assert line in (run / "report.html").read_text()


def span(kind: str, start_s: float, end_s: float, *targets: str) -> FaultSpan:
    return FaultSpan(kind, targets, start_s, end_s, CONFIRMED)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([span("pause", 0, 2, "n1")], ["pause 1"]),
        ([span("pause", 0, 2.5, "n1")], ["pause 1", "1 fault longer than session"]),
        ([span("kill", 0, 1, "n1"), span("kill", 2, 3, "n2")], ["kill 2"]),
        (
            [span("kill", 0, 2, "n1"), span("power-loss", 1, 2, "n2")],
            ["kill 1", "power-loss 1", "1 fault during another", "1 fault that left a majority without power"],
        ),
        (
            [span("power-loss-all", 0, 1, "n1", "n2", "n3")],
            ["power-loss-all 1", "1 fault that left a majority without power"],
        ),
        (
            [span("stop", 0, 1, "n1"), span("kill", 0.5, 1, "n2")],
            ["kill 1", "stop 1", "1 fault during another", "1 fault that left a majority down"],
        ),
        ([FaultSpan("kill", ("n1",), 0, 9, "inconclusive")], []),
    ],
)
def test_meetings_are_counted(spans: list[FaultSpan], expected: list[str]) -> None:
    assert met(spans, {"session": 2.0}, 3, 0) == expected
    assert met(spans, {"session": 2.0}, 3, 2) == [*expected, "2 elections"]
