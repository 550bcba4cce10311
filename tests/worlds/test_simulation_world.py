"""The simulated world: the campaigns of every other world, unchanged, and their verdicts."""

from pathlib import Path

import pytest

from broker.server.dispatch import Dispatcher
from orchestrator.command.line import main
from simulator.loop import VirtualLoop
from tests.campaign_text import IMPATIENT, campaign_text, random_faults
from tests.worlds.simulated import campaign, simulate

CELLS = [
    ("kip101-scenario1", "mutated", "lost-acknowledged-write"),
    ("kip101-scenario1", "bounce-unseen", None),
    ("kip101-scenario1", "fixed", None),
    ("kip101-scenario2", "mutated", "replica-divergence"),
    ("kip101-scenario2", "fixed", None),
    ("kip279-fast-failovers", "fixed", None),
    ("bounce-unseen", "mutated", "lost-acknowledged-write"),
    ("bounce-unseen", "fixed", None),
    ("vote-not-persisted", "mutated", "vote-not-on-disk"),
    ("vote-not-persisted", "fixed", None),
]
SHORT = campaign_text(
    "short",
    topology={"nodes": 3, "world": "simulation"},
    broker=IMPATIENT,
    workload={"partitions": 2, "producers": 1, "consumers": 1, "rate": 60, "duration_s": 10},
    nemesis=random_faults(
        "kill", "pause", "power-loss-all", "partition-one", "stop", interval_s=[0.3, 1.0], duration_s=[0.5, 1.5]
    ),
    # there is a fault nearly all the time
    checks={"min_ok": 20, "min_share": 0.3},
)


TIMED = """
name = "timed"
[topology]
nodes = 1
world = "simulation"
[workload]
partitions = 1
replication_factor = 1
topic_settings = { "segment.ms" = 1000 }
producers = 1
consumers = 0
rate = 20
duration_s = 6
[nemesis]
kind = "none"
[checks]
min_ok = 20
"""


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


@pytest.mark.rotating(14)
@pytest.mark.conforms("K101-14", "K101-7", "H12", "K595-19")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("name", "cell", "anomaly"), CELLS, ids=lambda each: str(each))
def test_a_scenario_has_the_verdict_that_it_has_on_nodes(
    name: str, cell: str, anomaly: str | None, seed: int, tmp_path: Path
) -> None:
    run = simulate(campaign(name), tmp_path, cell=cell, seeds=[seed])
    verdict = run.verdict
    assert verdict.met, (verdict.verdict, verdict.reasons)
    assert verdict.world == "simulation"
    assert anomaly is None or anomaly in run.anomalies


@pytest.mark.rotating(3, among="simulated campaigns")
@pytest.mark.parametrize("cell", ["mutated", "fixed"])
def test_a_scenario_with_a_power_cut_without_losses_is_unknown_with_a_reason(cell: str, tmp_path: Path) -> None:
    text = campaign("kip101-scenario2").read_text()
    early = text.replace(
        '[[nemesis.step]]\ndo = "power-loss"\nnode = "n2"',
        '[[nemesis.step]]\ndo = "sync"\nnode = "n2"\n\n[[nemesis.step]]\ndo = "power-loss"\nnode = "n2"',
    )
    assert early != text
    (tmp_path / "early.toml").write_text(early)
    verdict = simulate(tmp_path / "early.toml", tmp_path, cell=cell, seeds=[1]).verdict
    assert verdict.verdict == "unknown"
    assert any(
        "(power-loss) is mismatch" in reason and "n2: its disk kept all of log/log-0/00000000000000000000.log" in reason
        for reason in verdict.reasons
    ), verdict.reasons


@pytest.mark.rotating(3, among="simulated campaigns")
def test_random_faults_are_injected_and_proven_as_on_nodes(short: Path, tmp_path: Path) -> None:
    run = simulate(short, tmp_path)
    assert run.verdict.verdict == "pass", run.verdict.reasons
    seen = {(line["kind"]) for line in run.of("fault_invoked")}
    assert seen == {"kill", "pause", "power-loss-all", "partition-one", "stop"}
    assert {line["status"] for line in run.of("fault_injected")} == {"confirmed"}
    marks = [line["evidence"]["healed"]["detail"] for line in run.of("fault_healed") if "n1" in str(line)]
    assert any("synced_mark" in str(mark) for mark in marks), "a power cut shows what the disk kept"
    assert run.of("phase")[-1]["name"] == "done"
    for untrue in (
        "clients are simulated too: librdkafka is not exercised",
        "power-loss-all cuts all nodes at once",
    ):
        assert any(untrue in limit for limit in run.verdict.limits), "smaller guarantees than elsewhere are reported"


