"""The process world: plain processes that can be killed and paused, and that end with their orchestrator."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from installation.files import PROJECT_ROOT
from nemeses import KINDS, Fault, Nemesis
from nemeses.mechanisms.service import see_process
from nemeses.ports import HostError, Result
from orchestrator.errors import WorldError
from orchestrator.machine.programs import program
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.process.lab import ProcessWorld, Supervisor
from systems import Deployed, load_system
from systems.service import Place, Service
from tests.worlds.support import DEADLINE_S, STAND_IN, StandIns, send, specification

LOG = "data/topic-0/00000000000000000000.log"

T = TypeVar("T")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProcessWorld]:
    made = ProcessWorld(specification(tmp_path / "run"))
    made.up()
    yield made
    made.down()


def test_brokers_start_stop_and_are_collected(world: ProcessWorld, tmp_path: Path) -> None:
    world.start_services()
    pids = {name: host.service_pid() for name, host in world.hosts.items()}
    assert all(pids.values())
    world.hosts["n1"].start_service()
    assert world.hosts["n1"].service_pid() == pids["n1"], "one that runs is not started again"
    for node in world.nodes:
        send(node, f"from {node.name}")
    world.restart(world.nodes[0])
    world.stop_service(world.nodes[1])
    assert world.hosts["n1"].service_pid() not in (None, pids["n1"])
    assert world.hosts["n2"].service_pid() is None
    for node in world.nodes:
        world.collect(node, tmp_path / "collected" / node.name)
        world.collect(node, node.record_dir)
        assert (node.record_dir / LOG).read_text() == f"from {node.name}\n"
        assert (tmp_path / "collected" / node.name / LOG).read_text() == f"from {node.name}\n"
        assert (tmp_path / "collected" / node.name / "events.jsonl").exists()


def test_an_exit_status_is_not_reported_for_a_service_that_was_not_started(
    world: ProcessWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is too busy to look for what a process has left behind, before the next one is started."""

    def too_slow(command: str, *, timeout_s: float = 10.0) -> Result:
        raise HostError(f"{command[:20]!r} did not end within {timeout_s:g} s")

    world.start_services()
    host = world.hosts["n1"]
    assert Nemesis(world.site).inject(Fault("kill", ("n1",))).status == "confirmed"
    until(lambda: host.service_exit() == 128 + signal.SIGKILL)
    with monkeypatch.context() as busy:
        busy.setattr(host, "run", too_slow)
        with pytest.raises(HostError, match="did not end"):
            host.start_service()
    assert host.service_exit() is None, "nothing was started since"
    host.start_service()
    assert host.service_pid() is not None


def test_a_command_that_takes_too_long_is_named_in_a_line(world: ProcessWorld) -> None:
    with pytest.raises(HostError) as caught:
        world.hosts["n1"].run("sleep 600\n" * 100, timeout_s=0.05)
    assert "did not end within 0.05 s" in str(caught.value)
    assert len(str(caught.value)) < 150


def test_the_process_world_has_its_declared_capabilities(world: ProcessWorld) -> None:
    assert {"kill", "pause"} <= world.capabilities
    needs = {KINDS[name].needs for name in world.capabilities}
    assert needs == {frozenset(), frozenset({"store"})}, "what needs nothing but a process and a directory"
    assert world.power is None
    assert world.network is None
    assert any("power loss" in limit for limit in world.limits)
    assert len({node.port for node in world.nodes}) == 3


def test_kill_and_pause_are_confirmed_and_healed(world: ProcessWorld) -> None:
    world.start_services()
    nemesis = Nemesis(world.site)
    for fault in (Fault("pause", ("n1",)), Fault("kill", ("n2", "n3")), Fault("kill", ("n1",))):
        assert nemesis.inject(fault).status == "confirmed", fault
        assert nemesis.heal(fault).status == "confirmed", fault
        assert nemesis.heal(fault).status == "confirmed", "a heal may come twice"
    assert nemesis.heal_all().status == "confirmed"
    for node in world.nodes:
        send(node, "alive")


@dataclass(frozen=True)
class _Called(StandIns):
    """The stand-in broker under another name."""

    program: str = ""
    stop_deadline_s: float = 30.0

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        service = super().service(node, nodes, time_scale)
        command = (self.program, *service.command[2:])
        return replace(service, command=command, stop_deadline_s=self.stop_deadline_s)


