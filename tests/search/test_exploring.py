"""The choices, state, files and report of an exploration."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from analysis.engines.spark import SparkHandle, java_version
from analysis.engines.spark_errors import SparkUnavailableError
from analysis.evidence.run_toml import SIMULATION
from nemeses import KINDS
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.parser import load, parse
from orchestrator.campaign.steps import WaitStep
from orchestrator.campaign.swarm import draw, must_be_apart
from orchestrator.command.explore import FIRST, RUNS, comparison, report_content
from orchestrator.command.line import main
from orchestrator.command.shrink import whole_run
from orchestrator.errors import Interrupted
from orchestrator.running.runner import plan_invocation
from orchestrator.search.campaign_document import document_of
from orchestrator.search.coverage import Stay
from orchestrator.search.exploring import (
    GUIDED,
    RANDOM,
    ROUND,
    SUFFIX,
    Arm,
    ExploredCell,
    Head,
    cheapest,
    explore,
    strikeable,
)
from orchestrator.search.run_maker import WHERE, stored_plan
from orchestrator.search.steps_of_run import InjectedFault, InjectedFaults
from orchestrator.search.task import Attempted, ExplorationTask, attempt, spread
from orchestrator.store.directories import LABS, RunDirectory, Store
from simulator.loop import VirtualLoop
from systems.toml_tables import TomlSource as TomlSource
from tests.search.imagined import SHORT, World, arm, run_explore, schedule
from tests.worlds.simulated import SimulatedRun, campaign, simulate


@pytest.mark.parametrize(("option", "number"), [("--runs N", RUNS), ("--round N", ROUND), ("--first SEED", FIRST)])
def test_the_help_states_the_default_of_each_option(
    option: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["explore", "--help"])
    _, _, behind = " ".join(capsys.readouterr().out.split()).rpartition(f" {option} ")
    stated = re.search(r"\(default: (\d+)\)", behind)
    assert stated is not None
    assert int(stated[1]) == number


def test_random_takes_the_seeds_in_their_order(short: Path) -> None:
    world, plain = World(), arm(RANDOM, short)
    made = list(explore(plain, 20, world.make, known={}, kept={}))
    assert [task.seed for task in world.asked] == list(range(1, 21))
    assert [it.number for it in made] == list(range(20))
    assert plain.curve == list(range(1, 21))


def test_guided_search_varies_runs_with_new_states_and_continues_with_fresh_seeds(short: Path) -> None:
    world, guided = World(), arm(GUIDED, short)
    list(explore(guided, 24, world.make, known={}, kept={}))
    varied = [task for task in world.asked if task.parent >= 0]
    assert [task.parent for task in world.asked[:4]] == [-1] * 4, "nothing is known yet"
    assert len(varied) == 15, "three quarters of each later round"
    assert [task.seed for task in world.asked if task.parent < 0] == list(range(1, 10))
    assert guided.states == 9 + 3 * 15
    for task in varied:
        variation = parse(TomlSource(task.path, task.text), Path(task.path))
        assert variation.nemesis.kind == "steps"
        assert [cell.mutants for cell in variation.cells] == [("bounce_unseen",)]


def test_guided_search_varies_runs_with_rare_states_most(short: Path) -> None:
    """Every run is the first in some state, for the voters have many; in one the replicas were as in no other."""
    asked: list[ExplorationTask] = []

    def make(tasks: list[ExplorationTask]) -> list[Attempted]:
        asked.extend(tasks)
        return [
            structs.replace(one, states=(f"up/{'leader' if task.seed == 3 else 'follower'}=i= | {task.number} | kill",))
            for task, one in zip(tasks, World().make(tasks), strict=True)
        ]

    guided = arm(GUIDED, short)
    guided.round_runs = 8
    list(explore(guided, 16, make, known={}, kept={}))
    parents = [task.parent for task in asked if task.parent >= 0]
    assert parents.count(2) > len(parents) / 2


UP, FEW = "up/leaderi up/followeri", "up/leaderi up/followero"


def test_a_stay_without_a_running_node_or_time_left_is_not_struck() -> None:
    stays = {
        UP: Stay(1.0, 0.5, {}),
        "down/leaderi still/followeri": Stay(2.0, 0.5, {}),
        FEW: Stay(9.8, 0.5, {}),
        "up/leaderi": Stay(3.0, 0.0, {}),
    }
    assert strikeable(stays, schedule(), schedule()) == {UP: Stay(1.0, 0.5, {})}


def test_strikes_fall_where_few_runs_were_and_few_strikes_fell(short: Path) -> None:
    """Every run is in both states, and few runs leave the second for a third: each is struck, again and again."""
    asked: list[ExplorationTask] = []
    stays = {
        "up/leaderi": Stay(3.0, 0.1, {"up/leaderi": ["n1"]}),
        "up/followero": Stay(7.0, 0.1, {"up/leaderi": ["n1"]}),
    }

    def make(tasks: list[ExplorationTask]) -> list[Attempted]:
        asked.extend(tasks)
        return [
            structs.replace(
                one, stays=stays, states=(f"up/leader=i= | {task.number}", f"up/follower=o= | {task.number}")
            )
            for task, one in zip(tasks, World().make(tasks), strict=True)
        ]

    list(explore(arm(GUIDED, short), 64, make, known={}, kept={}))
    begun = [begins_of(task) for task in asked if task.parent >= 0]
    at = [sum(any(since <= it <= since + 0.1 for it in each) for each in begun) for since in (3.0, 7.0)]
    assert sum(at) > len(begun) / 2
    assert min(at) > sum(at) / 4


def begins_of(task: ExplorationTask) -> list[float]:
    """The start times of the faults of a variation, by its script's clock."""
    steps = parse(TomlSource(task.path, task.text), Path(task.path)).nemesis.steps
    now_s, begins = 0.0, list[float]()
    for step in steps:
        if isinstance(step, WaitStep):
            seconds = step.arguments["seconds"]
            assert isinstance(seconds, float)
            now_s += seconds
        elif step.needs:
            begins.append(now_s)
    return begins


