"""The modules before a run's first acknowledged operation do not import those of the analysis."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pyarrow", "pandas", "matplotlib", "pyspark"}

READS_A_CAMPAIGN = "from orchestrator.command import line; line.main(['run', 'campaigns/demo.toml', '--dry-run'])"
LISTS_THE_COMMANDS = "from orchestrator.command import line; line.parser().format_help()"
DESCRIBES_A_RUN = "import orchestrator.running.runner"


@pytest.mark.parametrize("program", [READS_A_CAMPAIGN, LISTS_THE_COMMANDS, DESCRIBES_A_RUN])
def test_a_run_starts_without_the_libraries_of_the_analysis(program: str) -> None:
    tells = f"{program}\nimport sys\nprint('loaded:', *sorted({HEAVY!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", tells], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "loaded:"


def test_a_call_imports_the_file_of_its_command_only() -> None:
    program = (
        "import sys; from orchestrator.command import line; line.parser(['docs', 'gate'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('orchestrator.command.')))"
    )

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    commands = {name.split(".")[2] for name in done.stdout.split()}
    assert commands == {"docs", "line", "shared"}
