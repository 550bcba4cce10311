"""What people and build servers read: the pages, the summary, junit.xml."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from analysis import junit
from analysis.pipeline import analyze
from analysis.report import render_campaign, render_run, worth_of_campaign
from analysis.summary import summarize
from tests.analysis_pipeline.stored_run import StoredRun


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with a pass, a killed mutant, an unexpected failure, an unknown, and a run without verdict."""
    root = tmp_path_factory.mktemp("store") / "story"
    lost = {"verdict": "fail", "anomaly": "lost-acknowledged-write"}
    for run in (
        StoredRun(root / "1-pass"),
        StoredRun(root / "2-mutant", lost=7, expect=lost),
        StoredRun(root / "3-alarm", diverging="n1"),
        StoredRun(root / "4-unproven", fault_status="inconclusive", required=("kill", "pause")),
    ):
        analyze(run.write(), engine="in-process")
    StoredRun(root / "5-unjudged").write()
    return root


def test_the_page_of_a_pass_says_what_the_evidence_is_worth(campaign: Path) -> None:
    page = render_run(campaign / "1-pass").read_text()
    assert '<span class="badge pass">pass</span>' in page
    assert "40 acknowledged writes under 1 confirmed faults: no violation in this schedule" in page
    assert "./brownout run story.toml --seed 1" in page
    assert "nothing here is real" in page
    assert page.count("data:image/png;base64,") >= 4
    assert 'src="http' not in page


def test_the_page_of_a_failure_shows_the_contradiction_first(campaign: Path) -> None:
    page = render_run(campaign / "2-mutant").read_text()
    assert '<span class="badge fail">fail</span>' in page
    assert page.index("lost-acknowledged-write") < page.index("Faults and the proof")
    assert "Expected <b>fail (lost-acknowledged-write)</b>" in page
    assert "<td>record 1.0.7</td>" in page, "values are named as their producers count them"
    assert re.search(r"<td>\d\.\d{3} s</td>", page), "times are seconds since the start"


def test_the_page_of_an_unknown_lists_what_was_never_seen(campaign: Path) -> None:
    page = render_run(campaign / "4-unproven").read_text()
    assert "Never seen, though required" in page
    assert "fault pause" in page
    assert "the service on n2 is killed" in page
    assert "n2: process gone" in page


def test_a_campaign_is_decided_over_all_its_runs(campaign: Path) -> None:
    summary = summarize(campaign)
    assert (summary["verdict"], summary["met"]) == ("fail", 2)
    assert [run["verdict"] for run in summary["runs"]] == ["pass", "fail", "fail", "unknown", "unknown"]
    page = render_campaign(campaign, summary).read_text()
    assert "1 violations in 2 judged runs that were expected to pass" in page
    assert "no verdict yet; make it with: ./brownout analyze" in page


def test_the_worth_of_passes_is_the_rule_of_three() -> None:
    runs = [{"expected": "pass", "verdict": "pass"}] * 20
    assert worth_of_campaign(runs) == (
        "0 violations in 20 judged runs that were expected to pass: failure rate below 13.9% at 95 %."
    )
    assert worth_of_campaign([]) == "No run that was expected to pass could be judged."


def test_build_servers_see_unmet_expectations_as_failures_and_unknowns_as_errors(campaign: Path) -> None:
    suite = ElementTree.parse(junit.write(campaign, summarize(campaign))).getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "5",
        "failures": "1",
        "errors": "2",
    }
    outcome = [next((child.tag for child in case if child.tag != "system-out"), "ok") for case in suite]
    assert outcome == ["ok", "ok", "failure", "error", "error"]
