"""The project's prose is plain: its count of idioms stays within a budget that only falls."""

from __future__ import annotations

from pathlib import Path

from tests.house.plain_words import ROOT, per_10_000, project, prose_of

BUDGET = 5.3
"""Idioms in 10,000 words, over the whole project. Lower it with the count; never raise it."""
BUDGET_OF_A_MODULE = 60.0
"""The same for one file of 200 words or more."""


def test_the_project_stays_within_its_budget() -> None:
    assert per_10_000(project()) <= BUDGET, "see: .venv/bin/python -m tests.house.plain_words --list"


def test_each_file_stays_within_its_budget() -> None:
    over = {
        str(each.path.relative_to(ROOT)): round(count)
        for each in project()
        if each.words >= 200 and (count := per_10_000([each])) > BUDGET_OF_A_MODULE
    }
    assert over == {}


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