def test_a_variation_of_a_variation_repeats_the_requested_schedule(short: Path) -> None:
    """Else every generation would come later, and to other places than the one before."""
    asked: dict[int, ExplorationTask] = {}
    late = InjectedFaults((InjectedFault("kill", ("n1",), 1.125, 2.2, {}),), 11.0)

    def make(tasks: list[ExplorationTask]) -> list[Attempted]:
        asked.update((task.number, task) for task in tasks)
        made = World().make(tasks)
        return [structs.replace(it, schedule=late) if it.parent >= 0 else it for it in made]

    list(explore(arm(GUIDED, short), 64, make, known={}, kept={}))
    again = [it for it in asked.values() if it.parent >= 0 and asked[it.parent].parent >= 0]
    assert again
    assert not any(1.125 in begins_of(task) for task in asked.values() if task.parent >= 0)


def test_clusters_that_are_drawn_are_varied_as_their_seeds_drew_them(tmp_path: Path) -> None:
    swarm, world = load(drawn_clusters(tmp_path)), World()
    list(explore(Arm(GUIDED, ExploredCell(swarm, swarm.cells[0], 1)), 32, world.make, known={}, kept={}))
    varied = [task for task in world.asked if task.parent >= 0]
    assert varied
    assert {task.text for task in world.asked if task.parent < 0} == {swarm.text}
    for task in varied:
        variation, drawn = parse(TomlSource(task.path, task.text), Path(task.path)), draw(swarm, task.seed)
        assert (variation.topology, variation.workload) == (drawn.topology, drawn.workload)
        assert variation.settings == drawn.settings
        assert variation.checks.converge_s == swarm.checks.converge_s, "it must recover as the campaign's runs must"
        assert not must_be_apart(drawn), "a variation could have faults that meet"
        words = {word_of(name) for name in (*drawn.nemesis.faults, "kill")}
        assert {step.needs for step in variation.nemesis.steps if step.needs} <= words


def word_of(kind: str) -> str:
    """The kind for the verb that starts a kind of fault in scripts."""
    if KINDS[kind].injected_by:
        return kind
    return "partition-one" if KINDS[kind].takes == "groups" else "power-loss"


@pytest.mark.rotating(6, among="long simulations")
def test_a_drawn_cluster_is_the_same_explored_run_and_replayed_and_can_be_written_down(tmp_path: Path) -> None:
    path = drawn_clusters(tmp_path)
    run = simulate(path, tmp_path, seeds=[6])
    assert (
        attempt(ExplorationTask(0, RANDOM, path.read_text(), str(path), "main", 6), tmp_path / "x").digest
        == run.summary["digest"]
    )
    assert main(["replay", str(run.path), "--store", str(tmp_path), "--quiet"]) == 0
    directory = RunDirectory(run.path)
    written = whole_run(directory, stored_plan(directory), "stale-read").document.campaign(path)
    assert (written.swarm, written.topology) == (None, draw(load(path), 6).topology)
    assert written.settings == draw(load(path), 6).settings


def drawn_clusters(directory: Path) -> Path:
    """A campaign that leaves its clusters to the seeds."""
    text = campaign("swarm").read_text()
    path = directory / "clusters.toml"
    path.write_text(text.replace("duration_s = [12, 40]", "duration_s = [12, 13]").replace("[20, 150]", "[20, 30]"))
    return path


