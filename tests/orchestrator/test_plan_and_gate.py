"""The expanded matrix, and the decision over the results of its runs."""

import pytest

from analysis.run_row import RunRow
from orchestrator.campaign.plan import expand
from orchestrator.campaign.seed_list import read_seed_list
from orchestrator.errors import UsageError
from orchestrator.gate.decision import decide
from tests.orchestrator.campaigns import campaign

TWO_CELLS = """
[seeds]
first = 3
count = 2
[[cell]]
name = "mutated"
mutants = ["truncate_to_hw"]
expect = { verdict = "fail", anomaly = "lost-acknowledged-write" }
[[cell]]
name = "fixed"
"""


def test_every_cell_meets_every_seed() -> None:
    runs = expand(campaign(TWO_CELLS), "20250101T000000aa")
    assert [run.id for run in runs] == [
        "20250101T000000aa-mutated-3",
        "20250101T000000aa-fixed-3",
        "20250101T000000aa-mutated-4",
        "20250101T000000aa-fixed-4",
    ]
    assert runs[0].replay == "./brownout run campaigns/x.toml --cell mutated --seed 3"
    elsewhere = expand(campaign(TWO_CELLS), "s", where=["--world", "inventory", "--inventory", "my hosts"])[0]
    assert elsewhere.replay == f"{runs[0].replay} --world inventory --inventory 'my hosts'"


def test_all_cells_meet_the_same_schedule_and_every_purpose_has_its_own_seed() -> None:
    mutated, fixed, other, _ = expand(campaign(TWO_CELLS), "s")
    assert mutated.derived_seed("nemesis") == fixed.derived_seed("nemesis")
    assert mutated.derived_seed("nemesis") != other.derived_seed("nemesis")
    assert mutated.derived_seed("nemesis") != mutated.derived_seed("client/producer-1")


def test_cells_and_seeds_can_be_chosen() -> None:
    runs = expand(campaign(TWO_CELLS), "s", cells=["fixed"], seeds=[9])
    assert [run.id for run in runs] == ["s-fixed-9"]
    with pytest.raises(UsageError, match=r"unknown cell 'fix'; did you mean 'fixed'\?"):
        expand(campaign(TWO_CELLS), "s", cells=["fix"])


def entry(run: str, verdict: str, expected: str = "pass", *, met: bool | None = None) -> RunRow:
    return RunRow(run, "main", 1, verdict, expected, met=verdict == expected if met is None else met, reasons=())


@pytest.mark.parametrize(
    ("runs", "verdict", "code"),
    [
        ([entry("a", "pass"), entry("b", "pass")], "pass", 0),
        ([entry("a", "fail", "fail (duplicate)", met=True), entry("b", "pass")], "pass", 0),
        ([entry("a", "pass"), entry("b", "fail")], "fail", 1),
        ([entry("mutant that survived", "pass", "fail (duplicate)")], "fail", 1),
        ([entry("another anomaly", "fail", "fail (duplicate)", met=False)], "fail", 1),
        ([entry("a", "pass"), entry("b", "unknown")], "unknown", 2),
        ([entry("a", "unknown"), entry("b", "fail")], "fail", 1),
        ([], "unknown", 2),
    ],
)
def test_the_gate_decides(runs: list[RunRow], verdict: str, code: int) -> None:
    decision = decide(runs)
    assert (decision.verdict, decision.exit_code) == (verdict, code)


def test_the_gate_names_the_runs_that_closed_it() -> None:
    decision = decide([entry("r1", "pass"), entry("r2", "fail"), entry("r3", "unknown")])
    assert decision.reason == "1 of 3 runs did not meet their expectation: r2 (fail, expected pass)"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("7", [7]), ("1-3", [1, 2, 3]), ("1,3,7", [1, 3, 7]), ("5-6,1,5", [5, 6, 1]), ("0", [0])],
)
def test_a_list_of_seeds(text: str, seeds: list[int]) -> None:
    assert list(read_seed_list(text)) == seeds


def test_runs_are_selected_by_their_cell_and_seed() -> None:
    def selected(*patterns: str) -> list[str]:
        return [run.id for run in expand(campaign(TWO_CELLS), "s", select=patterns)]

    assert selected("fixed-*") == ["s-fixed-3", "s-fixed-4"]
    assert selected("*-4", "mutated-3") == ["s-mutated-3", "s-mutated-4", "s-fixed-4"]
    with pytest.raises(UsageError, match="no run has such a name; names are CELL-SEED, such as mutated-3, fixed-3"):
        selected("fix*-9")
