"""The scripted campaigns of the project in the namespace world: each cell reaches its expected verdict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.worlds.namespaces import requirements

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_BACK = "but all of it had been written back before"
"""In the reason of a run that is unknown because a disk kept what its power cut was to take."""


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.root
@pytest.mark.conforms("K101-14", "K595-19")
@pytest.mark.parametrize("campaign", ["kip101-scenario1", "kip101-scenario2", "bounce-unseen", "vote-not-persisted"])
def test_the_mutant_is_caught_and_the_fix_holds(campaign: str, tmp_path: Path) -> None:
    missing = requirements.missing()
    if missing:
        pytest.skip(f"the namespace world cannot run here: {missing[0]}")
    result = run(campaign, tmp_path / "first")
    if result.returncode and WRITTEN_BACK in result.stdout:
        # Something else on this machine had the kernel write back what the cut was to take: nothing of the broker.
        result = run(campaign, tmp_path / "again")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "met their expectation" in result.stdout


def run(campaign: str, store: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it becomes a sandbox."""
    words = ["run", campaign, "--store", str(store), "--engine", "in-process", "--no-plots"]
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
