"""Delta debugging of campaigns: unneeded parts are removed, needed ones stay, and a script repeats the events."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun
from orchestrator.command.line import main
from orchestrator.command.shrink import whole_run
from orchestrator.errors import Interrupted, UsageError
from orchestrator.search.campaign_document import Document
from orchestrator.search.run_maker import read_summary, stored_plan
from orchestrator.search.shrinking import Budget, SpentError, ddmin, pairs, shrink
from orchestrator.search.steps_of_run import InjectedFault, InjectedFaults, injected_faults_of, steps_of
from orchestrator.store.directories import LABS, RunDirectory
from tests.campaign_text import campaign_text, random_faults
from tests.worlds.simulated import SimulatedRun, campaign, simulate

NODES = ("n1", "n2", "n3")
STEPS: list[dict[str, Any]] = [
    {"do": "kill", "node": "n1"},
    {"do": "wait", "seconds": 2.0},
    {"do": "start", "node": "n1"},
    {"do": "cut", "between": ["n1", "n2"]},
    {"do": "produce", "count": 8},
    {"do": "power-loss", "node": "n2"},
    {"do": "heal", "between": ["n1", "n2"]},
    {"do": "power-on", "node": "n2"},
]


def document(steps: list[dict[str, Any]], **workload: Any) -> Document:
    return Document(
        {
            "name": "small",
            "topology": {"nodes": 5},
            "workload": {"producers": 3, "consumers": 2, "partitions": 4, "rate": 80, **workload},
            "nemesis": {"kind": "steps", "step": steps},
            "cell": [{"name": "main"}],
        }
    )


class Judge:
    """Holds as long as something is so; counts what it was asked."""

    def __init__(self, holds: Callable[[Document], bool], most: int = 10_000) -> None:
        self._holds = holds
        self.left = most

    def __call__(self, candidate: Document) -> bool:
        if self.left == 0:
            raise SpentError
        self.left -= 1
        return self._holds(candidate)


@pytest.mark.parametrize("needed", [set(), {3}, {0, 7}, {1, 4, 6}, set(range(8))])
def test_ddmin_keeps_exactly_the_needed_elements(needed: set[int]) -> None:
    assert ddmin(range(8), lambda kept: needed <= set(kept)) == sorted(needed)


def test_ddmin_leaves_no_element_that_can_be_removed_alone() -> None:
    def holds(kept: list[int]) -> bool:  # one of two is enough, but not none
        return bool({2, 5} & set(kept)) and 7 in kept

    kept = ddmin(range(9), holds)
    assert holds(kept)
    assert not any(holds([other for other in kept if other != removed]) for removed in kept)


@pytest.mark.parametrize(("needed", "left"), [(False, "ext4"), (True, "strict")])
def test_an_unneeded_simulated_disk_is_removed_by_shrinking(needed: bool, left: str) -> None:
    drawn = document(STEPS[:1]).having("topology", {"nodes": 1, "filesystem": "strict"})
    judge = Judge(lambda candidate: not needed or candidate.data["topology"]["filesystem"] == "strict")
    assert shrink(drawn, judge).data["topology"]["filesystem"] == left


def test_a_fault_is_removed_together_with_its_end() -> None:
    assert pairs(STEPS) == [[0, 2], [3, 6], [5, 7]]
    assert pairs([{"do": "pause", "node": "n1"}]) == [[0]], "what nothing ends, the end of the run does"


def test_shrinking_keeps_only_the_parts_needed_for_the_anomaly() -> None:
    def holds(candidate: Document) -> bool:
        words = [step["do"] for step in candidate.steps]
        return "power-loss" in words and "produce" in words and candidate.nodes >= 3

    smallest = shrink(document(STEPS), Judge(holds))
    assert [step["do"] for step in smallest.steps] == ["produce", "power-loss"]
    assert next(step for step in smallest.steps if step["do"] == "produce")["count"] == 1
    assert smallest.nodes == 3
    load_left = smallest.workload
    assert (load_left["producers"], load_left["consumers"], load_left["partitions"]) == (0, 0, 1)
    assert load_left["rate"] == 80, "no node is left that would be slower"
    assert load_left["replication_factor"] == 3


def test_a_wait_that_is_needed_becomes_as_short_as_it_may() -> None:
    def holds(candidate: Document) -> bool:
        return sum(float(step.get("seconds", 0)) for step in candidate.steps) >= 0.4

    smallest = shrink(document(STEPS), Judge(holds))
    assert smallest.steps == [{"do": "wait", "seconds": 0.5}]


def test_adjacent_waits_are_merged() -> None:
    def holds(candidate: Document) -> bool:
        return sum(float(step.get("seconds", 0)) for step in candidate.steps) >= 2.9

    waits: list[dict[str, Any]] = [{"do": "wait", "seconds": 1.0}] * 3
    smallest = shrink(document([waits[0], STEPS[0], waits[1], STEPS[2], waits[2]]), Judge(holds))
    assert smallest.steps == [{"do": "wait", "seconds": 3.0}]


MOMENTS: list[dict[str, Any]] = [
    {"fault": kind, "at_s": at_s, "duration_s": 1.5, "nodes": ["n1"]}
    for kind, at_s in (("kill", 1.25), ("pause", 4.5), ("power-loss", 7.125), ("kill", 11.0))
]


@pytest.mark.parametrize("needed", [{7.125}, {1.25, 11.0}, set[float]()])
def test_the_faults_of_a_schedule_keep_their_moments(needed: set[float]) -> None:
    def holds(candidate: Document) -> bool:
        return needed <= {moment["at_s"] for moment in candidate.moments}

    whole = document([], duration_s=20.0).with_moments(MOMENTS, overlap=True)
    smallest = shrink(whole, Judge(holds))
    assert {moment["at_s"] for moment in smallest.moments} == needed or len(smallest.moments) == 1
    assert smallest.data["nemesis"]["overlap"] is True
    assert smallest.workload["duration_s"] == math.ceil(smallest.moments[-1]["at_s"] + 1.5)


@pytest.mark.parametrize(("kind", "nodes"), [("disk-flip", 3), ("kill", 1)])
def test_replicas_that_make_up_for_a_disk_stay(kind: str, nodes: int) -> None:
    moment = {"fault": kind, "at_s": 1.0, "duration_s": 1.0, "nodes": ["n1"]}
    whole = document([], replication_factor=3, duration_s=9.0).with_moments([moment], overlap=False)
    assert shrink(whole, Judge(lambda _: True)).nodes == nodes


def test_a_budget_ends_the_search() -> None:
    with pytest.raises(SpentError):
        shrink(document(STEPS), Judge(lambda _: True, most=3))
    budget = Budget.of("2")
    budget.spend()
    budget.spend()
    with pytest.raises(SpentError):
        budget.spend()
    assert Budget.of("10m").seconds == 600
    for wrong in ("0", "ten", "5d", "-3"):
        with pytest.raises(UsageError, match="--budget"):
            Budget.of(wrong)


@pytest.mark.parametrize(
    ("fault", "begins", "ends"),
    [
        (("kill", ("n2",), {}), {"do": "kill", "node": "n2"}, {"do": "start", "node": "n2"}),
        (("pause", ("n1",), {"aim": "any"}), {"do": "pause", "node": "n1"}, {"do": "resume", "node": "n1"}),
        (
            ("power-loss", ("n3",), {"tear": 77}),
            {"do": "power-loss", "node": "n3", "tear": True},
            {"do": "power-on", "node": "n3"},
        ),
        (
            ("partition-leader", ("n1",), {"direction": "out"}),
            {"do": "cut", "between": [["n1"], ["n2", "n3"]], "one_way": True},
            {"do": "heal", "between": [["n1"], ["n2", "n3"]]},
        ),
        (
            ("partition-halves", ("n2",), {"direction": "in"}),
            {"do": "cut", "between": [["n1", "n3"], ["n2"]], "one_way": True},
            {"do": "heal", "between": [["n1", "n3"], ["n2"]]},
        ),
        (
            ("reject", ("n1",), {"direction": "both"}),
            {"do": "reject", "between": [["n1"], ["n2", "n3"]]},
            {"do": "heal", "between": [["n1"], ["n2", "n3"]]},
        ),
    ],
)
def test_a_fault_becomes_the_steps_that_inject_and_heal_it(
    fault: tuple[str, tuple[str, ...], dict[str, Any]], begins: dict[str, Any], ends: dict[str, Any]
) -> None:
    kind, targets, parameters = fault
    injected = InjectedFaults((InjectedFault(kind, targets, 1.5, 3.0, parameters),), 4.0)
    expected = [{"do": "wait", "seconds": 1.5}, begins, {"do": "wait", "seconds": 1.5}, ends]
    assert steps_of(injected, NODES) == [*expected, {"do": "wait", "seconds": 1.0}]


def test_overlapping_faults_overlap_again_and_all_nodes_lose_power_together() -> None:
    injected = InjectedFaults(
        (
            InjectedFault("kill", ("n1",), 1.0, 4.0, {}),
            InjectedFault("power-loss-all", ("n2", "n3"), 2.0, 3.0, {"tear": None}),
        ),
        4.0,
    )
    words = [(step["do"], step.get("node", step.get("seconds"))) for step in steps_of(injected, NODES)]
    assert words == [
        ("wait", 1.0),
        ("kill", "n1"),
        ("wait", 1.0),
        ("power-loss", "n2"),
        ("power-loss", "n3"),
        ("wait", 1.0),
        ("power-on", "n2"),
        ("power-on", "n3"),
        ("wait", 1.0),
        ("start", "n1"),
    ]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    """One failed run, for all tests to copy."""
    return simulate(campaign("bounce-unseen"), tmp_path_factory.mktemp("store"), cell="mutated", seeds=[2])


@pytest.fixture
def bounced(failed: SimulatedRun, tmp_path: Path) -> SimulatedRun:
    shutil.copytree(failed.path.parents[1], tmp_path, symlinks=True, dirs_exist_ok=True)
    return SimulatedRun(tmp_path / failed.path.relative_to(failed.path.parents[1]))


RANDOM = campaign_text(
    "random",
    topology={"nodes": 3},
    workload={"partitions": 1, "producers": 1, "consumers": 1, "rate": 20, "duration_s": 8},
    nemesis=random_faults(
        "kill", "pause", "partition-one", "disk-flip", "power-loss-all", interval_s=[0.2, 0.4], duration_s=[0.3, 0.9]
    ),
    checks={"min_ok": 1, "min_share": 0.01, "upper_bound": "strict"},
)


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    """A run with a random schedule."""
    path = tmp_path_factory.mktemp("random")
    (path / "random.toml").write_text(RANDOM)
    return simulate(path / "random.toml", path / "store", seeds=[3])


def counters(anomalies: Iterable[Any]) -> Counter[str]:
    return Counter(anomaly.name for anomaly in anomalies)


def test_the_schedule_of_a_run_repeats_it(random: SimulatedRun, tmp_path: Path) -> None:
    directory = RunDirectory(random.path)
    whole = whole_run(directory, stored_plan(directory), "lost-acknowledged-write")
    assert whole.schedule is not None
    assert {moment["fault"] for moment in whole.schedule.moments} >= {"power-loss-all", "disk-flip"}
    path = tmp_path / "schedule.toml"
    path.write_text(whole.schedule.text())
    again = simulate(path, tmp_path / "store", seeds=[3])
    assert read_summary(again.path)["simulated_s"] == read_summary(random.path)["simulated_s"]
    assert counters(again.verdict.anomalies) == counters(random.verdict.anomalies) != {}


def test_a_run_without_faults_is_reduced_as_steps(tmp_path: Path) -> None:
    path = tmp_path / "quiet.toml"
    path.write_text(RANDOM[: RANDOM.index("[nemesis]")] + RANDOM[RANDOM.index("[checks]") :])
    directory = RunDirectory(simulate(path, tmp_path / "store", seeds=[3]).path)
    whole = whole_run(directory, stored_plan(directory), "lost-acknowledged-write")
    assert whole.schedule is None
    assert whole.steps is not None
    assert [step["do"] for step in whole.steps.steps] == ["wait"]


def test_a_failure_that_needs_its_moments_is_reduced_as_a_schedule(
    random: SimulatedRun, tmp_path: Path, fake: type["FakeMaker"], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tried: list[tuple[str, int]] = []

    def make(_: FakeMaker, planned: PlannedRun) -> Any:
        nemesis = planned.campaign.nemesis
        tried.append((nemesis.kind, planned.seed))
        shows = nemesis.kind == "schedule" and "pause" in nemesis.faults
        anomalies = ("unexpected-exit",) if shows else ()
        verdict = SimpleNamespace(verdict="fail" if shows else "pass", reasons=())
        return SimpleNamespace(verdict=verdict, anomalies=anomalies, finished=True)

    monkeypatch.setattr(fake, "make", make)
    monkeypatch.setattr(
        "orchestrator.command.shrink.read_made", lambda _: SimpleNamespace(anomalies=["unexpected-exit"])
    )
    output = tmp_path / "smaller.toml"
    assert shrunk(random, "--output", str(output), "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["kind"], content["faults"]) == ("schedule", 1)
    assert tried[:2] == [("steps", 3), ("steps", 4)], "steps, which every world can run, come first"
    search = tried[2:-12]
    assert set(search) == {("schedule", 3)}, "its moments belong to its seed"
    assert tried[-12:-10] == [("steps", 3), ("steps", 4)], "the smallest schedule may do as steps"
    (moment,) = load(output).nemesis.moments
    assert moment.fault == "pause"
    assert moment.nodes


def test_a_journal_gives_the_injected_faults(bounced: SimulatedRun) -> None:
    injected = injected_faults_of(bounced.path)
    assert [fault.kind for fault in injected.faults] == ["partition-one", "partition-one", "power-loss", "kill"]
    assert all(0 <= fault.begin_s < fault.end_s <= injected.lasted_s for fault in injected.faults)
    journal = bounced.path / "history" / "journal.jsonl"
    first, rest = journal.read_text().split("\n", 1)
    for damaged in ("{half of it", "[]\n", "{}\n" + rest, first + "\n", rest):
        journal.write_text(damaged)
        with pytest.raises(UsageError, match=r"journal\.jsonl: cannot be read|did not reach the end of its load"):
            injected_faults_of(bounced.path)


@pytest.mark.rotating(6, among="long simulations")
@pytest.mark.kills("bounce_unseen")
def test_a_failed_run_is_shrunk_to_a_campaign_with_the_same_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = 'node = "controller"\nas = "C"\n'
    more = "".join(f'\n[[nemesis.step]]\ndo = "{do}"\nnode = "C"\n' for do in ("pause", "resume"))
    longer = tmp_path / "longer.toml"
    longer.write_text(campaign("bounce-unseen").read_text().replace(named, named + more))
    failed = simulate(longer, tmp_path, cell="mutated", seeds=[2])
    output = tmp_path / "smaller.toml"
    words = ["--budget", "16", "--tries", "1", "--output", str(output), "--store", str(tmp_path), "--quiet", "--json"]
    capsys.readouterr()
    assert main(["shrink", str(failed.path), *words]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["ended"] == "the budget is used up"
    assert content["faults_before"] == 5
    assert content["faults"] < 5, "a pause of the controller is not needed"
    assert content["steps"] < content["steps_before"] == 18
    assert {"simulation", "namespaces"} <= set(content["worlds"])
    assert content["shown"] >= 5, "of ten seeds that had no part in it"
    smaller = load(output)
    (cell,) = smaller.cells
    assert (cell.expect.verdict, cell.expect.anomaly) == ("fail", "lost-acknowledged-write")
    assert simulate(output, tmp_path).verdict.met
    assert main(["run", str(output), "--world", "namespaces", "--dry-run"]) == 0


class FakeMaker:
    """Every run shows the anomaly; the user asks to stop before the one of the number `stops_at`."""

    stops_at = -1
    verdict = "fail"
    seeds: ClassVar[list[int]] = []

    def __init__(self, *_: object) -> None:
        type(self).seeds = []

    def make(self, planned: PlannedRun) -> Any:
        if len(self.seeds) == self.stops_at:
            raise Interrupted
        self.seeds.append(planned.seed)
        verdict = SimpleNamespace(verdict=self.verdict, reasons=("the disk is full",))
        return SimpleNamespace(verdict=verdict, anomalies=("lost-acknowledged-write",), finished=True)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeMaker]:
    monkeypatch.setattr("orchestrator.command.shrink.Maker", FakeMaker)
    FakeMaker.seeds = []
    return FakeMaker


def shrunk(run: SimulatedRun, *words: str) -> int:
    return main(["shrink", str(run.path), "--store", str(run.path.parents[1]), "--quiet", *words])


def test_seeds_that_chose_the_result_do_not_confirm_it(bounced: SimulatedRun, fake: type[FakeMaker]) -> None:
    assert shrunk(bounced, "--budget", "9", "--tries", "3") == 0
    assert set(fake.seeds[:-10]) <= {2, 3, 4}
    assert fake.seeds[-10:] == list(range(5, 15))
    assert "shown in the simulation by 10 of 10 other seeds" in (bounced.path / "shrunk.toml").read_text()


@pytest.mark.parametrize(
    ("words", "stops_at", "code", "message"),
    [
        (["--budget", "1"], -1, 2, "the budget is used up before"),
        (["--budget", "9"], 1, 130, "interrupted; nothing was written"),
    ],
)
def test_the_reason_for_a_missing_result_is_reported(
    words: list[str], stops_at: int, code: int, message: str, bounced: SimulatedRun, fake: type[FakeMaker],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(fake, "stops_at", stops_at)
    assert shrunk(bounced, *words) == code
    assert message in capsys.readouterr().out
    assert not (bounced.path / "shrunk.toml").exists()
    assert not (bounced.path.parents[1] / LABS).exists()


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        ("pass", "as a campaign of steps with 2 seeds it does not reproduce"),
        ("unknown", "no run shows it, and 2 were not decided: seed 2: the disk is full"),
    ],
)
def test_an_absent_and_an_undecided_anomaly_are_reported_differently(
    verdict: str, message: str, bounced: SimulatedRun, fake: type[FakeMaker], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(fake, "verdict", verdict)
    assert shrunk(bounced) == 2
    assert message in capsys.readouterr().out


@pytest.mark.parametrize("stops_at", [4, 12], ids=["searching", "confirming"])
def test_an_interrupted_search_keeps_the_smallest_result(
    stops_at: int, bounced: SimulatedRun, fake: type[FakeMaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "stops_at", stops_at)
    assert shrunk(bounced, "--budget", "8") == 130
    text = (bounced.path / "shrunk.toml").read_text()
    assert load(bounced.path / "shrunk.toml").name.startswith("bounce-unseen-shrunk-")
    assert "interrupted" in text
    assert "other seeds" not in text


@pytest.mark.parametrize(
    ("spoil", "words", "complaint"),
    [
        ("verdict.json", [], "has no readable verdict; analyze it first: "),
        ("", ["--output", "{run}"], "Is a directory; give another file with --output"),
        ("", ["--output", "{run}/none/x.toml"], "No such file or directory"),
        ("", ["--tries", "0"], "'0' is not a number of at least 1"),
        ("", ["--tries", "-1"], "'-1' is not a number of at least 1"),
    ],
)
def test_impossible_input_is_refused_before_the_search(
    spoil: str, words: list[str], complaint: str, bounced: SimulatedRun, fake: type[FakeMaker],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if spoil:
        (bounced.path / spoil).write_text("{half of it")
    assert shrunk(bounced, *(word.format(run=bounced.path) for word in words)) == 64
    assert complaint in capsys.readouterr().err
    assert fake.seeds == []


def test_a_store_in_which_no_run_can_be_made_is_refused(
    bounced: SimulatedRun, fake: type[FakeMaker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(tmp_path / LABS, ignore_errors=True)
    (tmp_path / LABS).write_text("in the way")
    assert shrunk(bounced) == 64
    assert "cannot be made: Not a directory; runs are made there: use a writable store" in capsys.readouterr().err
    assert fake.seeds == []


def test_a_run_without_a_verdict_must_be_analyzed_first(
    bounced: SimulatedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    (bounced.path / "verdict.json").unlink()
    assert shrunk(bounced) == 64
    assert f"analyze {bounced.path}" in capsys.readouterr().err


def test_a_run_without_an_anomaly_cannot_be_shrunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(campaign("bounce-unseen"), tmp_path, cell="fixed", seeds=[2])
    assert main(["shrink", "latest", "--store", str(tmp_path)]) == 64
    assert "its verdict has no anomaly" in capsys.readouterr().err
    assert main(["shrink", "latest", "--store", str(tmp_path), "--budget", "x"]) == 64
