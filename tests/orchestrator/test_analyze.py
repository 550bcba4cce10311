"""`brownout analyze`: unknown first, then the verdict; one damaged run does not stop the others."""

import contextlib
import errno
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.analysis_pipeline.stored_run import StoredRun
from tests.orchestrator.stored_campaign import StoredCampaign, ask

IN_PROCESS = ("--engine", "in-process")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests to which pictures are nothing: to draw them takes longer than all else."""
    monkeypatch.setattr("analysis.plots.render.draw", lambda *_: [])


def verdict_of(run: Path) -> Any:
    return json.loads((run / "verdict.json").read_text())


def summary_of(campaign: StoredCampaign) -> Any:
    return json.loads((campaign.path / "summary.json").read_text())


def _killed_while_it_judges(run: Path) -> None:
    from analysis import pipeline

    setattr(pipeline, "write_tables", lambda *_: os.kill(os.getpid(), signal.SIGKILL))  # noqa: B010
    pipeline.analyze(run, engine="in-process")


@pytest.mark.rotating(3, among="analyses that break")
def test_a_killed_analysis_leaves_unknown_and_never_the_older_pass(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (run,) = campaign.made()
    assert ask("report", run).code == 0
    assert (verdict_of(run)["verdict"], ask("gate", campaign.path).code) == ("pass", 0)
    killed = multiprocessing.get_context("spawn").Process(target=_killed_while_it_judges, args=(run,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert verdict_of(run)["verdict"] == "unknown"
    assert "the analysis has not finished" in verdict_of(run)["reasons"][0]
    assert not (run / "report.html").exists(), "the older verdict's page"
    assert ask("gate", campaign.path).code == 2


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, SystemExit])
def test_an_analysis_that_is_stopped_leaves_no_document_of_an_older_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: type[BaseException]
) -> None:
    campaign = StoredCampaign(tmp_path / "store")
    first, second = campaign.made()
    assert ask("gate", campaign.path).code == 0

    def stop(*_: object) -> None:
        raise stopped

    monkeypatch.setattr("analysis.pipeline.write_tables", stop)
    with contextlib.suppress(SystemExit):
        assert ask("analyze", *IN_PROCESS, first, second).code == 130
    assert verdict_of(second)["verdict"] == "pass"
    assert summary_of(campaign)["verdict"] == "unknown"
    assert "<error " in (campaign.path / "junit.xml").read_text()


def test_a_verdict_that_is_stale_is_reported_as_unknown(tmp_path: Path) -> None:
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    assert ask("report", run).code == 0
    assert '<span class="badge pass">' in (run / "report.html").read_text()
    (run / "nodes" / "n1" / "service.log").write_text("something else\n")
    assert ask("report", run).code == 0
    page = (run / "report.html").read_text()
    assert '<span class="badge unknown">' in page
    assert "have changed since it was made" in page
    assert "<title>unknown" in page


def test_a_proven_failure_is_reported_with_the_doubts_about_its_record(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    run = campaign.make(planned, lost=7)
    (run / "nodes" / "n1" / "service.log").write_text("something else\n")
    assert ask("report", run).code == 0
    page = (run / "report.html").read_text()
    assert '<span class="badge fail">' in page
    assert "Undecided in addition" in page
    assert "have changed since it was made" in page


@pytest.mark.rotating(3, among="analyses that break")
def test_one_damaged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "[seeds]\ncount = 3\n")
    broken, garbled, good = campaign.made()
    journal = broken / "history" / "journal.jsonl"
    journal.write_bytes(b"no journal\n" + journal.read_bytes())
    (garbled / "run.toml").write_bytes(b"[[[")
    answer = ask("analyze", *IN_PROCESS, "--json", broken, garbled, good)
    assert answer.code == 2
    assert [verdict["verdict"] for verdict in answer.json] == ["unknown", "unknown", "pass"]
    for run, words in ((broken, "journal"), (garbled, "run.toml")):
        assert words in " ".join(verdict_of(run)["reasons"])
        assert (run / "report.html").exists()
    result = ask("analyze", *IN_PROCESS, garbled, good)
    assert result.code == 2
    assert "the run's record is damaged" in result.out
    assert "Traceback" not in result.out + result.err


@pytest.mark.rotating(3, among="analyses that break")
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["verdict.json", "report.html", "analysis-error.txt"])
def test_a_directory_in_place_of_an_output_file_does_not_stop_the_analysis(tmp_path: Path, name: str) -> None:
    runs = StoredCampaign(tmp_path / "store", "[seeds]\ncount = 2\n").made()
    (runs[0] / name).unlink(missing_ok=True)
    (runs[0] / name / "notes").mkdir(parents=True)
    answer = ask("analyze", *IN_PROCESS, "--json", *runs)
    assert (answer.code, [verdict["verdict"] for verdict in answer.json]) == (0, ["pass", "pass"])
    assert (runs[0] / "report.html").is_file()


@pytest.mark.usefixtures("undrawn")
def test_the_gravest_verdict_counts(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "[seeds]\ncount = 2\n")
    first, second = campaign.plan()
    unproven, lossy = campaign.make(first, fault_status="inconclusive"), campaign.make(second, lost=7)
    assert ask("analyze", *IN_PROCESS, unproven).code == 2
    assert ask("analyze", *IN_PROCESS, unproven, lossy).code == 1


@pytest.mark.rotating(3, among="analyses that break")
def test_an_analysis_that_breaks_is_unknown_with_the_whole_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from analysis import pipeline

    def broken(*_: object) -> None:
        raise ZeroDivisionError("no such thing")

    campaign = StoredCampaign(tmp_path / "store", "")
    (run,) = campaign.made()
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "write_tables", broken)
        answer = ask("analyze", *IN_PROCESS, run)
    assert answer.code == 2
    assert "the analysis broke: ZeroDivisionError: no such thing" in answer.out
    assert "Traceback" in (run / "analysis-error.txt").read_text()
    assert ask("gate", campaign.path).code == 2
    assert ask("analyze", *IN_PROCESS, run).code == 0
    assert not (run / "analysis-error.txt").exists()


def test_a_failed_plot_does_not_change_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis.plots import render

    def broken(*_: object) -> None:
        raise ZeroDivisionError("no such picture")

    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    run = campaign.make(planned, lost=7)
    monkeypatch.setattr(render, "draw", broken)
    assert ask("analyze", *IN_PROCESS, run).code == 1
    assert "no such picture" in (run / "analysis-error.txt").read_text()


def test_a_page_that_cannot_be_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis import report

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (run,) = StoredCampaign(tmp_path / "store", "").made()
    (run / "report.html").unlink(missing_ok=True)
    monkeypatch.setattr(report, "render_run", full)
    answer = ask("analyze", *IN_PROCESS, run)
    broken = run / "analysis-error.txt"
    assert f"not be rendered: OSError: [Errno 28] No space left on device; traceback: {broken}" in answer.out


def test_analyze_starts_no_spark_for_a_simulated_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = StoredRun(tmp_path / "story" / "r").write()
    (run / "simulation.json").write_text("{}")
    monkeypatch.setattr("analysis.engines.spark.find_java", lambda: None)  # Spark would be refused
    answer = ask("analyze", run)
    assert (answer.code in (0, 1, 2), answer.err) == (True, "")


def test_only_a_directory_without_a_run_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    run = StoredRun(tmp_path / "story" / "r").write()
    assert ask("analyze", *IN_PROCESS, tmp_path / "nothing").code == 64
    assert ask("analyze", *IN_PROCESS, run, tmp_path / "nothing").code == 64
    assert not (tmp_path / "nothing" / "verdict.json").exists()


def test_a_read_only_store_is_reported_once_as_a_user_error(tmp_path: Path) -> None:
    """As in a store that is read-only; root may write everywhere else."""
    campaign = StoredCampaign(tmp_path / "store", "")
    (run,) = campaign.made()
    for place, words in (
        (run / ".lock", ("analyze", *IN_PROCESS, run)),
        (run / "report.html.tmp", ("report", run)),
        (campaign.path / "summary.json.tmp", ("report", campaign.path)),
    ):
        place.unlink(missing_ok=True)
        place.mkdir()
        answer = ask(*words)
        assert answer.code == 64
        assert answer.err.count("Is a directory") == 1
        assert "where you can write" in answer.err


@pytest.mark.rotating(3, among="analyses that break")
def test_control_characters_in_broker_output_are_shown_escaped(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    words = "\x1b[2J\x1b]0;title\x07 \udcff\udc80 \x00 \x9b31m \u202e ]]> <b> & done"
    run = campaign.make(planned, exits=(("n1", 1, None, words),))
    answers = [ask("analyze", *IN_PROCESS, run), ask("gate", campaign.path), ask("gate", campaign.path, "--markdown")]
    for answer in answers:
        assert answer.code == 1
        assert not set(answer.out) & set("\x1b\x07\x00\x9b\u202e\udcff")
        assert "done" in answer.out
    assert r"\x1b[2J" in answers[0].out
