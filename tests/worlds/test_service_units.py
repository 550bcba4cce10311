"""How a service ended is known from its parent: its exit code, or 128 + the number of the signal that ended it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from orchestrator.errors import WorldError
from orchestrator.machine.cgroups import Cgroup
from orchestrator.machine.ssh import ScriptUnit, SystemdUnit
from orchestrator.worlds.base import World
from systems import InputError
from systems.description import read
from tests.nemeses.fakes import FakeHost

PATIENCE_S = 120.0
CONTROL = Path(__file__).resolve().parents[2] / "playbooks/roles/service/templates/service-control.sh.j2"


def sh(script: str) -> str:
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout.strip()


def unit(directory: Path, script: str) -> ScriptUnit:
    return ScriptUnit(("sh", "-c", script), str(directory), str(directory / "log"), str(directory / "service.pid"))


def awaited(script: str) -> str:
    give_up = time.monotonic() + PATIENCE_S
    while not (said := sh(script)) and time.monotonic() < give_up:
        time.sleep(0.02)
    return said


@pytest.mark.parametrize(("script", "status"), [("exit 7", "7"), ("kill -9 $$", "137"), ("true", "0")])
def test_the_parent_of_a_service_keeps_how_it_ended(tmp_path: Path, script: str, status: str) -> None:
    service = unit(tmp_path, script)
    sh(service.start_script())
    assert awaited(service.exit_script(None)) == status
    pid = int((tmp_path / "service.pid").read_text().split()[0])
    assert sh(service.exit_script(pid)) == status
    assert sh(service.exit_script(pid + 1)) == ""


def test_a_running_or_unstarted_service_has_no_exit_status(tmp_path: Path) -> None:
    service = unit(tmp_path, "exec sleep 600")
    assert sh(service.exit_script(None)) == ""
    sh(service.start_script())
    pid = sh(service.pid_script())
    assert pid
    assert sh(service.exit_script(None)) == ""
    sh(f"kill {pid}")
    assert awaited(service.exit_script(None)) == "143"


def test_an_exit_status_is_not_reported_for_a_unit_that_was_not_started(tmp_path: Path) -> None:
    """A start that fails at the remains of the process before, as on a machine that is too busy."""
    inner = tmp_path / "inner"
    service = unit(tmp_path, f"sleep 600 & echo $! > {inner}; exec sleep 600")
    sh(service.start_script())
    left = awaited(f"cat {inner}")  # a start does not wait for what the service starts in its turn
    sh(f"kill -9 {sh(service.pid_script())}")
    assert awaited(service.exit_script(None)) == "137"
    for _ in range(2):
        sh(service.start_script().replace("end_left 0", "false"))
        assert sh(service.exit_script(None)) == ""
    sh(service.start_script())
    words = (tmp_path / "log").read_text()
    assert words == f"brownout: killed what the service had left behind: {left}\n", "it is not forgotten"
    os.killpg(int(sh(service.pid_script())), signal.SIGKILL)


def test_a_service_that_ended_before_the_first_check_does_not_run(tmp_path: Path) -> None:
    """Its shell may hear of its end first: then the moment when it started is not known."""
    ended = subprocess.Popen(["true"])
    ended.wait(PATIENCE_S)
    (tmp_path / "service.pid").write_text(f"{ended.pid} \n")
    assert sh(unit(tmp_path, "true").pid_script()) == ""
    control = CONTROL.read_text().replace("/run/brownout", str(tmp_path)).replace("/run/systemd", "/none")
    (tmp_path / "control").write_text(control.replace("{{", "").replace("}}", ""))
    assert sh(f"sh {tmp_path}/control status") == "off"


@pytest.mark.parametrize(("code", "said", "status"), [("exited", "7", "7"), ("killed", "KILL", "137")])
def test_systemds_unit_writes_down_how_its_service_ended(tmp_path: Path, code: str, said: str, status: str) -> None:
    """In systemd's way, with the exit of the process whose pid the unit's first shell has written."""
    (tmp_path / "service.main").write_text("42\n")
    control = CONTROL.read_text().replace("/run/brownout", str(tmp_path)).replace("{{", "").replace("}}", "")
    (tmp_path / "control").write_text(control)
    sh(f"EXIT_CODE={code} EXIT_STATUS={said} sh {tmp_path}/control ended")
    systemd = SystemdUnit(directory=str(tmp_path))
    assert sh(systemd.exit_script(42)) == sh(systemd.exit_script(None)) == status
    assert sh(systemd.exit_script(7)) == ""


class OneNode(World):
    """One node, whose kernel's log says something."""

    def __init__(self, kernel_log: str) -> None:
        host = FakeHost("n1", lambda command: sh(command.replace("dmesg ||", f"printf %s '{kernel_log}' ||")))
        self._hosts = {"n1": host}

    def collect(self, node: object, destination: Path) -> None:
        raise WorldError(f"nothing of {node} to collect to {destination}")


def test_the_kernel_log_names_the_process_killed_for_lack_of_memory() -> None:
    world = OneNode("[1.0] usb 1-1: new\n[2.0] Out of memory: Killed process 42 (python3) total-vm:1kB\n")
    assert world.kernel_words("n1", 42) == "[2.0] Out of memory: Killed process 42 (python3) total-vm:1kB"
    assert world.kernel_words("n1", 4) == ""


def test_a_control_group_counts_them_or_the_one_above_it(tmp_path: Path) -> None:
    group = Cgroup(tmp_path / "run" / "n1")
    group.path.mkdir(parents=True)
    assert group.oom_kills() == 0
    (tmp_path / "run" / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert group.oom_kills() == 2


SYSTEM = 'name = "x"\nworkloads = ["log"]\n[roles.a]\ncommand = ["a"]\nports = {{ client = 1 }}\n{}\n'


@pytest.mark.parametrize(("text", "codes"), [("", (0, 143)), ("stop_exit_codes = [0, 3]", (0, 3))])
def test_a_system_declares_how_its_services_end(tmp_path: Path, text: str, codes: tuple[int, ...]) -> None:
    (tmp_path / "system.toml").write_text(SYSTEM.format(text))
    assert read(tmp_path).roles["a"].stop_exit_codes == codes


@pytest.mark.parametrize("codes", ["[]", "[256]", '["0"]', "0", "[true]"])
def test_invalid_exit_codes_are_refused(tmp_path: Path, codes: str) -> None:
    (tmp_path / "system.toml").write_text(SYSTEM.format(f"stop_exit_codes = {codes}"))
    with pytest.raises(InputError, match=r"\[roles\.a\] stop_exit_codes: .* exit codes after SIGTERM"):
        read(tmp_path)
