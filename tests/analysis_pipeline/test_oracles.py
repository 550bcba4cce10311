"""The oracles' record of a simulated run: the verdict uses a complete record, and a missing one is a doubt."""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.checkers.oracles import ANOMALIES, MAY_REST, OF_QUORUM
from analysis.pipeline import analyze
from analysis.verdict import Check, Verdict
from history.seal import seal
from simulator.oracles import ORACLES
from tests.analysis_pipeline.stored_run import StoredRun

RUN = {"run": "run", "steps": 900}
COMPARED: dict[str, object] = dict.fromkeys(ORACLES, 5)
WHOLE = {**RUN, "looks": 300, "checks": COMPARED, "findings": []}
FINDING = {
    "oracle": "leader-incomplete",
    "topic": "log",
    "partition": 0,
    "at": 3.25,
    "sentence": "log-0: n2 leads in epoch 4 without offset 7 of epoch 3, which is committed",
    "witness": [{"node": "n2", "leads": 4, "offset": 7, "last_offset": 7, "epoch": 3}],
    "count": 2,
}


def judged(directory: Path, record: Any, **changes: Any) -> tuple[Verdict, Check]:
    """A run that is whole but for the record of its oracles."""
    path = StoredRun(directory / "run", world="simulation", **changes).write()
    (path / "simulation.json").write_text(json.dumps(RUN))
    if record is not None:
        (path / "history" / "oracles.json").write_text(record if isinstance(record, str) else json.dumps(record))
    seal(path)
    verdict = analyze(path, engine="in-process", plots=False)
    return verdict, next(check for check in verdict.checks if check.name == "oracles")


def test_a_record_without_findings_is_a_pass(tmp_path: Path) -> None:
    verdict, said = judged(tmp_path, WHOLE)
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    assert said.detail == f"{5 * len(ORACLES)} comparisons by {len(ORACLES)} oracles over 900 steps"


def test_a_pass_states_the_number_of_comparisons_of_partitions(tmp_path: Path) -> None:
    of_quorum = {**dict.fromkeys(ORACLES, 1), **dict.fromkeys((*OF_QUORUM, "committed-not-durable"), 5)}
    _, said = judged(tmp_path, {**WHOLE, "of_quorum": of_quorum})
    of_partitions = 4 * (len(ORACLES) - len(OF_QUORUM) - 1)
    assert said.detail.endswith(f" steps, {of_partitions} of them of partitions (none by committed-not-durable)")


def test_a_finding_is_an_anomaly_with_its_witness_and_its_moment(tmp_path: Path) -> None:
    verdict, _ = judged(tmp_path, {**WHOLE, "findings": [FINDING]})
    assert verdict.verdict == "fail"
    (found,) = verdict.anomalies
    assert (found.name, found.promise, found.where, found.count) == ("leader-incomplete", "ORC", "log-0", 2)
    assert found.sentence == f"{FINDING['sentence']} (3.250 s after the simulation started)"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "history/oracles.json is missing: nothing says what the oracles saw"),
        ("{", "history/oracles.json cannot be read"),
        ({key: value for key, value in WHOLE.items() if key != "checks"}, "missing required field `checks`"),
        ({key: value for key, value in WHOLE.items() if key != "run"}, "missing required field `run`"),
        ({**WHOLE, "run": "other"}, "history/oracles.json is of the run 'other', run.toml of 'run'"),
        ({**WHOLE, "looks": 0}, "the oracles never looked"),
        ({**WHOLE, "checks": {}}, "history/oracles.json says nothing of the oracle epoch-fell"),
        ({**WHOLE, "checks": {**COMPARED, "other": 5}}, "speaks of other, which is not an oracle"),
        ({**WHOLE, "checks": {**COMPARED, "epoch-fell": "5"}}, "history/oracles.json cannot be read"),
        ({**WHOLE, "checks": dict.fromkeys(ORACLES, 0)}, "the oracle epoch-fell compared nothing"),
        ({**WHOLE, "checks": {**COMPARED, "log-mismatch": 0}}, "the oracle log-mismatch compared nothing"),
        ({**WHOLE, "findings": {}}, "history/oracles.json cannot be read"),
        ({**WHOLE, "findings": [{"oracle": "epoch-fell"}]}, "history/oracles.json cannot be read"),
        ({**WHOLE, "findings": [{**FINDING, "oracle": "other"}]}, "speaks of other, which is not an oracle"),
        ({**WHOLE, "run": "other", "findings": [FINDING]}, "history/oracles.json is of the run 'other'"),
    ],
    ids=[
        "absent",
        "torn",
        "short of a key",
        "short of its name",
        "another run's",
        "blind",
        "lacking an oracle",
        "with a strange oracle",
        "with no number",
        "without any comparison",
        "with an oracle without comparisons",
        "with findings of no kind",
        "with half a finding",
        "with a finding without an oracle",
        "with a finding of another run",
    ],
)
def test_a_gap_in_the_record_leaves_the_run_undecided(tmp_path: Path, record: Any, reason: str) -> None:
    verdict, said = judged(tmp_path, record)
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert said.verdict == "unknown"
    assert any(reason in each for each in verdict.reasons), verdict.reasons


