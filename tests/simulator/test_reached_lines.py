"""What is told of the lines that simulated runs reach: every campaign has its run, and every reason a module."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

from orchestrator.campaign.file import load
from tests.simulator.reached_lines import (
    DRAWN,
    LEAST,
    PAGE,
    REASONS,
    ROOT,
    Reached,
    Reasons,
    measured,
    modules,
    page,
    runs,
    unexplained,
)


def test_every_reason_is_that_of_a_module_or_a_package() -> None:
    for name in Reasons().all:
        path = ROOT.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), f"{REASONS.name}: there is no {name}"


def test_a_package_has_the_reason_of_its_modules_that_have_none() -> None:
    reasons = Reasons()
    assert reasons.of("broker.security.scram") == reasons.of("broker.security")
    assert reasons.of("broker.replica.leader") is None


def test_every_run_has_a_broker_as_it_should_be_and_what_is_left_over_is_drawn() -> None:
    made = list(islice(runs(), 200))
    assert len(set(made)) == len(made)
    campaigns = {path: load(path) for path in {run.campaign for run in made}}
    for run in made:
        assert not next(cell for cell in campaigns[run.campaign].cells if cell.name == run.cell).mutants
    for campaign in DRAWN:
        drawn = [run.seed for run in made if run.campaign == campaign]
        assert drawn == list(range(1, len(drawn) + 1))
        assert 0 < len(drawn) < 100


def test_the_page_has_a_row_for_each_module_that_is_reached_too_little() -> None:
    told = page(
        [
            Reached("broker.disk", 100, 0, "1-100"),
            Reached("broker.replica.leader", 10, 8, "3-4"),
            Reached("b", 10, 9, ""),
        ],
        list(islice(runs(), 60)),
    )
    assert f"Of 3 modules 1 have {LEAST:.0%} or more; all together 14.2%." in told
    assert "| `broker.replica.leader` | 10 | 80% | **not known** |" in told
    assert "| `broker.disk` | 100 | 0% | the real disk" in told
    assert "| `b` |" not in told
    assert told.endswith("\n90% or more: `b`.\n")


def test_a_module_that_is_on_no_page_or_has_no_reason_is_named() -> None:
    of_all = list(modules())
    assert "broker.replica.leader" in of_all
    assert not any(name.endswith("__main__") for name in of_all)
    made = list(islice(runs(), 60))
    whole = page([Reached(name, 10, 10, "") for name in of_all], made)
    assert unexplained(whole) == []
    assert unexplained(page([Reached(name, 10, 10, "") for name in of_all[1:]], made)) == of_all[:1]
    reasons = Reasons()
    none = page([Reached(name, 10, 0, "1-10") for name in of_all], made)
    assert unexplained(none) == [name for name in of_all if reasons.of(name) is None]


def test_the_page_has_every_module_of_the_broker_or_says_why_not() -> None:
    assert unexplained(PAGE.read_text(encoding="utf-8")) == [], (
        "make it anew with: .venv/bin/python -m tests.simulator.reached_lines --write"
    )


def test_what_a_run_reaches_is_kept_and_counted_again(tmp_path: Path) -> None:
    for _ in range(2):
        told = subprocess.run(
            [sys.executable, "-m", "tests.simulator.reached_lines", "--seeds", "1", "--jobs", "1", "--keep", tmp_path],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "broker.server.sasl_gate" in told.stdout, told.stderr
    assert next(runs()).made(tmp_path).read_text() == "", "it came to its verdict"
    reached = {it.module: it.share for it in measured(tmp_path)}
    assert reached["broker.replica.leader"] > 0.5
    assert reached["broker.server.sasl_gate"] < 0.5
    assert len(list(tmp_path.glob(".reached*"))) == 1, "it was made once"
