"""`brownout test`: the project's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from installation.files import PROJECT_ROOT, is_installed
from orchestrator.errors import UsageError

WHOLE: Final = ("-n", "logical", "--dist", "loadfile")
"""All tests on all cores: the tests of a file stay together, in its order, since they share what is dear to make."""


def main(arguments: list[str]) -> int:
    """Run pytest on the project, on all cores unless there are arguments; its exit code becomes 0 or 1.

    Raises `UsageError` where there are no tests.
    """
    if is_installed():
        raise UsageError("the tests come with a checkout, not with the installed package: run ./brownout test there")
    given = (arguments[1:] if arguments[:1] == ["--"] else arguments) or WHOLE
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    result = subprocess.run([sys.executable, "-m", "pytest", *given], cwd=PROJECT_ROOT, env=environment, check=False)
    return min(result.returncode, 1)
