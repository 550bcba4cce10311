"""`brownout replay`: the same run again, or why it is not."""

import json
import shutil
from pathlib import Path

import pytest

from history.seal import seal
from orchestrator.command.line import main
from orchestrator.command.replay import compare
from orchestrator.errors import Interrupted
from orchestrator.search.run_maker import Made
from orchestrator.store.directories import RunDirectory
from tests.worlds.simulated import SimulatedRun, campaign, simulate

pytestmark = pytest.mark.rotating(3, among="stored searches")

BOUNCE = campaign("bounce-unseen")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    """One failed run, for all tests to copy."""
    return simulate(BOUNCE, tmp_path_factory.mktemp("store"), cell="mutated", seeds=[2])


@pytest.fixture
def copied(made: SimulatedRun, tmp_path: Path) -> SimulatedRun:
    shutil.copytree(made.path.parents[1], tmp_path, symlinks=True, dirs_exist_ok=True)
    return SimulatedRun(tmp_path / made.path.relative_to(made.path.parents[1]))


@pytest.fixture
def stored(copied: SimulatedRun, monkeypatch: pytest.MonkeyPatch) -> SimulatedRun:
    """For who does not look at the pictures: to draw them takes longer than to make the run again."""
    monkeypatch.setattr("analysis.plots.render.draw", lambda *_: [])
    return copied


def replay(store: Path, *words: str) -> int:
    return main(["replay", *words, "--store", str(store), "--quiet", "--json"])