def test_the_same_exploration_makes_the_same_runs_and_seeds_are_not_made_twice(short: Path) -> None:
    first, second = World(), World()
    known: dict[int, Attempted] = {}
    list(explore(arm(GUIDED, short), 24, first.make, known=known, kept={}))
    list(explore(arm(GUIDED, short), 24, second.make, known={}, kept={}))
    assert first.asked == second.asked
    before = len(first.asked)
    plain = arm(RANDOM, short)
    list(explore(plain, 20, first.make, known=known, kept={}))
    assert [task.seed for task in first.asked[before:]] == list(range(10, 21)), "9 seeds were known"
    assert len(plain.made) == 20


def test_the_cheapest_run_of_an_anomaly_is_the_one_with_the_fewest_steps(short: Path) -> None:
    guided = arm(GUIDED, short)
    made = list(explore(guided, 24, World().make, known={}, kept={}))
    shows = [it for it in made if it.anomalies]
    assert shows
    assert cheapest(made, "lost-acknowledged-write").steps == min(it.steps for it in shows)


def test_the_report_compares_only_measured_values(short: Path) -> None:
    guided, plain = arm(GUIDED, short), arm(RANDOM, short)
    list(explore(guided, 24, World().make, known={}, kept={}))
    assert "Only one way" in comparison([guided])
    list(explore(plain, 24, World().make, known={}, kept={}))
    assert "guided had seen 54 different states and random 24" in comparison([guided, plain])
    assert "after 12 runs" in comparison([guided, plain])
    head = Head("short", SHORT, "mutated", 1, 24, (GUIDED, RANDOM), True)
    content = report_content(head, [guided, plain], {"lost-acknowledged-write": "short/run"}, "over")
    assert content["verdict"] == "fail"
    assert content["found"][0]["link"] == "../../../short/run/report.html"


@pytest.mark.spark
@pytest.mark.long
def test_workers_of_a_cluster_have_their_modules_and_files(short: Path, tmp_path: Path) -> None:
    """Executors are processes of their own here, as on other machines: they inherit nothing of this one."""
    if java_version() is None:
        pytest.skip("no Java runtime: install openjdk-17-jre-headless")
    handle = SparkHandle.start_in_background(master="local-cluster[1,1,1024]")
    try:
        (there,) = spread(
            handle.tasks(600), tmp_path / "there", [ExplorationTask(0, RANDOM, SHORT, str(short), "fixed", 1)]
        )
    finally:
        handle.stop()
    here = attempt(ExplorationTask(0, RANDOM, SHORT, str(short), "fixed", 1), tmp_path / "here")
    assert (there.digest, there.states, there.reason) == (here.digest, here.states, here.reason)
    assert there.digest