@pytest.mark.rotating(6, among="long simulations")
def test_a_minute_takes_seconds(tmp_path: Path) -> None:
    run = simulate(campaign("demo"), tmp_path)
    assert run.verdict.met, run.verdict.reasons
    assert run.summary["simulated_s"] > 60
    assert (run.path / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("kafka-4-chaos", "runs brownout only"),
        ("etcd-chaos", "runs brownout only"),
    ],
)
def test_features_outside_of_the_simulation_are_refused(
    name: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(campaign(name)), "--world", "simulation", "--dry-run"]) == 64
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "world", "complaint"),
    [
        ("swarm", "process", "which the process world cannot do"),
        ("swarm", "namespaces", "which the namespaces world cannot do"),
        ("mutants/administration", "process", "the process world has none"),
        ("rotting", "process", "which the process world cannot do"),
        ("rotting", "namespaces", "worlds that can: simulation;"),
    ],
)
def test_features_of_the_simulation_are_refused_elsewhere(
    name: str, world: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rotting = tmp_path / "rotting.toml"
    rotting.write_text(SHORT.replace("faults = [", 'faults = ["disk-flip", "disk-hang", ', 1))
    path = rotting if name == "rotting" else campaign(name)
    assert main(["run", str(path), "--world", world, "--dry-run"]) == 64
    assert complaint in capsys.readouterr().err


@pytest.mark.rotating(3, among="simulated campaigns")
def test_an_uncaught_exception_makes_a_run_unknown(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = VirtualLoop.run_until

    def failing(loop: VirtualLoop, *arguments: object) -> bool:
        if loop.time() > 5.0 and not loop.unhandled:
            loop.call_exception_handler({"message": "a callback failed", "exception": KeyError("planted")})
        return original(loop, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(VirtualLoop, "run_until", failing)
    verdict = simulate(short, tmp_path, seeds=[7]).verdict
    assert verdict.verdict == "unknown"
    assert any("planted" in reason and "seed" in reason for reason in verdict.reasons), verdict.reasons


@pytest.mark.rotating(3, among="simulated campaigns")
def test_a_stalled_world_ends_with_its_observations(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.loop.LIVELOCK", 10_000)
    original = Dispatcher.stop

    def turning(dispatcher: Dispatcher) -> None:
        import asyncio

        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        original(dispatcher)

    monkeypatch.setattr(Dispatcher, "stop", turning)
    verdict = simulate(short, tmp_path).verdict
    assert verdict.verdict == "fail"
    assert "stands-still" in {anomaly.name for anomaly in verdict.anomalies}
    assert any("stopped making progress" in reason for reason in verdict.reasons), verdict.reasons


WEAK = """
name = "weak"
[topology]
world = "simulation"
[workload]
partitions = 1
producers = 0
consumers = 0
duration_s = 0
[nemesis]
kind = "steps"
[[nemesis.step]]
do = "produce"
count = 5
acks = {}
[checks]
min_ok = 5
"""


@pytest.mark.rotating(3, among="simulated campaigns")
@pytest.mark.parametrize(("acks", "verdict", "kept", "weak"), [('"all"', "pass", 6, 0), ("1", "unknown", 1, 5)])
def test_only_operations_protected_by_a_rule_count_for_a_minimum(
    acks: str, verdict: str, kept: int, weak: int, tmp_path: Path
) -> None:
    """Five appends of a script, and one of the probe."""
    path = tmp_path / "weak.toml"
    path.write_text(WEAK.format(acks))
    found = simulate(path, tmp_path).verdict
    assert found.verdict == verdict, found.reasons
    assert (found.stats["acknowledged"], found.stats["acknowledged_weak"]) == (kept, weak)


def test_records_have_the_time_of_the_run(tmp_path: Path) -> None:
    """With the same timestamp in all records, `segment.ms` would complete no segment."""
    path = tmp_path / "timed.toml"
    path.write_text(TIMED)
    run = simulate(path, tmp_path / "store")
    assert run.verdict.verdict == "pass", run.verdict.reasons
    segments = list(run.path.glob("nodes/n1/data/log-0/*.log"))
    assert 4 <= len(segments) <= 8, segments
