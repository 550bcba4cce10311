"""Every end of a sandbox leaves no trace of it; sandboxes do not see each other."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.machine import cgroups
from orchestrator.machine.sandbox import current_sandbox
from tests.worlds.footprint import Footprint, children, machine_wide
from tests.worlds.support import DEADLINE_S, Sandbox, launch, own_run_id, result, spawn_in_sandbox
from tests.worlds.test_process_world import until

pytestmark = pytest.mark.root

SHELL = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@contextmanager
def ended(sandbox: Sandbox) -> Iterator[Sandbox]:
    """The sandbox is over when the test is, whatever happens in it."""
    try:
        yield sandbox
    finally:
        sandbox.kill()
        for stream in (sandbox.process.stdin, sandbox.process.stdout, sandbox.process.stderr):
            if stream is not None:
                stream.close()


def tell(sandbox: Sandbox) -> object:
    """The next thing that a scenario says."""
    assert sandbox.process.stdout is not None
    line = sandbox.process.stdout.readline()
    assert line, sandbox.process.stderr.read() if sandbox.process.stderr else "it ended"
    return json.loads(line)


def first_and_command(outer: int) -> tuple[int, int]:
    """PID 1 of the sandbox and the command in it. The janitor is a child of the outer parent too, in its namespaces."""
    mine = os.readlink("/proc/self/ns/pid")
    (first,) = (pid for pid in children(outer) if os.readlink(f"/proc/{pid}/ns/pid") != mine)
    return first, children(first)[0]


@pytest.mark.rotating(4, among="ends of a sandbox")
@pytest.mark.parametrize("victim", ["command", "first process", "outer parent", "leash", "terminated"])
def test_every_process_ends_with_the_sandbox_after_any_kill(tmp_path: Path, victim: str) -> None:
    before = machine_wide()
    with ended(launch("wait_to_be_killed", str(tmp_path), "running")) as sandbox:
        assert [tell(sandbox), tell(sandbox)][1] == "ready"
        outer = sandbox.process.pid
        footprint = Footprint(outer, own_run_id(tmp_path))
        present = footprint.present()
        assert set(present) == {"processes", "loop devices", "control group"}, "else the test would prove nothing"
        assert machine_wide() == before, "nothing of the sandbox is in the machine's own namespaces"
        first, command = first_and_command(outer)
        if victim == "leash":
            sandbox.kill()
        elif victim == "terminated":
            os.kill(outer, signal.SIGTERM)
        else:
            os.kill({"command": command, "first process": first, "outer parent": outer}[victim], signal.SIGKILL)
        assert footprint.wait_gone() == {}
    assert machine_wide() == before
    assert list(tmp_path.rglob("*.img")) == []
    assert (tmp_path / "nodes/n1/events.jsonl").exists(), "what the nodes recorded stays"


@pytest.mark.rotating(4, among="ends of a sandbox")
@pytest.mark.parametrize("moment", ["starting", "in the dark", "cut"])
def test_the_orchestrator_may_be_killed_at_any_moment(tmp_path: Path, moment: str) -> None:
    before = machine_wide()
    with ended(launch("wait_to_be_killed", str(tmp_path), moment)) as sandbox:
        tell(sandbox)
        if moment != "starting":
            assert tell(sandbox) == "ready"
        outer = sandbox.process.pid
        footprint = Footprint(outer, own_run_id(tmp_path))
        os.kill(first_and_command(outer)[1], signal.SIGKILL)
        assert footprint.wait_gone() == {}
        assert sandbox.wait(DEADLINE_S) == 128 + signal.SIGKILL
    assert machine_wide() == before
    assert result(launch("broker_that_ends", str(tmp_path))), "the next run in the same directory works"


def test_two_sandboxes_have_the_same_addresses_side_by_side(tmp_path: Path) -> None:
    with (
        ended(launch("side_by_side", str(tmp_path / "a"))) as one,
        ended(launch("side_by_side", str(tmp_path / "b"))) as other,
    ):
        assert tell(one) == tell(other) == {"addresses": ["10.77.0.11", "10.77.0.12"]}
        for sandbox in (one, other):
            assert sandbox.process.stdin is not None
        one.process.stdin.write("\n")  # type: ignore[union-attr]
        one.process.stdin.flush()  # type: ignore[union-attr]
        assert tell(one) == "one node is off"
        other.process.stdin.write("\n\n")  # type: ignore[union-attr]
        other.process.stdin.flush()  # type: ignore[union-attr]
        assert tell(other) == "one node is off"
        assert tell(other) == {"log": f"!{tmp_path / 'b'}", "on": [True, False]}
        one.process.stdin.write("\n")  # type: ignore[union-attr]
        one.process.stdin.flush()  # type: ignore[union-attr]
        assert tell(one) == {"log": f"!{tmp_path / 'a'}", "on": [True, False]}


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    with ended(spawn_in_sandbox(["sh", "-c", script], **SHELL)) as sandbox:
        assert sandbox.wait(DEADLINE_S) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_command(tmp_path: Path, number: signal.Signals) -> None:
    script = f"trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done; cat {tmp_path}"
    with ended(spawn_in_sandbox(["sh", "-c", script], **SHELL)) as sandbox:
        assert sandbox.process.stdout is not None
        assert sandbox.process.stdout.readline() == "ready\n"
        sandbox.process.send_signal(number)
        assert sandbox.process.stdout.readline() == "got it\n"
        assert sandbox.wait(DEADLINE_S) == 3


def blocked(pid: int) -> set[int]:
    """The signals that a process blocks."""
    (mask,) = re.findall(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}


def test_no_signal_is_lost_between_two_instructions_of_the_interpreter() -> None:
    """A handler would run before the blocking system call or after it. A signal between them would wait for ever."""
    with ended(spawn_in_sandbox(["sh", "-c", "echo ready; exec sleep 60"], **SHELL)) as sandbox:
        assert sandbox.process.stdout is not None
        assert sandbox.process.stdout.readline() == "ready\n"
        first, command = first_and_command(sandbox.process.pid)
        forwarded = {signal.SIGTERM, signal.SIGHUP}
        assert until(lambda: forwarded <= blocked(sandbox.process.pid) & blocked(first))
        assert blocked(command) == set()


# A process that forks is slow to continue: on a busy machine, the command starts earlier.
SLOW_TO_FORK = """
import os, sys, time
fork = os.fork
def slow():
    child = fork()
    if child:
        time.sleep(0.3)
    return child