@pytest.mark.rotating(3, among="stored searches")
@pytest.mark.kills("bounce_unseen")
def test_a_bug_is_found_and_its_cheapest_run_kept(
    short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_explore(short, tmp_path, "--cell", "mutated", "--runs", "24") == 0, (
        "it is what is expected of the mutant"
    )
    content = json.loads(capsys.readouterr().out)
    assert content["ended"] == "stopped at the first failure"
    found = next(row for row in content["found"] if row["anomaly"] == "lost-acknowledged-write")
    kept = SimulatedRun(tmp_path / found["kept"])
    assert "lost-acknowledged-write" in kept.anomalies
    assert (kept.path / "plots" / "0-spacetime.png").exists()
    report = Path(content["report"])
    assert (report.parent / found["link"]).resolve() == (kept.path / "report.html").resolve()
    assert "lost-acknowledged-write" in report.read_text()


def test_a_broken_world_is_unknown_with_its_seed(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> bool:
        raise KeyError("planted")

    monkeypatch.setattr(VirtualLoop, "run_until", broken)
    assert run_explore(short, tmp_path, "--cell", "fixed", "--runs", "1", "--first", "41") == 2
    content = json.loads(capsys.readouterr().out)
    assert content["verdict"] == "unknown"
    assert content["unknown"][0]["seed"] == 41
    assert "planted" in content["unknown"][0]["reason"]


def test_a_run_that_shows_several_anomalies_is_kept_once(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remade: list[int] = []

    def both(task: ExplorationTask, *_: object) -> Attempted:
        made = World().make([task])[0]
        return structs.replace(made, anomalies=("stale-read", *made.anomalies) if made.anomalies else ())

    def keep(_store: Store, _maker: object, _campaign: object, _cell: str, seed: int) -> SimpleNamespace:
        remade.append(seed)
        return SimpleNamespace(directory=SimpleNamespace(id=f"kept-{seed}"), digest="")

    monkeypatch.setattr("orchestrator.command.explore.attempt", both)
    monkeypatch.setattr("orchestrator.command.explore.make_to_stay", keep)
    run_explore(short, tmp_path, "--cell", "mutated", "--runs", "8", "--random")
    assert {row["kept"] for row in json.loads(capsys.readouterr().out)["found"]} == {"short/kept-5"}
    assert remade == [5]


def test_a_kept_variation_takes_the_place_of_no_other(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The results of two schedules are separate proofs: a pass of one, with its bug fixed, does not decide the
    other."""

    def failing(task: ExplorationTask, *_: object) -> Attempted:
        made = World().make([task])[0]
        anomalies = (("stale-read", "lost-acknowledged-write")[task.number % 2],) if task.parent >= 0 else ()
        return structs.replace(made, anomalies=anomalies)

    def keep(store: Store, _maker: object, varied: Campaign, cell: str, seed: int) -> SimpleNamespace:
        begun = plan_invocation(store, varied, cells=[cell], seeds=[seed], where=WHERE, world=SIMULATION)
        return SimpleNamespace(directory=SimpleNamespace(id=begun.all_ids[0]), digest="")

    monkeypatch.setattr("orchestrator.command.explore.attempt", failing)
    monkeypatch.setattr("orchestrator.command.explore.make_to_stay", keep)
    store = tmp_path / "store"
    run_explore(short, store, "--cell", "fixed", "--runs", "12", "--keep-going")
    kept = {row["kept"] for row in json.loads(capsys.readouterr().out)["found"] if row["varied"]}
    assert len(kept) == 2
    assert main(["gate", str(store), "--json"]) == 2, "none was made yet"
    decided = {each["campaign"]: each for each in json.loads(capsys.readouterr().out)["campaigns"]}
    assert [each["superseded"] for each in decided.values()] == [[], []]
    assert {f"{name}/{run['run']}" for name, each in decided.items() for run in each["runs"]} == kept


def test_a_variation_is_named_by_all_that_its_runs_follow_from(short: Path) -> None:
    loaded = replace(load(short), name="x" * 64)
    mutated, fixed = loaded.cells

    def name(node: str = "n1", seed: int = 1, cell: Cell = fixed, description: str = "") -> str:
        steps = [{"do": "kill", "node": node}, {"do": "start", "node": node}]
        varied = document_of(loaded, cell, seed, steps, suffix=SUFFIX, description=description)
        return varied.campaign(short).name

    assert name() == name(description="the same, of another exploration")
    assert len({loaded.name, name(), name(node="n2"), name(seed=2), name(cell=mutated)}) == 5


def test_unknown_runs_leave_the_detection_of_a_bug_unknown(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(task: ExplorationTask, *_: object) -> Attempted:
        return structs.replace(World().make([task])[0], verdict="unknown" if task.seed != known else "pass")

    known = -1
    monkeypatch.setattr("orchestrator.command.explore.attempt", unknown)
    assert run_explore(short, tmp_path, "--cell", "mutated", "--runs", "3") == 2
    known = 2
    assert run_explore(short, tmp_path, "--cell", "mutated", "--runs", "3") == 1, "one was decided"


def test_temporary_directories_are_in_places_that_cleanup_covers(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    def tell_place(*arguments: object, **_: object) -> object:
        places.extend(it for it in arguments if isinstance(it, Path))
        raise Interrupted

    monkeypatch.setattr("orchestrator.command.explore.attempt", tell_place)
    assert run_explore(short, tmp_path, "--engine", "in-process") == 130
    (place,) = places
    assert place.parent == tmp_path / LABS
    assert not place.exists()
    assert not (tmp_path / LABS).exists()


def test_without_spark_explore_reports_the_reason(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(*_: object) -> None:
        raise SparkUnavailableError("Spark did not start: all masters are unresponsive")

    monkeypatch.setattr("analysis.engines.spark.SparkHandle.start_in_background", lambda *_, **__: SimpleNamespace(
        tasks=unavailable, stop=lambda: None
    ))  # fmt: skip
    assert run_explore(short, tmp_path, "--engine", "spark", "--master", "spark://127.0.0.1:1") == 64
    assert "--master spark://127.0.0.1:1: Spark did not start: all masters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--cell", "none"], "unknown cell 'none'"),
        (["--runs", "0"], "--runs"),
        (["--first", "-1"], "--first"),
        (["--master", "local[1]"], "--engine in-process has no master"),
        (["--resume"], "never explored"),
        (["--resume", "--cell", "fixed"], "leave out --cell"),
        (["--resume", "--runs", "3", "--first", "0", "--keep-going"], "leave out --runs, --first, --keep-going"),
        (["--resume", "--random", "--round", "2"], "leave out --round, --random"),
    ],
)
def test_a_campaign_that_cannot_be_explored_is_refused(
    words: list[str], complaint: str, short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_explore(short, tmp_path, *words) == 64
    assert complaint in capsys.readouterr().err


def test_a_scripted_campaign_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_explore(campaign("bounce-unseen"), tmp_path) == 64
    assert "every seed has the same faults" in capsys.readouterr().err
