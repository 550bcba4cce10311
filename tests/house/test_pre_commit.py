""".pre-commit-config.yaml: hooks without a network, with commands that exist and accept their arguments."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = {"id", "name", "entry", "language"}
KNOWN = REQUIRED | {"types_or", "pass_filenames", "require_serial"}


def hooks() -> list[dict[str, Any]]:
    content = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in content["repos"]] == ["local"], "another repository would have to be fetched"
    return [hook for repo in content["repos"] for hook in repo["hooks"]]


def test_the_hooks_are_those_of_the_tree_check() -> None:
    assert [hook["name"] for hook in hooks()] == ["ruff format", "ruff check", "mypy"]


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: str(hook["id"]))
def test_a_hook_is_well_formed(hook: dict[str, Any]) -> None:
    assert hook.keys() >= REQUIRED
    assert hook.keys() <= KNOWN
    assert hook["language"] == "system"


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: str(hook["id"]))
def test_a_hooks_command_exists_and_accepts_its_options(hook: dict[str, Any]) -> None:
    program, *arguments = hook["entry"].split()
    assert program.startswith(".venv/bin/")
    if not (ROOT / program).exists():
        pytest.skip(f"{program} is not there: the environment is in another place")
    done = subprocess.run([program, *arguments, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
