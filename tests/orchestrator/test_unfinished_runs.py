"""A run that was given up or interrupted has the digest of its evidence beside the plan."""

import subprocess
import sys
from pathlib import Path

import pytest

from history import seal
from installation.files import PROJECT_ROOT
from orchestrator.store.run_digests import read_digests
from tests.orchestrator.test_parallel_runs import campaign

PROGRAM = """
import os, signal, sys
from orchestrator.command.line import main
from orchestrator.errors import RunError
from orchestrator.running import runner

class Unfinished:
    def __init__(self, dependencies):
        self.directory = dependencies.directory.path

    def execute(self):
        (self.directory / "nodes" / "n1").mkdir(parents=True)
        (self.directory / "nodes" / "n1" / "service.log").write_text("the last words")
        if sys.argv[1] == "given-up":
            raise RunError("the cluster did not start")
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        signal.pause()

runner.Run = Unfinished
sys.exit(main(["run", *sys.argv[2:], "--engine", "in-process"]))
"""


@pytest.mark.parametrize("end", ["given-up", "SIGINT", "SIGTERM", "SIGHUP"])
def test_an_unfinished_run_has_its_digest_beside_the_plan(tmp_path: Path, end: str) -> None:
    words = [str(campaign(tmp_path, 1)), "--store", str(tmp_path / "store")]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, end, *words],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode != 0, ended.stdout
    stored = tmp_path / "store" / "short"
    (plan,) = stored.glob("plans/*.digests")
    (run,) = {path.parent for path in stored.glob("*/run.toml")}
    (digest,) = read_digests(stored, plan.stem).values()
    assert (digest.run, digest.evidence) == (run.name, seal.digest(run)), ended.stderr