def test_a_replayed_run_is_the_same_and_has_a_trace(
    copied: SimulatedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert replay(tmp_path, str(copied.path)) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["same"] is True
    assert output["digest"] == copied.summary["digest"]
    assert "lost-acknowledged-write" in output["anomalies"]
    again = SimulatedRun((tmp_path / "latest").resolve())
    assert again.path != copied.path
    trace = (again.path / "trace.txt").read_text()
    assert "loses power" in trace, "the trace has faults"
    assert "partition_role log-0: role leader" in trace, "and what nodes did"
    assert "-> n" in trace, "and what was said"
    assert "Produce" in trace
    assert (again.path / "messages.jsonl").exists()
    assert not (copied.path / "messages.jsonl").exists(), "the replay was made without this option"
    assert {"0-lives.png", "0-spacetime.png"} <= {path.name for path in (again.path / "plots").iterdir()}
    times = [float(line.split()[0]) for line in trace.splitlines()[1:]]
    assert times == sorted(times)


@pytest.mark.usefixtures("stored")
def test_a_seed_is_replayed_by_its_campaign(tmp_path: Path) -> None:
    assert replay(tmp_path, "2", "--campaign", str(BOUNCE), "--cell", "mutated") == 0
    assert replay(tmp_path, "3", "--campaign", str(BOUNCE), "--cell", "mutated") == 2, "nothing to compare it with"
    assert replay(tmp_path, "3", "--campaign", str(BOUNCE), "--cell", "mutated") == 0


def test_an_interrupted_replay_leaves_no_run(
    stored: SimulatedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted

    before = sorted(stored.path.parent.rglob("*"))
    monkeypatch.setattr("orchestrator.running.runner.judge", interrupted)
    assert replay(tmp_path, "latest") == 130
    assert sorted(stored.path.parent.rglob("*")) == before
    assert (tmp_path / "latest").resolve() == stored.path.resolve()


@pytest.mark.parametrize("content", ["", '{"seed": 1, "dig', "[]", "[" * 100_000], ids=["", "half", "list", "deep"])
def test_a_run_with_a_partial_summary_cannot_be_compared(
    content: str, stored: SimulatedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stored.path / "simulation.json").write_text(content)
    capsys.readouterr()
    assert replay(tmp_path, str(stored.path)) == 2
    assert "ended before it had a digest" in json.loads(capsys.readouterr().out)["comparison"]


def test_a_replay_with_another_digest_is_reported(
    stored: SimulatedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = stored.summary | {"digest": "0" * 64}
    (stored.path / "simulation.json").write_text(json.dumps(summary))
    seal(stored.path)
    made_by = stored.verdict.versions["brownout"]
    monkeypatch.setattr("orchestrator.command.replay.commit", lambda: made_by.removesuffix("+changes"))
    capsys.readouterr()
    code = replay(tmp_path, str(stored.path))
    output = json.loads(capsys.readouterr().out)
    assert "not the same run" in output["comparison"]
    assert code == (2 if made_by.endswith("+changes") else 1)
    monkeypatch.setattr("orchestrator.command.replay.commit", lambda: "another")
    assert replay(tmp_path, str(stored.path)) == 2
    assert "the code differs" in json.loads(capsys.readouterr().out)["comparison"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("run.toml", "seed = 2", "seed = 3"),
        ("run.toml", "seed = 2", ""),
        ("campaign.toml", "count = ", "count = 1"),
        ("simulation.json", '"digest": "', '"digest": "0'),
    ],
)
def test_a_replay_of_changed_evidence_is_unknown(
    name: str, old: str, new: str, stored: SimulatedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made_by = stored.verdict.versions["brownout"]
    monkeypatch.setattr("orchestrator.command.replay.commit", lambda: made_by)
    monkeypatch.setattr("orchestrator.command.replay.CHANGES", "whatever is changed here")
    text = (stored.path / name).read_text()
    assert old in text
    (stored.path / name).write_text(text.replace(old, new))
    capsys.readouterr()
    assert replay(tmp_path, str(stored.path)) == 2
    output = json.loads(capsys.readouterr().out)
    assert output | {"same": None} == output, "the comparison is undecided"
    assert f"evidence was changed since: {name} was " in output["comparison"]


def test_a_replay_needs_no_files_beside_the_run(stored: SimulatedRun, tmp_path: Path) -> None:
    (plan,) = stored.path.parent.glob("plans/*.toml")
    plan.write_text(plan.read_text().replace(str(BOUNCE), str(tmp_path)))
    assert replay(tmp_path, str(stored.path)) == 0, "the campaign's file has become a directory"
    for run in stored.path.parent.glob("*/campaign.toml"):
        run.write_bytes(b"\xff\xfe")
    assert replay(tmp_path, "2", "--campaign", str(BOUNCE), "--cell", "mutated") == 2, "none can be compared with"


def test_two_unknown_commits_are_not_compared(stored: SimulatedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    description = stored.path / "run.toml"
    made_by = f'brownout = "{stored.verdict.versions["brownout"]}"'
    assert made_by in description.read_text()
    description.write_text(description.read_text().replace(made_by, 'brownout = "unknown"'))
    seal(stored.path)
    monkeypatch.setattr("orchestrator.command.replay.commit", lambda: "unknown")
    before = RunDirectory(stored.path)
    compared = compare(before, Made(before, stored.verdict, digest="0" * 64))
    assert (compared.same, compared.exit_code) == (None, 2)
    assert "made by commit unknown, this one by unknown" in compared.text


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["7"], "--campaign"),
        (["7", "--campaign", str(BOUNCE)], "--cell"),
        (["latest", "--cell", "mutated"], "a stored run defines it"),
        (["nowhere"], "neither a directory nor a run"),
    ],
)
def test_replay_refuses_a_directory_without_a_run(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tmp_path, *words) == 64
    assert complaint in capsys.readouterr().err


def test_a_run_of_another_world_is_refused_with_the_reason(
    stored: SimulatedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = stored.path / "run.toml"
    description.write_text(description.read_text().replace('world = "simulation"', 'world = "namespaces"'))
    assert replay(tmp_path, str(stored.path)) == 64
    printed = capsys.readouterr().err
    assert "made in the namespaces world" in printed
    assert "--seed 2" in printed, "how its schedule is run again"
