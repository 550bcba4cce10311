"""The project's prose is plain: its count of idioms stays within a budget that only falls."""

from pathlib import Path

import pytest

from tests.house.plain_words import (
    ROOT,
    is_riddle,
    names_of_tests,
    per_10_000,
    project,
    prose_of,
    prose_of_tests,
    riddles,
)

BUDGET = 2.4
"""Idioms in 10,000 words, over the whole project. Lower it with the count; never raise it."""
BUDGET_OF_TESTS = 14.0
"""The same for the comments, docstrings and strings of the tests."""
BUDGET_OF_A_MODULE = 40.0
"""The same for one file."""


def test_the_project_stays_within_its_budget() -> None:
    assert per_10_000(project()) <= BUDGET, "see: .venv/bin/python -m tests.house.plain_words --list"


def test_the_tests_stay_within_their_budget() -> None:
    assert per_10_000(prose_of_tests()) <= BUDGET_OF_TESTS


def test_each_file_stays_within_its_budget() -> None:
    over = {
        str(each.path.relative_to(ROOT)): round(count)
        for each in project()
        if (count := per_10_000([each])) > BUDGET_OF_A_MODULE
    }
    assert over == {}


def test_each_name_of_a_test_is_a_plain_statement() -> None:
    assert riddles() == []


def test_names_of_modules_classes_functions_and_ids_are_checked() -> None:
    names = [name for _, name in names_of_tests()]
    assert {"test_plain_words", "test_names_of_modules_classes_functions_and_ids_are_checked"} <= set(names)


@pytest.mark.parametrize(
    ("name", "riddle"),
    [
        pytest.param("test_nobody_is_told_of_a_dead_leader", True, id="a person"),
        pytest.param("test_what_was_cut_off_is_gone", True, id="a pronoun"),
        pytest.param("test_a_client_connects_anew", True, id="an old word"),
        pytest.param("test_it_restarts", True, id="a start without the component"),
        pytest.param("test_a_truncated_record_is_absent", False, id="a statement"),
        pytest.param("test_begin_quorum_epoch_is_refused", False, id="a term of the protocol"),
    ],
)
def test_idioms_and_pronouns_in_names_count_and_protocol_terms_do_not(name: str, riddle: bool) -> None:
    assert is_riddle(name) is riddle


def test_comments_docstrings_and_messages_count_and_names_do_not(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Nobody asks.\n\nIt was told."""\n'
        "somebody = 'whoever waits'  # made anew\n"
        "told = f'{somebody} tells {told}'\n"
    )
    assert [number for number, _ in prose_of(module).hits] == [1, 3, 4, 4, 5]


def test_the_count_is_in_10_000_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The leader was told to stop, and did so then.\n")
    assert per_10_000([prose_of(page)]) == 1000
