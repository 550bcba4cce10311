"""The documents of a run. The tests of the gate cover the documents of a campaign."""

import re
from pathlib import Path
from typing import Any

import pytest

from analysis.pipeline import analyze
from analysis.plots.render import Mark, Spacetime, moment_of
from analysis.report import TEMPLATES, render_run, worth_of_campaign
from tests.analysis_pipeline.stored_run import StoredRun


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_a_template_is_source_with_short_lines(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > 120] == []


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with a pass, a killed mutant, and an unknown."""
    root = tmp_path_factory.mktemp("store") / "story"
    lost = {"verdict": "fail", "anomaly": "lost-acknowledged-write"}
    for run in (
        StoredRun(root / "1-pass"),
        StoredRun(root / "2-mutant", lost=7, expect=lost),
        StoredRun(root / "4-unproven", fault_status="inconclusive", required=("kill", "pause")),
    ):
        analyze(run.write(), engine="in-process")
    return root


def test_the_page_of_a_pass_states_the_strength_of_its_evidence(campaign: Path) -> None:
    page = render_run(campaign / "1-pass").read_text()
    assert '<span class="badge pass">pass</span>' in page
    assert "40 acknowledged changes under 1 confirmed fault: no violation in this schedule" in page
    assert "./brownout run story.toml --seed 1" in page
    assert "nothing here is real" in page
    assert page.count("data:image/png;base64,") >= 4
    assert 'src="http' not in page


def test_the_page_of_a_failure_shows_the_contradiction_first(campaign: Path) -> None:
    page = render_run(campaign / "2-mutant").read_text()
    assert '<span class="badge fail expected">fail</span>' in page, "an expected fail is not alarming"
    assert page.index("lost-acknowledged-write") < page.index("Faults and the evidence")
    assert "Expected <b>fail (lost-acknowledged-write)</b>" in page
    assert '<td data-label="value">record 1.0.7</td>' in page, "values are named as their producers count them"
    assert re.search(r'<td data-label="[^"]*">\d\.\d{3} s</td>', page), "times are seconds since the start"


def test_the_page_of_a_failure_also_lists_undecided_checks(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", lost=7, fault_status="inconclusive", required=("kill", "pause")).write()
    analyze(run, engine="in-process", plots=False)
    page = render_run(run).read_text()
    why, beside = page.index("<h2>Why</h2>"), page.index("<h2>Undecided in addition</h2>")
    assert why < page.index("<li>lost-acknowledged-write") < beside < page.index("<h2>Run it again</h2>")
    assert "<li>fault f1 (kill) is inconclusive: no proof that it took effect</li>" in page[beside:]
    assert "besides, undecided" not in page


def test_a_page_without_doubts_has_no_place_for_them(campaign: Path) -> None:
    for run in ("1-pass", "2-mutant", "4-unproven"):
        assert "Undecided in addition" not in render_run(campaign / run).read_text()


def test_the_page_of_an_unknown_lists_missing_evidence(campaign: Path) -> None:
    page = render_run(campaign / "4-unproven").read_text()
    assert "Required faults that were never confirmed" in page
    assert "fault pause" in page
    assert "the service on n2 is killed" in page
    assert "n2: process gone" in page


@pytest.mark.parametrize(
    ("kinds", "moment_s"),
    [
        (["leader", "controller", "truncated", "leader", "leader"], 4.0),
        (["leader", "controller", "truncated", "isr"], 3.0),
        (["leader", "controller", "isr"], 2.0),
        (["leader"], 1.5),
    ],
)
def test_the_excerpt_shows_the_event_that_undid_the_operation(kinds: list[str], moment_s: float) -> None:
    """Not a controller that merely changed before it did."""
    marks = tuple(Mark("n1", float(at_s), kind, kind) for at_s, kind in enumerate(kinds, 1))
    spacetime = Spacetime(("n1",), "log-0", (), marks, (), (), end_s=9.0, guilty_s=1.5)
    assert moment_of(spacetime) == moment_s


def test_the_worth_of_passes_is_the_rule_of_three() -> None:
    runs = [_passed(f"s-{number}", number) for number in range(20)]
    assert worth_of_campaign(runs) == (
        "0 violations in 20 decided runs that were expected to pass: failure rate below 13.9% at 95 %."
    )
    assert worth_of_campaign([]) == "No run that was expected to pass could be decided."


def test_a_repeated_simulated_seed_counts_as_one_sample() -> None:
    again = [_passed(f"s-{number}", 7, world="simulation") for number in range(20)]
    assert worth_of_campaign([*again, _passed("t", 8, world="simulation")]) == (
        "0 violations in 2 decided runs that were expected to pass, without 19 that repeated a simulated seed: "
        "failure rate below 77.6% at 95 %."
    )
    other_code = _passed("t", 7, world="simulation", versions={"brownout": "b"})
    assert "in 2 decided runs" in worth_of_campaign([*again, other_code])
    elsewhere = [_passed(f"s-{number}", 7) for number in range(20)]
    assert "in 20 decided runs" in worth_of_campaign(elsewhere), "there chance decides, too"


def _passed(run: str, seed: int, **changes: Any) -> dict[str, Any]:
    said = {"run": run, "cell": "main", "seed": seed, "expected": "pass", "verdict": "pass", "world": "process"}
    return {**said, "versions": {"brownout": "a"}, **changes}
