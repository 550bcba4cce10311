"""Runs the tests that a user writes, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

from installation.files import PROJECT_ROOT


def assert_tests_pass(directory: Path, tests: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
