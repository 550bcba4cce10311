"""The quick tier: which tests it leaves out, and that the commits of a rotation run each of them."""

import subprocess
from itertools import chain
from pathlib import Path

import pytest

from tests.conftest import ON_SPARK, scope_of
from tests.tiers import Selection, selection_of

pytest_plugins = ["pytester"]

SUITE = """
import pytest

def test_plain(): pass

@pytest.mark.thorough
def test_thorough(): pass

@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", [
    pytest.param(f"b{number}", marks=pytest.mark.rotating(files=[f"source/{number}.py"])) for number in range(10)
])
def test_each(name): pass

@pytest.mark.rotating(5)
@pytest.mark.parametrize("name", ["a", "b"])
def test_few(name): pass

@pytest.mark.rotating(2, among="pair")
def test_one(): pass

@pytest.mark.rotating(2, among="pair")
def test_other(): pass

@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_seeded(fault, seed): pass
"""


@pytest.fixture(autouse=True)
def marks(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = rotating\n thorough\n")


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    return pytester.getitems(SUITE)


def chosen(items: list[pytest.Item], rotation: int, *changed: str) -> list[str]:
    kept, left_out = Selection(rotation, frozenset(changed)).choose(items)
    assert sorted([*kept, *left_out], key=items.index) == items
    return [item.name for item in kept]


def test_a_test_without_a_group_is_always_chosen(items: list[pytest.Item]) -> None:
    assert all("test_plain" in chosen(items, rotation) for rotation in range(9))


def test_a_thorough_test_is_never_chosen(items: list[pytest.Item]) -> None:
    assert not any("test_thorough" in chosen(items, rotation) for rotation in range(9))


def test_one_in_four_is_chosen_and_four_rotations_choose_all(items: list[pytest.Item]) -> None:
    parts = [[name for name in chosen(items, rotation) if "each" in name] for rotation in range(4)]
    assert sorted(chain(*parts)) == sorted(f"test_each[b{number}]" for number in range(10))


def test_tests_of_several_functions_take_turns(items: list[pytest.Item]) -> None:
    pairs = [[name for name in chosen(items, rotation) if name in ("test_one", "test_other")] for rotation in range(2)]
    assert pairs == [["test_one"], ["test_other"]]


def test_a_group_of_fewer_tests_than_its_share_has_one_in_every_quick_tier(items: list[pytest.Item]) -> None:
    few = [[name for name in chosen(items, rotation) if "few" in name] for rotation in range(3)]
    assert few == [["test_few[a]"], ["test_few[b]"], ["test_few[a]"]]


def test_files_that_use_spark_run_on_one_worker_and_each_other_file_on_its_own() -> None:
    assert {scope_of(f"{file}::test_it[a]") for file in ON_SPARK} == {"spark"}
    assert scope_of("tests/house/test_tiers.py::test_it[a::b]") == "tests/house/test_tiers.py"


def test_one_seed_of_each_scenario_is_chosen(items: list[pytest.Item]) -> None:
    assert [name for name in chosen(items, 0) if "seeded" in name] == ["test_seeded[kill-0]", "test_seeded[pause-0]"]
    seeds = {name.removesuffix("]")[-1] for rotation in range(5) for name in chosen(items, rotation) if "kill" in name}
    assert seeds == {"0", "1", "2", "3", "4"}


def test_a_test_with_a_changed_file_is_chosen(items: list[pytest.Item]) -> None:
    assert "test_each[b5]" not in chosen(items, 0)
    assert "test_each[b5]" in chosen(items, 0, "source/5.py")


def test_files_that_differ_from_the_main_branch_are_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *author, *arguments], check=True, capture_output=True)

    git("init", "-b", "main")
    for name in ("kept", "committed", "edited"):
        (tmp_path / name).write_text("old")
    git("add", ".")
    git("commit", "-m", "first")
    git("checkout", "-b", "work")
    (tmp_path / "committed").write_text("new")
    git("commit", "-am", "second")
    (tmp_path / "edited").write_text("new")
    (tmp_path / "added").write_text("new")
    assert selection_of(tmp_path).changed == {"committed", "edited", "added"}
    git("checkout", "main", "--force")
    git("merge", "work")
    assert selection_of(tmp_path).changed == {"committed", "added"}, "on the main branch: what the last commit changed"


def test_without_git_no_file_counts_as_changed(tmp_path: Path) -> None:
    assert selection_of(tmp_path) == Selection(0, frozenset())


def test_both_tiers_together_are_all_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """As workers of pytest-xdist choose them, through `tests/conftest.py`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    pytester.makepyfile(SUITE)
    passed = {}
    for tier in ("quick", "rest", "all"):
        result = pytester.runpytest_subprocess("-p", "tests.conftest", "--tier", tier, "-n", "2")
        passed[tier] = result.parseoutcomes()["passed"]
        if tier != "all":
            result.stdout.fnmatch_lines([f"tier {tier}: {26 - passed[tier]} tests were left out*"])
    assert passed["quick"] + passed["rest"] == passed["all"] == 26
