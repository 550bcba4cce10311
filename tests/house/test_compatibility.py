"""docs/compatibility.md has a row for every trial of `python -m tests.compatibility`. (It is run by hand:
it takes minutes, and clients that few machines have.)"""

from tests.compatibility.__main__ import INTRODUCTION, PAGE, TRIALS


def test_the_page_has_every_trial_and_its_outcome() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(INTRODUCTION), "write it with: .venv/bin/python -m tests.compatibility"
    rows = [line.strip("| ").split(" | ") for line in text.removeprefix(INTRODUCTION).splitlines()]
    assert [(row[0], row[2]) for row in rows] == [(trial.client, trial.done) for trial in TRIALS]
    assert {row[3] for row in rows} <= {"works", "broken", "not tried"}
    assert all(len(row) == 5 for row in rows), "the reason, or what was seen"
