"""`run --keep` in the namespace world: after the run, the printed commands open its nodes from outside."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT

pytestmark = pytest.mark.root

# One of its nodes cannot be configured, so that nothing is waited for: what is kept is what is looked at.
CAMPAIGN = """
name = "kept"
[topology]
world = "namespaces"
[broker.n2]
"cluster.id" = "another"
"""


@pytest.mark.rotating(13, among="real-time campaigns")
def test_the_printed_command_opens_a_shell_on_a_node(tmp_path: Path) -> None:
    campaign = tmp_path / "kept.toml"
    campaign.write_text(CAMPAIGN)
    command = [sys.executable, "-m", "orchestrator", "run", str(campaign), "--store", str(tmp_path / "store")]
    process = subprocess.Popen(
        [*command, "--engine", "in-process", "--keep", "--quiet"],
        cwd=PROJECT_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        ways = {}
        for line in process.stderr:
            if found := re.match(r"(n\d) at (\S+): (.*)", line):
                ways[found[1]] = found[3]
            if "until Ctrl-C" in line:
                break
        assert list(ways) == ["n1", "n2", "n3"]
        entered = subprocess.run(
            ["bash", "-c", f"{ways['n2']} 'hostname; ls /data/log'"],
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
        )
        assert entered.stdout.split()[0] == "n2"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(180) == 1  # an unexpected exit of a broker is a finding
        refused = subprocess.run(
            ["bash", "-c", f"{ways['n2']} hostname"], capture_output=True, check=False, timeout=180
        )
        assert refused.returncode != 0
    finally:
        process.kill()
        process.communicate()