os.fork = slow
from orchestrator.machine import sandbox
sandbox.main(["-1", *sys.argv[1:]])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sent_right_after_the_start_of_a_command_is_not_lost(number: signal.Signals) -> None:
    script = "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    command = [sys.executable, "-c", SLOW_TO_FORK, "sh", "-c", script]
    with subprocess.Popen(
        command, cwd=PROJECT_ROOT, start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == "ready\n"
            outer.send_signal(number)
            assert outer.wait(DEADLINE_S) == 3
        finally:
            outer.kill()


def test_a_command_that_does_not_exist_is_named() -> None:
    with ended(spawn_in_sandbox(["/no/such/command"], **SHELL)) as sandbox:
        assert sandbox.process.stderr is not None
        assert sandbox.wait(DEADLINE_S) != 0
        assert "/no/such/command" in sandbox.process.stderr.read()


def test_only_processes_inside_detect_the_sandbox() -> None:
    code = "from orchestrator.machine.sandbox import current_sandbox as c; print(c())"
    with ended(spawn_in_sandbox([sys.executable, "-c", code], cwd=PROJECT_ROOT, **SHELL)) as sandbox:
        identifier, _ = sandbox.process.communicate(timeout=DEADLINE_S)
    assert len(identifier.strip()) == 8
    assert current_sandbox() is None


def test_entering_replaces_the_caller() -> None:
    code = (
        "from orchestrator.machine.sandbox import enter_sandbox\n"
        "enter_sandbox(['sh', '-c', 'echo $BROWNOUT_SANDBOX; readlink /proc/self/ns/net; exit 5'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    identifier, network = done.stdout.split()
    assert done.returncode == 5
    assert len(identifier) == 8
    assert network != os.readlink("/proc/self/ns/net")


def test_leftovers_are_reaped_and_those_in_use_are_not() -> None:
    used, left = cgroups.sandbox_group("test-used").create(), cgroups.sandbox_group("test-left").create()
    sleeper = subprocess.Popen(["sleep", "60"])
    lock = used.try_lock()
    assert lock is not None
    try:
        left.child("run").create().adopt(sleeper.pid)
        left.child("run").freeze(True)
        assert left.path.name not in cgroups.reap_leftovers(), "its maker may be about to lock it"
        os.utime(left.path, (0, 0))
        assert left.path.name in cgroups.reap_leftovers()
        assert not left.path.exists()
        assert sleeper.wait(60) == -signal.SIGKILL
        assert used.path.exists()
    finally:
        os.close(lock)
        used.remove()
        left.remove()


def test_overlays_work_with_any_directory_names(tmp_path: Path) -> None:
    lower = tmp_path / "a b'c\"d$e;f,g%h:ü\\\nx"
    lower.mkdir()
    (lower / "file").write_text("below", encoding="utf-8")
    shows = (
        "import os, sys; from orchestrator.machine import syscalls\n"
        "for name in ('upper,:\\\\', 'work, :', 'root,'): os.makedirs('/run/' + name)\n"
        "syscalls.mount_overlay('/run/root,', lower=sys.argv[1], upper='/run/upper,:\\\\', work='/run/work, :')\n"
        "open('/run/root,/new', 'w').close()\n"
        "print(open('/run/root,/file').read(), os.listdir('/run/upper,:\\\\'))"
    )
    sandbox = spawn_in_sandbox([sys.executable, "-c", shows, str(lower)], stdout=subprocess.PIPE)
    assert sandbox.process.stdout is not None
    said = sandbox.process.stdout.read()
    assert (sandbox.wait(60), said) == (0, b"below ['new']\n")
    assert [path.name for path in lower.iterdir()] == ["file"]
