"""Explorations that ended before they were through, and are gone on with."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.errors import Interrupted, UsageError
from orchestrator.search.exploring import GUIDED, Exploration, Head, explore
from orchestrator.search.task import Attempted, ExplorationTask
from orchestrator.store.directories import Store
from tests.search.imagined import SHORT, World, arm, run_explore

pytestmark = pytest.mark.rotating(3, among="stored searches")


def test_an_interrupted_exploration_keeps_its_findings_and_resumes(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, rounds = World(), iter(range(10))

    def make(task: ExplorationTask, *_: object) -> Attempted:
        if len(world.asked) == 11 and next(rounds) == 0:
            raise Interrupted
        return world.make([task])[0]

    monkeypatch.setattr("orchestrator.command.explore.attempt", make)
    monkeypatch.setattr("orchestrator.command.explore._keep", lambda *_: None)
    assert run_explore(short, tmp_path, "--cell", "fixed", "--runs", "24", "--keep-going") == 130
    assert json.loads(capsys.readouterr().out)["arms"][0]["runs"] == 11, "in the middle of a round"
    assert run_explore(short, tmp_path, "--resume") == 1
    output = json.loads(capsys.readouterr().out)
    assert output["arms"][0]["runs"] == 24
    assert output["ended"] == "the budget is used up"
    alone = World()
    list(explore(arm(GUIDED, short, cell="fixed"), 24, alone.make, known={}, kept={}))
    assert world.asked == alone.asked, "the runs of an uninterrupted one, and no run is made twice"
    assert run_explore(short, tmp_path, "--resume") == 1
    assert len(world.asked) == 24, "there is nothing left to make"


def test_an_exploration_resumes_after_its_failure_and_reuses_kept_runs(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, remade = World(), list[int]()

    def keep(_store: Store, _maker: object, _campaign: object, cell: str, seed: int) -> SimpleNamespace:
        remade.append(seed)
        directory = tmp_path / "short" / f"s-{cell}-{seed}"
        directory.mkdir(parents=True)
        return SimpleNamespace(directory=SimpleNamespace(id=directory.name), digest="")

    monkeypatch.setattr("orchestrator.command.explore.attempt", lambda task, *_: world.make([task])[0])
    monkeypatch.setattr("orchestrator.command.explore.make_to_stay", keep)
    assert run_explore(short, tmp_path, "--cell", "mutated", "--runs", "12", "--random", "--round", "4") == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["ended"], first["arms"][0]["runs"]) == ("stopped at the first failure", 5)
    assert run_explore(short, tmp_path, "--resume") == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["ended"], output["arms"][0]["runs"]) == ("the budget is used up", 12)
    assert output["found"][0]["kept"] == first["found"][0]["kept"] == "short/s-mutated-5"
    assert remade == [5]


def test_kept_runs_are_reported_when_the_next_round_does_not_start(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()

    def make(task: ExplorationTask, *_: object) -> Attempted:
        if len(world.asked) == 10:
            raise Interrupted
        return world.make([task])[0]

    def at_once(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr("orchestrator.command.explore.attempt", make)
    assert run_explore(short, tmp_path, "--runs", "16", "--keep-going") == 130
    monkeypatch.setattr("orchestrator.command.explore.Engine.tasks", at_once)
    capsys.readouterr()
    assert run_explore(short, tmp_path, "--resume", "--engine", "spark") == 130
    assert json.loads(capsys.readouterr().out)["arms"][0]["runs"] == 10


@pytest.mark.parametrize("left", [None, "[]", "[" * 100_000], ids=["missing", "a list", "too deep"])
def test_an_exploration_killed_at_a_failure_stops_there(
    left: str | None, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    monkeypatch.setattr("orchestrator.command.explore.attempt", lambda task, *_: world.make([task])[0])
    monkeypatch.setattr("orchestrator.command.explore._keep", lambda *_: None)
    run_explore(short, tmp_path, "--cell", "mutated", "--runs", "12", "--random")
    capsys.readouterr()
    (summary,) = tmp_path.glob("short/explorations/*/summary.json")
    summary.unlink()
    if left is not None:
        summary.write_text(left)
    assert run_explore(short, tmp_path, "--resume") == 0
    assert json.loads(capsys.readouterr().out)["arms"][0]["runs"] == 5


def test_an_exploration_interrupted_after_a_failure_does_not_repeat_it(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, interruptions = World(), [5, 7]  # before its first new run, and later

    def make(task: ExplorationTask, *_: object) -> Attempted:
        if len(world.asked) in interruptions:
            interruptions.remove(len(world.asked))
            raise Interrupted
        return world.make([task])[0]

    monkeypatch.setattr("orchestrator.command.explore.attempt", make)
    monkeypatch.setattr("orchestrator.command.explore._keep", lambda *_: None)
    assert run_explore(short, tmp_path, "--cell", "mutated", "--runs", "12", "--random") == 0
    ends = [json.loads(capsys.readouterr().out)["arms"][0]["runs"]]
    for expected in (130, 130, 0):
        assert run_explore(short, tmp_path, "--resume") == expected
        ends.append(json.loads(capsys.readouterr().out)["arms"][0]["runs"])
    assert ends == [5, 5, 7, 12]


def test_an_exploration_by_other_code_is_not_resumed(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    monkeypatch.setattr("orchestrator.command.explore.attempt", lambda task, *_: world.make([task])[0])
    cases = (
        ("a", "a", True),
        ("unknown", "unknown", True),  # outside of git
        ("a", "b", False),
        ("a", "a+changes-1", False),
        ("a+changes-1", "a+changes-1", True),
        ("a+changes", "a+changes", False),  # unidentified changes
    )
    for number, (then, now, goes_on) in enumerate(cases):
        store = tmp_path / str(number)
        monkeypatch.setattr("orchestrator.command.explore.code", lambda then=then: then)
        assert run_explore(short, store, "--cell", "fixed", "--runs", "1") == 0
        monkeypatch.setattr("orchestrator.command.explore.code", lambda now=now: now)
        capsys.readouterr()
        assert run_explore(short, store, "--resume") == (0 if goes_on else 64), (then, now)
        assert goes_on or f"was explored by commit {then}, and this is {now}" in capsys.readouterr().err


def test_the_last_exploration_is_the_one_started_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent of the clock."""
    head = Head("short", SHORT, "fixed", 1, 8, (GUIDED,), True, code="a")
    stamps = ["20261123T150000ff", "20261123T15000000", "20300101T00000000", "20261123T150001ff"]
    monkeypatch.setattr(Store, "new_stamp", lambda _: stamps.pop(0))
    for _ in range(3):
        begun = Exploration.begin(Store(tmp_path), head)
        assert Exploration.last(Store(tmp_path), "short", SHORT, "a").path == begun.path
    with pytest.raises(UsageError, match=r"20300101T00000000 is newer .* \(20261123T150001ff\), so a clock is or was"):
        Exploration.begin(Store(tmp_path), head)
    assert len(list(begun.path.parent.iterdir())) == 3


