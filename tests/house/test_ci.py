"""`.ci/run` with programs that only record how they are called: what it runs, in which order, and what fails it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT

CAMPAIGN = "test -- -m vm -rs tests/worlds/test_vagrant_world.py::test_a_campaign_passes_on_an_emulated_machine"
IS_DEBIAN = Path("/etc/debian_version").exists()


def ran(directory: Path, *, minutes: int = 60, user: int = 0, does: str = ":") -> tuple[list[str], str, int]:
    """The calls of `brownout` in their order, the output and the exit code. `does`: a shell command for each call."""
    shutil.copytree(PROJECT_ROOT / ".ci", directory / ".ci")
    programs = {
        "brownout": f'echo "$*" >> {directory}/calls\n{does}',
        "bin/id": f"echo {user}",
        ".venv/bin/ruff": ":",
        ".venv/bin/mypy": ":",
    }
    for name, text in programs.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    around = {**os.environ, "PATH": f"{directory}/bin:{os.environ['PATH']}", "BROWNOUT_CI_MINUTES": str(minutes)}
    done = subprocess.run([directory / ".ci/run"], env=around, capture_output=True, text=True, timeout=60)
    return (directory / "calls").read_text().splitlines(), done.stdout + done.stderr, done.returncode


@pytest.mark.skipif(not IS_DEBIAN, reason="the script boots machines on Debian only")
def test_the_campaign_on_a_machine_precedes_the_rest_of_the_tests(tmp_path: Path) -> None:
    calls, _, code = ran(tmp_path)
    assert code == 0
    assert calls[:3] == ["doctor", "install-packages sudo", "test"]
    assert calls[3:6] == ["install-packages qemu-system-x86", "image build", CAMPAIGN]
    assert calls[6] == "test --rest"
    assert calls[7].startswith("test -- -m vm -rs --deselect")


@pytest.mark.skipif(not IS_DEBIAN, reason="the script boots machines on Debian only")
def test_the_campaign_on_a_machine_is_run_however_short_the_time_is(tmp_path: Path) -> None:
    calls, output, code = ran(tmp_path, minutes=1)
    assert (code, calls[-1]) == (0, CAMPAIGN)
    assert "left out: the rest of the tests: " in output
    assert "left out: the other tests on virtual machines: " in output


@pytest.mark.skipif(not IS_DEBIAN, reason="the script boots machines on Debian only")
def test_a_skipped_campaign_on_a_machine_fails(tmp_path: Path) -> None:
    calls, output, code = ran(
        tmp_path, does="case \"$*\" in *passes_on_an_emulated_machine) echo '1 skipped in 0.1s' ;; esac"
    )
    assert (code, calls[-1]) == (1, CAMPAIGN)
    assert "was skipped" in output


def test_virtual_machines_are_left_out_without_root(tmp_path: Path) -> None:
    calls, output, code = ran(tmp_path, user=1000)
    assert (code, calls) == (0, ["doctor", "test", "test --rest"])
    assert "left out: virtual machines: installing what they need takes root on a Debian system" in output


@pytest.mark.parametrize(
    ("does", "code"),
    [("echo '12 passed'; exit 124", 0), ("echo 'FAILED tests/x.py::test_y'; exit 124", 124), ("exit 1", 1)],
)
def test_the_time_limit_hides_no_failure(tmp_path: Path, does: str, code: int) -> None:
    _, output, ended = ran(tmp_path, user=1000, does=f'case "$*" in *--rest) {does} ;; esac')
    assert ended == code
    assert ("left out: the rest of the tests, after the last progress line" in output) == (code == 0)
