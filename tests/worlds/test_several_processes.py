"""A service of several processes: a fault applies to all of them, and none outlives it."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nemeses import KINDS, Fault, Nemesis
from nemeses.mechanisms.service import see_process
from nemeses.mechanisms.shell import process_script, terminate_script
from orchestrator.machine.ssh import ScriptUnit, SystemdUnit
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.process.lab import ProcessWorld
from systems.service import Place, Service
from tests.worlds.support import StandIns, send
from tests.worlds.test_process_world import alive, until

STAYS = "import signal, time; signal.signal(15, signal.SIG_IGN); open('stays', 'w').close(); time.sleep(600)"
WRAPPERS = {"a script": '"$@"; :', "a script and a session": 'setsid "$@"; :'}


@dataclass(frozen=True)
class Wrapped(StandIns):
    """Stand-ins that a script starts, and does not become."""

    wrapper: str = WRAPPERS["a script"]
    stop_deadline_s: float = 30.0

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        inner = super().service(node, nodes, time_scale)
        command = ("sh", "-c", self.wrapper, "sh", *inner.command)
        return replace(inner, command=command, stop_deadline_s=self.stop_deadline_s)


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ProcessWorld]:
    deployment = Wrapped(wrapper=request.param, stop_deadline_s=1.0 if STAYS in request.param else 30.0)
    made = ProcessWorld(WorldSpec("run", tmp_path / "run", 1, deployment))
    made.up()
    made.start_services()
    yield made
    made.down()


every_wrapper = pytest.mark.parametrize("world", WRAPPERS.values(), ids=WRAPPERS, indirect=True)
by_a_script = pytest.mark.parametrize("world", [WRAPPERS["a script"]], indirect=True)


def main_and_inner(world: ProcessWorld) -> tuple[int, int]:
    main = world.hosts["n1"].service_pid()
    assert main is not None
    return main, int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(main)]))


def is_state(letter: str, pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith(letter)


def is_stopped(pid: int) -> bool:
    return is_state("T", pid)


def test_a_process_of_another_boot_with_the_same_pid_and_tick_is_another_one(tmp_path: Path) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("e98edabd-47d1-4ea9-bc7e-b3139a2bf9c0\n")
    script = process_script(os.getpid())
    again = script.replace("/proc/sys/kernel/random/boot_id", str(boot_id))
    assert again != script
    now, before = (subprocess.check_output(["sh", "-c", each], text=True) for each in (script, again))
    ticks = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    assert now.splitlines()[0] == f"start={ticks}@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    assert before.splitlines()[0] == f"start={ticks}@{boot_id.read_text().strip()}"


@every_wrapper
def test_a_pause_stops_all_of_them(world: ProcessWorld) -> None:
    nemesis, fault = Nemesis(world.site), Fault("pause", ("n1",))
    both = main_and_inner(world)
    evidence = nemesis.inject(fault)
    assert evidence.status == "confirmed", evidence
    assert evidence.detail["n1"]["others"] == str(both[1])
    assert all(map(is_stopped, both))
    assert nemesis.heal(fault).status == "confirmed"
    assert not any(map(is_stopped, both))
    send(world.nodes[0], "awake")


@by_a_script
def test_a_pause_that_one_of_them_did_not_keep_is_a_mismatch(world: ProcessWorld) -> None:
    nemesis, fault = Nemesis(world.site), Fault("pause", ("n1",))
    assert nemesis.inject(fault).status == "confirmed"
    os.kill(main_and_inner(world)[1], signal.SIGCONT)
    assert nemesis.heal(fault).status == "mismatch"


@every_wrapper
def test_a_kill_ends_all_of_them(world: ProcessWorld) -> None:
    nemesis, fault = Nemesis(world.site), Fault("kill", ("n1",))
    both = main_and_inner(world)
    evidence = nemesis.inject(fault)
    assert evidence.status == "confirmed", evidence
    assert not any(map(alive, both))
    assert nemesis.heal(fault).status == "confirmed"
    assert not set(both) & set(main_and_inner(world))
    send(world.nodes[0], "here again")


@by_a_script
@pytest.mark.parametrize("name", ["HUP", "SEGV"])
def test_a_kill_with_another_signal_ends_the_main_process_by_it(world: ProcessWorld, name: str) -> None:
    nemesis, fault = Nemesis(world.site), Fault("kill", ("n1",), parameters={"signal": name})
    both = main_and_inner(world)
    evidence = nemesis.inject(fault)
    assert evidence.status == "confirmed", evidence
    assert evidence.detail["n1"]["left"].split() == [str(both[1])]
    assert world.hosts["n1"].service_exit(both[0]) == 128 + getattr(signal, f"SIG{name}")
    assert not any(map(alive, both))
    assert nemesis.heal(fault).status == "confirmed"


@pytest.mark.parametrize("world", [f'trap "" HUP; {WRAPPERS["a script"]}'], indirect=True)
def test_a_kill_with_a_signal_that_is_ignored_is_a_mismatch(world: ProcessWorld) -> None:
    site = replace(world.site, stop_deadline_s=0.5)
    evidence = Nemesis(site).inject(Fault("kill", ("n1",), parameters={"signal": "HUP"}))
    assert evidence.status == "mismatch", evidence
    assert all(map(alive, main_and_inner(world)))


@every_wrapper
def test_a_stop_ends_remaining_processes_of_a_service_and_reports_them(world: ProcessWorld) -> None:
    nemesis, fault = Nemesis(world.site), Fault("stop", ("n1",))
    both = main_and_inner(world)
    evidence = nemesis.inject(fault)
    assert evidence.status == "confirmed", evidence
    assert evidence.detail["n1"]["left"].split() == [str(both[1])]
    assert "child processes that outlived it were ended: 1" in KINDS["stop"].proof(evidence.detail, {})
    assert not any(map(alive, both))
    assert nemesis.heal(fault).status == "confirmed"


@pytest.mark.parametrize("world", [f'python3 -c "{STAYS}" & exec "$@"'], indirect=True)
def test_a_process_past_the_stop_deadline_is_killed_and_the_stop_is_a_mismatch(world: ProcessWorld) -> None:
    until(Path(world.nodes[0].data_dir, "stays").exists)
    both = main_and_inner(world)
    assert until(lambda: is_state("S", both[1])), "it does what it will do at the deadline"
    evidence = Nemesis(world.site).inject(Fault("stop", ("n1",)))
    assert evidence.status == "mismatch"
    assert evidence.detail["n1"]["state"] == "S"
    assert until(lambda: not any(map(alive, both)))


@by_a_script
def test_at_the_end_of_a_run_every_process_gets_sigterm(world: ProcessWorld) -> None:
    main, inner = main_and_inner(world)
    assert world.stop_services() == {"n1": main}
    assert not alive(inner)
    assert world.left_behind == {"n1": str(inner)}


@by_a_script
def test_a_service_does_not_start_beside_remaining_processes(world: ProcessWorld) -> None:
    main, inner = main_and_inner(world)
    os.kill(main, signal.SIGKILL)
    assert until(lambda: see_process(world.hosts["n1"]) is None)
    assert alive(inner)
    world.start_service(world.nodes[0])
    assert not alive(inner)
    said = Path(world.nodes[0].service_log).read_text()
    assert f"brownout: killed what the service had left behind: {inner}\n" in said


def sh(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)


UNHEEDING = """sh -c 'trap "" TERM; echo $$; kill -STOP $$; exec sleep 600' & wait"""
LATE = 'kill() { [ "$1$late" != -9 ] || { late=yes; set -- -CONT "$2"; }; command kill "$@"; }'
"""A kill with a first SIGKILL that only wakes its target."""


def test_remaining_processes_are_reported_with_their_state_at_the_deadline() -> None:
    main = subprocess.Popen(["sh", "-c", UNHEEDING], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert main.stdout is not None, "opened as a pipe"
    with main:
        try:
            left = int(main.stdout.readline())
            assert until(lambda: is_stopped(left))
            lines = sh(f"{LATE}\n{terminate_script(main.pid, '127.0.0.1', 1, 1)}").stdout.splitlines()
            assert (f"left= {left}" in lines, "state=T" in lines, alive(left)) == (True, True, False), lines
        finally:
            os.killpg(main.pid, signal.SIGKILL)


def test_a_service_on_machines_does_not_start_beside_remaining_processes(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    script = f"sleep 600 & echo $! > {inner}; wait"
    unit = ScriptUnit(("sh", "-c", script), str(tmp_path), str(tmp_path / "log"), str(tmp_path / "service.pid"))

    def start() -> tuple[int, int]:
        inner.unlink(missing_ok=True)
        assert sh(unit.start_script()).returncode == 0
        return int(sh(unit.pid_script()).stdout), int(until(inner.read_text))

    main, left = start()
    os.kill(main, signal.SIGKILL)
    assert until(lambda: not sh(unit.pid_script()).stdout.strip())
    again = start()
    try:
        assert not alive(left)
        assert all(map(alive, again))
        assert (tmp_path / "log").read_text() == f"brownout: killed what the service had left behind: {left}\n"
    finally:
        os.killpg(again[0], signal.SIGKILL)


@pytest.mark.parametrize(
    ("main", "group", "systemd", "pid"),
    [("42", "42 43", "", "42"), ("42", "43", "0", ""), ("7", "42", "42", "42"), ("42", "", "", "")],
    ids=["it runs", "it left another behind", "it has not announced its identity", "it does not run"],
)
def test_only_the_main_process_of_a_systemd_service_counts(
    tmp_path: Path, main: str, group: str, systemd: str, pid: str
) -> None:
    procs = tmp_path / "system.slice/brownout-service.service/cgroup.procs"
    procs.parent.mkdir(parents=True)
    procs.write_text("".join(f"{each}\n" for each in group.split()))
    (tmp_path / "service.main").write_text(f"{main}\n")
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\necho {systemd}\n")
    (tmp_path / "systemctl").chmod(0o755)
    script = SystemdUnit(directory=str(tmp_path)).pid_script().replace("/sys/fs/cgroup", str(tmp_path))
    assert sh(f"PATH={tmp_path}:$PATH\n{script}").stdout.strip() == pid