def test_a_name_that_the_kernel_cuts_in_the_middle_of_a_character_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    called = tmp_path / "хранилище"
    called.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(STAND_IN)!r}, run_name='__main__')\n")
    called.chmod(0o755)
    made = ProcessWorld(replace(specification(tmp_path / "run", 1), deployment=_Called(program=str(called))))
    made.up()
    try:
        made.start_services()
        nemesis, host = Nemesis(made.site), made.hosts["n1"]
        before = see_process(host)
        for kind in ("pause", "stop", "kill"):
            fault = Fault(kind, ("n1",))
            assert nemesis.inject(fault).status == "confirmed", kind
            assert nemesis.heal(fault).status == "confirmed", kind
        after = see_process(host)
        assert before is not None
        assert after is not None
        assert not after.is_same(before)
        assert before.start.partition("@")[0].isdigit()
        assert before.start != "0"
    finally:
        made.down()


def test_a_fault_that_this_world_has_not_is_inconclusive(world: ProcessWorld) -> None:
    for kind in ("power-loss", "partition-one"):
        evidence = Nemesis(world.site).inject(Fault(kind, ("n1",)))
        assert evidence.status == "inconclusive"
        assert "this world has no" in evidence.detail["error"]


def test_a_service_is_prepared_and_runs_in_its_data_directory_and_may_print_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "system.toml").write_text(
        'name = "x"\nworkloads = ["register"]\n[roles.server]\nports = { client = 1 }\n'
        "prepare = [['sh', '-c', 'pwd > prepared; printf \"\\377\"']]\n"
        "command = ['sh', '-c', 'pwd > started; printf \"\\377\"; exit 1']\n"
    )
    deployed = Deployed(load_system("x", directory=tmp_path), ("server",), "cluster")
    made = ProcessWorld(WorldSpec("r", tmp_path / "run", 1, deployed))
    made.up()
    try:
        made.prepare_services()
        with pytest.raises(WorldError, match="its last words: \ufffd"):
            made.start_service(made.nodes[0])
        data = Path(made.nodes[0].data_dir)
        assert [(data / name).read_text() for name in ("prepared", "started")] == [f"{data}\n"] * 2
    finally:
        made.down()


LISTENS = (
    'name = "x"\nworkloads = ["register"]\n[roles.server]\nports = { client = 1 }\nstart_deadline_s = 3\n'
    "command = ['python3', '-m', 'http.server', '{{ node.ports.client }}', '--bind', '{{ node.address }}']\n"
)


def test_a_service_is_ready_by_its_command_and_talks_to_others_after_the_start(tmp_path: Path) -> None:
    (tmp_path / "join.py").write_text(
        "import sys, urllib.request\nurllib.request.urlopen(sys.argv[1])\nopen('joined', 'w').close()\n"
    )
    (tmp_path / "system.toml").write_text(
        LISTENS
        + "ready = ['sh', '-c', 'echo x >> tries; [ $(wc -l < tries) = 3 ]']\n"
        + "after_start = [['python3', '{{ system_dir }}/join.py', "
        + "'http://{{ nodes[0].address }}:{{ nodes[0].ports.client }}']]\n"
    )
    made = ProcessWorld(WorldSpec("r", tmp_path / "run", 2, of_two_servers(tmp_path)))
    made.up()
    try:
        made.start_services()
        directories = [Path(node.data_dir) for node in made.nodes]
        assert [(each / "tries").read_text() for each in directories] == ["x\nx\nx\n"] * 2
        made.run_after_start()
        assert all((each / "joined").exists() for each in directories)
    finally:
        made.down()


def _start(made: ProcessWorld) -> None:
    made.start_services()
    made.run_after_start()


def of_two_servers(directory: Path) -> Deployed:
    return Deployed(load_system("x", directory=directory), ("server", "server"), "cluster")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("ready = ['false']\n", "n1: the service's command 'false' did not exit with 0 within 3 s; see ready"),
        ("after_start = [['sh', '-c', 'echo no; exit 3']]\n", "n1: .* ended with exit code 3: no"),
    ],
)
def test_a_failed_command_of_a_start_is_an_error(tmp_path: Path, keys: str, message: str) -> None:
    (tmp_path / "system.toml").write_text(LISTENS + keys)
    made = ProcessWorld(WorldSpec("r", tmp_path / "run", 1, of_two_servers(tmp_path)))
    made.up()
    try:
        with pytest.raises(WorldError, match=message):
            _start(made)
    finally:
        made.down()