def test_one_process_at_a_time_resumes_an_exploration(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would make all remaining runs, and one would read the other's writes as torn."""
    world, beside = World(), list[int]()

    def make(task: ExplorationTask, *_: object) -> Attempted:
        beside.append(run_explore(short, tmp_path, "--resume"))
        return world.make([task])[0]

    monkeypatch.setattr("orchestrator.command.explore.attempt", make)
    assert run_explore(short, tmp_path, "--cell", "fixed", "--runs", "2") == 0
    assert beside == [64, 64]
    assert "is under way in another process" in capsys.readouterr().err
    assert run_explore(short, tmp_path, "--resume") == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("exploration.json", '"round_runs": 4', '"round_runs": 0', "explore again without --resume"),
        ("exploration.json", '"budget": 12', '"budget": -1', "explore again without --resume"),
        ("exploration.json", '"guided"', '"guides"', "explore again without --resume"),
        ("exploration.json", '"cell": "mutated"', '"cell": "none"', "unknown cell 'none'"),
        ("runs.jsonl", '"arm":"guided"', '"arm":"guides"', "explore again without --resume"),
        ("summary.json", '"anomaly"', '"animal"', ""),
        ("summary.json", '"found": [', '"found": 1, "lost": [', ""),
    ],
)
def test_damaged_files_of_an_exploration_are_refused(
    name: str, old: str, new: str, complaint: str, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("orchestrator.command.explore.attempt", lambda task, *_: World().make([task])[0])
    monkeypatch.setattr("orchestrator.command.explore._keep", lambda *_: None)
    run_explore(short, tmp_path, "--cell", "mutated", "--runs", "12")
    (path,) = tmp_path.glob(f"short/explorations/*/{name}")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert run_explore(short, tmp_path, "--resume") == (64 if complaint else 0)
    assert complaint in capsys.readouterr().err


def test_runs_chosen_by_another_version_are_not_resumed(short: Path) -> None:
    kept = {0: World().make([ExplorationTask(0, GUIDED, SHORT, str(short), "mutated", 77)])[0]}
    with pytest.raises(UsageError, match="run 1 of the exploration was chosen by another version"):
        list(explore(arm(GUIDED, short), 8, World().make, known={}, kept=kept))


def test_a_torn_last_line_is_made_again(short: Path, tmp_path: Path) -> None:
    head = Head("short", SHORT, "fixed", 1, 8, (GUIDED,), True)
    exploration = Exploration.begin(Store(tmp_path), head)
    made = World().make([ExplorationTask(n, GUIDED, SHORT, str(short), "fixed", n + 1) for n in range(2)])
    for attempted in made:
        exploration.add(attempted)
    runs = exploration.path / "runs.jsonl"
    runs.write_bytes(runs.read_bytes()[:-20])
    assert [it.number for it in Exploration.last(Store(tmp_path), "short", SHORT, head.code).runs()] == [0]
    exploration.add(made[1])
    assert [it.number for it in exploration.runs()] == [0, 1]
    runs.write_bytes(b"{" + runs.read_bytes())
    with pytest.raises(UsageError, match=r"runs\.jsonl:1: is damaged: .*explore again without --resume"):
        list(exploration.runs())
