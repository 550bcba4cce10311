"""What a run needs before its first acknowledged operation does not bring what only its judgement needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pyarrow", "pandas", "matplotlib", "pyspark"}

READS_A_CAMPAIGN = "from orchestrator.command import line; line.main(['run', 'campaigns/demo.toml', '--dry-run'])"
DESCRIBES_A_RUN = "import orchestrator.running.run, orchestrator.running.description"


@pytest.mark.parametrize("program", [READS_A_CAMPAIGN, DESCRIBES_A_RUN])
def test_a_run_begins_without_the_libraries_of_the_analysis(program: str) -> None:
    tells = f"{program}\nimport sys\nprint('loaded:', *sorted({HEAVY!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", tells], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "loaded:"