def test_configuration_files_are_at_their_declared_paths(tmp_path: Path) -> None:
    (tmp_path / "system.toml").write_text(
        'name = "x"\nworkloads = ["register"]\n[roles.server]\nports = { client = 1 }\ncommand = ["true"]\n'
        '[roles.server.files]\n"conf/a.conf" = "one"\n"other/a.conf" = "two"\n"a.conf" = "three"\n'
    )
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text(f"{name}\n")
    deployed = Deployed(load_system("x", directory=tmp_path), ("server",), "cluster")
    made = ProcessWorld(WorldSpec("r", tmp_path / "run", 1, deployed))
    made.up()
    etc = Path(made.nodes[0].etc_dir)
    made.down()
    for path, text in {"conf/a.conf": "one\n", "other/a.conf": "two\n", "a.conf": "three\n"}.items():
        assert (etc / path).read_text() == text


def test_a_broker_that_ends_at_its_start_is_quoted(tmp_path: Path) -> None:
    made = ProcessWorld(specification(tmp_path, 1, configure=lambda _: "refuse=this configuration\n"))
    made.up()
    try:
        with pytest.raises(WorldError, match=r"n1: the service ended.*refused: this configuration"):
            made.start_service(made.nodes[0])
    finally:
        made.down()


def test_a_command_that_does_not_end_times_out(world: ProcessWorld) -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.1 s"):
        world.hosts["n1"].run("sleep 60", timeout_s=0.1)


def test_after_down_no_process_is_left_and_up_works_again(tmp_path: Path) -> None:
    for _ in range(2):
        made = ProcessWorld(specification(tmp_path))
        made.up()
        made.start_services()
        pids = [host.service_pid() for host in made.hosts.values()]
        made.down()
        made.down()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["nodes"]


def test_two_runs_do_not_share_a_directory(world: ProcessWorld, tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="is in use by another run"):
        ProcessWorld(specification(tmp_path / "run")).up()
    assert world.nodes


ORCHESTRATOR = """
import json, os, sys, time
from pathlib import Path
from nemeses import Fault, Nemesis
from orchestrator.worlds.process.lab import ProcessWorld
from tests.worlds.support import specification
world = ProcessWorld(specification(Path(sys.argv[1])))
world.up()
world.start_services()
Nemesis(world.site).inject(Fault("pause", ("n1",)))
print(json.dumps([host.service_pid() for host in world.hosts.values()]), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("victim", ["orchestrator", "supervisor"])
def test_no_broker_outlives_its_orchestrator(tmp_path: Path, victim: str) -> None:
    command = [sys.executable, "-c", ORCHESTRATOR, str(tmp_path)]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        brokers = json.loads(process.stdout.readline())
        supervisor = int(Path(f"/proc/{brokers[0]}/stat").read_text().rpartition(") ")[2].split()[1])
        os.kill(process.pid if victim == "orchestrator" else supervisor, signal.SIGKILL)
        orphans = brokers if victim == "supervisor" else [*brokers, supervisor]
        deadline = time.monotonic() + DEADLINE_S
        while any(alive(pid) for pid in orphans) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not any(alive(pid) for pid in orphans)
        process.kill()


WRAPPER = ["sh", "-c", "sleep 600 & echo $! > inner.new; mv inner.new inner; wait"]


@pytest.mark.parametrize("ends", ["killed", "with its supervisor"])
def test_child_processes_of_a_service_end_with_the_supervisor(tmp_path: Path, ends: str) -> None:
    """A service may be a script that does not become its program: after a kill of the script its program continues."""
    supervisor = Supervisor()
    pid = supervisor.start(WRAPPER, {}, tmp_path, tmp_path / "log")
    inner = int(until(lambda: (tmp_path / "inner").read_text()))
    if ends == "killed":
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: supervisor.ended(pid)) == 128 + signal.SIGKILL
        assert alive(inner)
    supervisor.close()
    assert not alive(pid)
    assert not alive(inner)


def test_child_processes_of_a_service_end_with_the_orchestrator(tmp_path: Path) -> None:
    orchestrator = (
        "import sys, time; from pathlib import Path; from orchestrator.worlds.process.lab import Supervisor\n"
        f"Supervisor().start({WRAPPER!r}, {{}}, Path(sys.argv[1]), Path(sys.argv[1]) / 'log'); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", orchestrator, str(tmp_path)], cwd=PROJECT_ROOT) as process:
        inner = int(until(lambda: (tmp_path / "inner").read_text()))
        script = int(Path(f"/proc/{inner}/stat").read_text().rpartition(") ")[2].split()[1])
        os.kill(script, signal.SIGKILL)
        process.kill()
        assert until(lambda: not alive(inner))


def test_child_processes_of_a_service_end_when_the_answer_is_not_read(tmp_path: Path) -> None:
    """The orchestrator may end between its order and the supervisor's answer, which then cannot be written."""
    command = program("orchestrator.worlds.process.supervisor")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as supervisor:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        order = {"argv": WRAPPER, "environment": {}, "directory": str(tmp_path), "log": str(tmp_path / "log")}
        supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        supervisor.stdin.flush()
        pid = json.loads(supervisor.stdout.readline())["pid"]
        inner = int(until(lambda: (tmp_path / "inner").read_text()))
        supervisor.stdout.close()
        supervisor.stdin.write(json.dumps({"ended": pid}).encode() + b"\n")
        supervisor.stdin.flush()
        supervisor.wait(DEADLINE_S)
        assert not alive(pid)
        assert not alive(inner)


