"""Format, lint and types: the same commands that a developer runs (docs/development.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=["lint", "format", "types"],
)
def test_the_tree_is_clean(command: tuple[str, ...]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_nothing_syncs_the_whole_machine() -> None:
    """What other runs, and other nodes of the same run, have at stake in memory must stay there: `sync -f`, or
    `orchestrator.machine.syscalls.sync_filesystem`, is for one filesystem."""
    tracked = subprocess.run(["git", "ls-files", "*.py", "*.j2", "*.sh", "brownout"], cwd=ROOT, capture_output=True)
    names = tracked.stdout.decode().splitlines()
    assert names
    whole = re.compile(r"\bos\.sync\(|^\s*sync\s*$", re.MULTILINE)
    assert [name for name in names if whole.search((ROOT / name).read_text(encoding="utf-8"))] == []
