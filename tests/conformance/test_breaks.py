"""Every broken rule is noticed by the rule's own tests."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from docs.generators.conformance import marks, rules
from tests.conformance.breaks import ROOT, breaks, faults
from tests.conformance.broken_tree import BrokenTree, Outcome


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokenTree]:
    """One copy of the project for all breaks that a process tries."""
    with BrokenTree(tmp_path_factory.mktemp("broken")) as tree:
        yield tree


def test_every_break_fits_the_source_and_names_tests_of_its_rule() -> None:
    known, named = {rule["id"] for rule in rules()}, marks()
    assert {one.rule for one in breaks().values()} <= known
    assert [f"{name}: {fault}" for name, one in breaks().items() for fault in faults(one, ROOT, named)] == []


def test_no_break_is_listed_twice() -> None:
    changes = defaultdict(list)
    for name, one in breaks().items():
        changes[one.rule, one.file, one.old, one.new].append(name)
    assert [names for names in changes.values() if len(names) > 1] == []


@pytest.mark.thorough
def test_in_a_copy_of_the_true_source_the_tests_pass(tree: BrokenTree) -> None:
    trial = tree.run(sorted({test for one in breaks().values() for test in one.tests}), limit_s=1800)
    assert trial.outcome is Outcome.SURVIVED, trial.said


def each_break() -> Iterator[ParameterSet]:
    """The names of all breaks; one whose source or whose tests have changed is in every tier."""
    for name, one in breaks().items():
        files = [one.file, *(test.partition("::")[0] for test in one.tests)]
        yield pytest.param(name, marks=pytest.mark.rotating(files=files))


@pytest.mark.rotating(80)
@pytest.mark.parametrize("name", list(each_break()))
def test_the_rules_tests_notice_that_it_is_broken(tree: BrokenTree, name: str) -> None:
    trial = tree.trial(breaks()[name])
    assert trial.outcome is Outcome.KILLED, f"{breaks()[name].why} {trial.said}"
