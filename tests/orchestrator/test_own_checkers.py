"""Checkers of a campaign's own, from its file to the gate: what docs/own-checkers.md says."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from tests.orchestrator.stored_campaign import Answer, ask
from tests.orchestrator.users_tests import assert_tests_pass

PAGE = (PROJECT_ROOT / "docs/own-checkers.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
STRICT = "took_s > 5"
NEVER = "took_s > 0"
CELL = '\n[[cell]]\nname = "main"\nexpect = { verdict = "fail", anomaly = "late-append" }\n'


def written(directory: Path, change: Callable[[str], str] = str, campaign: Callable[[str], str] = str) -> Path:
    for name, text in FILES.items():
        (directory / name).write_text({"prompt.py": change, "prompt.toml": campaign}.get(name, str)(text))
    return directory / "prompt.toml"


def short(campaign: str) -> str:
    """With the least load that has a fault."""
    return campaign.replace("duration_s = 10", "duration_s = 4")


def run(path: Path, *options: str) -> Answer:
    return ask("run", path, "--store", path.parent / "store", "--engine", "in-process", "--no-plots", *options)


def test_the_example_of_the_page_passes_and_is_judged_by_the_stored_text(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert run(path).code == 0
    (description,) = tmp_path.glob("store/prompt/*-main-1/run.toml")
    assert tomllib.loads(description.read_text())["checkers"] == {"prompt.py": FILES["prompt.py"]}
    (tmp_path / "prompt.py").unlink()
    assert ask("gate", tmp_path / "store", "--again", "--engine", "in-process").code == 0


@pytest.mark.parametrize("name", ["late-append", "own-promise-broken"])
def test_an_expected_contradiction_meets_its_cell(tmp_path: Path, name: str) -> None:
    cell = CELL.replace("late-append", name)
    path = written(tmp_path, lambda text: text.replace(STRICT, NEVER), lambda text: short(text) + cell)
    answer = run(path)
    assert answer.code == 0, answer
    assert ask("gate", tmp_path / "store").code == 0


def test_a_contradiction_fails_a_cell_that_must_pass(tmp_path: Path) -> None:
    answer = run(written(tmp_path, lambda text: text.replace(STRICT, NEVER), short))
    assert answer.code == 1
    assert "late-append: prompt.py:Prompt: " in answer.out


def test_a_checker_that_fails_leaves_the_campaign_unknown(tmp_path: Path) -> None:
    answer = run(written(tmp_path, lambda text: text.replace("append.ret", "append.returned"), short))
    assert answer.code == 2
    assert "prompt.py:13: AttributeError: an operation has no column 'returned'" in answer.out


WRONG: dict[str, tuple[Callable[[str], str], Callable[[str], str], str]] = {
    "no such file": (str, lambda text: text.replace("prompt.py:", "none.py:"), "none.py: No such file or directory"),
    "no such class": (str, lambda text: text.replace(":Prompt", ":Late"), "has no Late"),
    "no class named": (str, lambda text: text.replace(":Prompt", ""), 'of the form "parser.py:Class"'),
    "a syntax error": (lambda text: text.replace("def check", "def"), str, "prompt.py:11: "),
    "a file beside it": (lambda text: "import prompt_helper\n" + text, str, "prompt.py:1: ModuleNotFoundError"),
    "not UTF-8": (str, str, "save it as UTF-8"),
    "the name of an anomaly of Brownout": (
        lambda text: text.replace("late-append", "not-converged"),
        str,
        "prompt.py:Prompt declares 'not-converged', an anomaly of Brownout; choose another name",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_checker_ends_the_command_before_anything_starts(tmp_path: Path, wrong: str) -> None:
    change, campaign, message = WRONG[wrong]
    path = written(tmp_path, change, campaign)
    (tmp_path / "prompt_helper.py").write_text("")
    if wrong == "not UTF-8":
        (tmp_path / "prompt.py").write_bytes(b"# \xff\n")
    (line,) = (number for number, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("use ="))
    answer = run(path)
    assert answer.code == 64
    assert message in answer.err
    assert f"{path}:{line}: " in answer.err
    assert not (tmp_path / "store").exists()


def test_a_cell_expects_declared_anomalies_only(tmp_path: Path) -> None:
    path = written(tmp_path, campaign=lambda text: text + CELL.replace("late-append", "late-apend"))
    answer = run(path)
    assert answer.code == 64
    assert "anomaly: 'late-apend' is not known; did you mean 'late-append'?" in answer.err
    assert not (tmp_path / "store").exists()


def test_a_wrong_checker_causes_one_error(tmp_path: Path) -> None:
    answer = run(written(tmp_path, lambda text: text.replace("def check", "def"), lambda text: text + CELL))
    assert answer.code == 64
    assert "prompt.py:11: " in answer.err
    assert "late-append" not in answer.err


def test_the_test_of_the_page_passes_without_a_run(tmp_path: Path) -> None:
    written(tmp_path)
    assert_tests_pass(tmp_path, "test_prompt.py")


def test_a_reduced_schedule_has_the_checker_wherever_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.command.shrink.CONFIRMED_BY", 1)
    path = written(tmp_path, lambda text: text.replace(STRICT, NEVER), lambda text: short(text) + CELL)
    assert run(path).code == 0
    (stored,) = tmp_path.glob("store/prompt/*-main-1")
    output = tmp_path / "elsewhere" / "small.toml"
    output.parent.mkdir()
    answer = ask("shrink", stored, "--store", tmp_path / "shrunk", "--budget", "2", "--tries", "1", "--output", output)
    assert answer.code == 0, answer