OF_SEVERAL = ("leads-unheard", "quorum-request-would-be-taken", "isr-would-be-granted", "fetch-would-be-counted")
"""What these look at, any three voters and three replicas have."""


@pytest.mark.parametrize("oracle", [*OF_SEVERAL, "commit-would-be-taken"])
def test_an_oracle_with_work_must_have_comparisons(oracle: str, tmp_path: Path) -> None:
    has_group = oracle not in OF_SEVERAL
    verdict, said = judged(tmp_path, {**WHOLE, "checks": {**COMPARED, oracle: 0}}, has_group=has_group)
    assert (verdict.verdict, said.verdict) == ("unknown", "unknown")
    assert f"the oracle {oracle} compared nothing" in verdict.reasons


def test_one_voter_alone_is_a_majority(tmp_path: Path) -> None:
    record = {**WHOLE, "checks": {**COMPARED, "leads-unheard": 0}}
    verdict, said = judged(tmp_path, record, settings={"quorum.voters": "1"})
    assert verdict.verdict == "pass", verdict.reasons
    assert "leads-unheard had nothing to compare: one voter alone is a majority" in said.detail


@pytest.mark.parametrize("oracle", [name for name in MAY_REST if name not in OF_SEVERAL])
def test_an_optional_oracle_without_comparisons_is_named(oracle: str, tmp_path: Path) -> None:
    verdict, said = judged(tmp_path, {**WHOLE, "checks": {**COMPARED, oracle: 0}})
    assert verdict.verdict == "pass", verdict.reasons
    assert f"{oracle} had nothing to compare" in said.detail


def test_a_finding_remains_a_failure_when_another_oracle_made_no_comparison(tmp_path: Path) -> None:
    verdict, _ = judged(tmp_path, {**WHOLE, "checks": {**COMPARED, "epoch-fell": 0}, "findings": [FINDING]})
    assert verdict.verdict == "fail"
    assert any("epoch-fell compared nothing" in each for each in verdict.reasons)


@pytest.mark.parametrize("summary", ["", "{}", "[]"], ids=["empty", "empty object", "no summary"])
def test_a_record_without_comparisons_is_unknown(summary: str, tmp_path: Path) -> None:
    path = StoredRun(tmp_path / "run", world="simulation").write()
    (path / "simulation.json").write_text(summary)
    (path / "history" / "oracles.json").write_text(json.dumps({**WHOLE, "findings": [FINDING]}))
    seal(path)
    verdict = analyze(path, engine="in-process", plots=False)
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert any("simulation.json cannot be read" in each for each in verdict.reasons)


def test_a_summary_of_another_run_leaves_the_run_undecided(tmp_path: Path) -> None:
    judged(tmp_path, {**WHOLE, "findings": [FINDING]})
    (tmp_path / "run" / "simulation.json").write_text(json.dumps({**RUN, "run": "other"}))
    seal(tmp_path / "run")
    verdict = analyze(tmp_path / "run", engine="in-process", plots=False)
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert "simulation.json is of the run 'other', run.toml of 'run'" in " ".join(verdict.reasons)


def test_the_simulations_summary_is_sealed(tmp_path: Path) -> None:
    judged(tmp_path, WHOLE)
    path = tmp_path / "run"
    (path / "simulation.json").write_text(json.dumps({**RUN, "simulated_s": 1}))
    verdict = analyze(path, engine="in-process", plots=False)
    assert any("simulation.json was" in each for each in verdict.reasons)


def test_oracles_do_not_apply_outside_the_simulation(tmp_path: Path) -> None:
    verdict = analyze(StoredRun(tmp_path / "run").write(), engine="in-process", plots=False)
    said = next(check for check in verdict.checks if check.name == "oracles")
    assert (verdict.verdict, said.verdict) == ("pass", "n/a")


def test_the_analysis_has_the_same_oracles_as_the_simulator() -> None:
    assert {kind.name for kind in ANOMALIES} == set(ORACLES)
    assert all(kind.guards for kind in ANOMALIES)
