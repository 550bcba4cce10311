"""Cells that expect a number of failures: losses that need luck."""

from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from msgspec.structs import replace

from analysis.run_row import RunRow
from orchestrator.gate.policy_checks import mutation_score
from tests.orchestrator.gate.deciding import decided
from tests.orchestrator.stored_campaign import StoredCampaign

Changes: TypeAlias = dict[str, Any]
LOSS: Final = '{ verdict = "fail", anomaly = "lost-acknowledged-write", at_least = 2 }'
CELLS: Final = f'[seeds]\ncount = 3\n[[cell]]\nname = "lucky"\nexpect = {LOSS}\n'
PASSES: Final[Changes] = {}
LOSES: Final[Changes] = {"lost": 7}
IS_OPEN: Final[Changes] = {"fault_status": "inconclusive"}


@pytest.mark.parametrize(
    ("runs", "verdict", "failed"),
    [
        ([LOSES, LOSES, LOSES], "pass", "3 of 3"),
        ([LOSES, PASSES, LOSES], "pass", "2 of 3"),
        ([PASSES, LOSES, PASSES], "fail", "1 of 3"),
        ([PASSES, PASSES, PASSES], "fail", "0 of 3"),
        ([LOSES, IS_OPEN, PASSES], "unknown", "1 of 3"),
        ([LOSES, IS_OPEN, LOSES], "unknown", "2 of 3"),
        ([LOSES, None, PASSES], "unknown", "1 of 3"),
    ],
)
def test_a_cell_needs_a_number_of_failures_and_its_other_runs_may_pass(
    runs: list[Changes | None], verdict: str, failed: str, tmp_path: Path
) -> None:
    """None: the run was never made."""
    campaign = StoredCampaign(tmp_path / "store", CELLS)
    for planned, changes in zip(campaign.plan(), runs, strict=True):
        if changes is not None:
            campaign.make(planned, **changes)
    answer = decided(campaign.path)
    assert answer.json["verdict"] == verdict
    (finding,) = answer.json["findings"]
    assert finding["sentence"].startswith(f"cell lucky: {failed} runs failed as expected, at least 2 must")
    assert [run["at_least"] for run in answer.json["runs"]] == [2, 2, 2]


def test_an_invocation_with_too_few_seeds_is_unknown(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", CELLS)
    (planned,) = campaign.plan(seeds=[1])
    campaign.make(planned, **LOSES)
    answer = decided(campaign.path)
    assert answer.json["verdict"] == "unknown"
    assert answer.json["reason"].endswith("at least 2 must; make runs with more seeds")


def test_another_failure_than_the_expected_one_is_a_failure(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", CELLS)
    first, second, third = campaign.plan()
    campaign.make(first, **LOSES)
    campaign.make(second, **LOSES)
    campaign.make(third, exits=(("n1", 1, None, "the broker ended"),))
    assert decided(campaign.path).json["verdict"] == "fail"


@pytest.mark.parametrize(
    ("runs", "killed"), [(["fail", "fail", "pass"], 1), (["fail", "pass", "pass"], 0), (["fail", "unknown", "pass"], 0)]
)
def test_a_mutant_is_killed_by_the_number_of_failures(runs: list[str], killed: int) -> None:
    rows = [
        RunRow(f"r{seed}", "lucky", seed, verdict, "fail (duplicate)", verdict != "unknown", (), at_least=2)
        for seed, verdict in enumerate(runs)
    ]
    assert mutation_score([replace(row, mutants=("late",)) for row in rows]) == (killed, 1)