@dataclass(frozen=True)
class Prepared(StandIns):
    """Stand-in brokers, before whose first start something is run."""

    script: str = ""
    deadline_s: float = DEADLINE_S

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        service = super().service(node, nodes, time_scale)
        return replace(service, prepare=(("sh", "-c", self.script),), prepare_deadline_s=self.deadline_s)


def prepared_world(directory: Path, script: str, deadline_s: float = DEADLINE_S) -> ProcessWorld:
    deployment = Prepared(script=script, deadline_s=deadline_s)
    made = ProcessWorld(replace(specification(directory, 1), deployment=deployment))
    made.up()
    return made


def test_processes_of_a_preparing_command_end_with_the_world(tmp_path: Path) -> None:
    made = prepared_world(tmp_path, f"setsid sleep 600 & echo $! > {tmp_path}/left")
    try:
        made.prepare_services()
        left = int((tmp_path / "left").read_text())
        assert alive(left)
    finally:
        made.down()
    assert not alive(left)


@pytest.mark.parametrize(
    ("script", "deadline_s", "words"),
    [
        ("echo out; echo bad >&2; exit 3", DEADLINE_S, r"n1: .* ended with exit code 3: out\nbad$"),
        ("sleep 600", 0.1, r"n1: .* did not end within 0\.1 s"),
    ],
)
def test_a_failed_preparing_command_is_quoted_and_a_hanging_one_times_out(
    script: str, deadline_s: float, words: str, tmp_path: Path
) -> None:
    made = prepared_world(tmp_path, script, deadline_s)
    try:
        with pytest.raises(HostError, match=words):
            made.prepare_services()
    finally:
        made.down()


PREPARING = """
name = "preparing"
workloads = ["log"]
[roles.server]
ports = {{ client = 1 }}
prepare = [["sh", "-c", "sleep 600 & echo $! > {0}; wait"]]
command = ["true"]
"""
HELD_UP = 'name = "x"\n[system]\npath = "."\n[topology]\nnodes = 1\nworld = "process"\n'


@pytest.mark.rotating(2)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_preparing_command_outlives_its_run(tmp_path: Path, ending: signal.Signals) -> None:
    (tmp_path / "system.toml").write_text(PREPARING.format(tmp_path / "inner"))
    (tmp_path / "x.toml").write_text(HELD_UP)
    words = ["run", str(tmp_path / "x.toml"), "--store", str(tmp_path / "store"), "--engine", "in-process", "--quiet"]
    with subprocess.Popen([sys.executable, "-m", "orchestrator", *words], cwd=PROJECT_ROOT) as process:
        inner = int(until(lambda: (tmp_path / "inner").read_text()))
        script = int(Path(f"/proc/{inner}/stat").read_text().rpartition(") ")[2].split()[1])
        process.send_signal(ending)
        process.wait(DEADLINE_S)
        if ending == signal.SIGKILL:
            until(lambda: not alive(inner) and not alive(script))
        assert not alive(inner)
        assert not alive(script)


def until(found: Callable[[], T]) -> T:
    """What it finds, once it finds something."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if seen := found():
                return seen
        time.sleep(0.005)
    raise TimeoutError


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_service_that_ignores_sigterm_is_reported_with_the_remedy(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    deaf.write_text(
        f"#!{sys.executable}\nimport runpy, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"signal.signal = lambda *_: None\nrunpy.run_path({str(STAND_IN)!r}, run_name='__main__')\n"
    )
    deaf.chmod(0o755)
    deployment = _Called(program=str(deaf), stop_deadline_s=0.1)
    made = ProcessWorld(replace(specification(tmp_path / "run", 1), deployment=deployment))
    made.up()
    try:
        made.start_services()
        with pytest.raises(WorldError, match=r"of SIGTERM; see stop_deadline_s and kills_at_stop in its system\.toml"):
            made.stop_services()
    finally:
        made.down()
