"""The outcome of a break: killed, not killed, or did not run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.breaks import BadTableError, Break, faults, read
from tests.conformance.broken_tree import BrokenTree, Outcome

RULE = "def larger(a, b):\n    return a if a > b else b\n"
TESTS = """
from rule import larger

def test_the_larger_of_two():
    assert larger(1, 2) == 2

def test_of_equals():
    assert larger(2, 2) == 2
"""
MARKS = {"R-1": ["test_rule.py::test_the_larger_of_two", "test_rule.py::test_of_equals"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one rule and its tests."""
    root = tmp_path / "true"
    root.mkdir()
    (root / "rule.py").write_text(RULE)
    (root / "test_rule.py").write_text(TESTS)
    return root


@pytest.fixture
def tree(project: Path, tmp_path: Path) -> Iterator[BrokenTree]:
    with BrokenTree(tmp_path / "copy", project) as tree:
        yield tree


def change(old: str, new: str, *tests: str) -> Break:
    return Break("R-1", "rule.py", old, new, "is wrong", list(tests or MARKS["R-1"]))


def test_a_break_that_a_test_notices_is_killed_and_leaves_no_trace(tree: BrokenTree, project: Path) -> None:
    trial = tree.trial(change("a > b", "a < b"))
    assert trial.outcome is Outcome.KILLED
    assert "test_the_larger_of_two" in trial.said
    assert tree.run(MARKS["R-1"]).outcome is Outcome.SURVIVED
    assert (project / "rule.py").read_text() == RULE


def test_a_break_that_no_test_notices_has_survived(tree: BrokenTree) -> None:
    assert tree.trial(change("a > b", "a >= b")).outcome is Outcome.SURVIVED
    assert tree.trial(change("a > b", "a < b", "test_rule.py::test_of_equals")).outcome is Outcome.SURVIVED


def test_each_break_is_tried_even_when_it_is_as_long_as_the_last_one(tree: BrokenTree) -> None:
    wrong, equal = change("else b", "else a"), change("a > b else", "b > a else")
    harmless = change("a if a > b else b", "b if b > a else a")
    assert [tree.trial(one).outcome for one in (wrong, harmless, equal)] == ["killed", "survived", "killed"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        pytest.param("a if a > b else c", "NameError", id="a name that is not there"),
        pytest.param("a if a >", "SyntaxError", id="no program"),
        pytest.param("a\nimport nowhere", "nowhere", id="an import of a missing name"),
        pytest.param("a.magnitude", "AttributeError", id="an attribute that is not there"),
        pytest.param("later()\ndef later():\n    raise TimeoutError", "TimeoutError", id="a wait that was in vain"),
    ],
)
def test_a_break_with_a_mistake_is_not_killed(tree: BrokenTree, new: str, said: str) -> None:
    trial = tree.trial(change("a if a > b else b", new))
    assert trial.outcome is Outcome.DID_NOT_RUN
    assert said in trial.said


def test_a_test_that_hangs_or_is_missing_does_not_kill_a_break(project: Path, tmp_path: Path) -> None:
    (project / "test_rule.py").write_text("import threading\ndef test_for_ever():\n    threading.Event().wait()\n")
    with BrokenTree(tmp_path / "copy", project) as tree:
        for test in ("test_rule.py::test_for_ever", "test_rule.py::test_of_equals"):
            assert tree.run([test], limit_s=2).outcome is Outcome.DID_NOT_RUN


def test_a_skipped_test_does_not_kill_a_break(project: Path, tmp_path: Path) -> None:
    (project / "test_rule.py").write_text("import pytest\ndef test_it():\n    pytest.skip('no root here')\n")
    with BrokenTree(tmp_path / "copy", project) as tree:
        trial = tree.run(["test_rule.py::test_it"])
    assert (trial.outcome, trial.said) == (Outcome.DID_NOT_RUN, "all tests were skipped")


def test_an_error_of_a_fixture_does_not_kill_a_break(project: Path, tmp_path: Path) -> None:
    (project / "test_rule.py").write_text(
        "import pytest\n@pytest.fixture\ndef gone():\n    assert False\ndef test_it(gone):\n    pass\n"
    )
    with BrokenTree(tmp_path / "copy", project) as tree:
        assert tree.run(["test_rule.py"]).outcome is Outcome.DID_NOT_RUN


def test_a_break_of_a_source_that_has_changed_is_named(project: Path, tree: BrokenTree) -> None:
    stale = change("a != b", "a == b")
    assert list(faults(stale, project, MARKS)) == ["R-1: `old` occurs 0 times in rule.py, not once: 'a != b'"]
    with pytest.raises(ValueError, match=r"R-1: .*rule\.py"):
        tree.trial(stale)
    assert "occurs 3 times" in next(faults(change(" b", " a"), project, MARKS))


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (change("a > b", "a >"), "no program"),
        (change("a > b", "(a > b)"), "changes nothing"),
        (change("a > b", "a < b", "test_rule.py::test_that_is_gone"), "test_that_is_gone"),
        (Break("R-1", "gone.py", "a", "b", "is wrong", MARKS["R-1"]), "there is no gone.py"),
        (Break("R-2", "rule.py", "a > b", "a < b", "is wrong", MARKS["R-1"]), "conforms('R-2')"),
        (Break("R-1", "rule.py", "a > b", "a < b", "is wrong", []), "names no tests"),
    ],
)
def test_a_break_without_effect_is_named(project: Path, one: Break, fault: str) -> None:
    assert fault in next(faults(one, project, MARKS))


def test_a_good_break_has_no_faults(project: Path) -> None:
    assert list(faults(change("a > b", "a < b"), project, MARKS)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[break]\n", "table.toml: "),
        ("", "table.toml: has no [[break]]"),
        ('[[break]]\nrule = "R-1"\n', "missing required field `file`"),
        ('[[break]]\nrule = "R-1"\nmutant = "x"\n', "unknown field `mutant`"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "table.toml"
    table.write_text(text)
    with pytest.raises(BadTableError, match=r"table\.toml") as caught:
        read(table)
    assert said in str(caught.value)
