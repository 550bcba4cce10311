"""The client process around a program in any language, which a user names as `client_command`.

Theory of operation. Each task is one start of the program: `load`, from the start of the load until SIGTERM at its end;
`probe`, one change to the place in BROWNOUT_PLACE; `read`, all that the place holds. A probe or read is done when the
program exits with 0. The program reads its task from its environment (docs/workloads.md) and appends its operations to
the file BROWNOUT_OUTPUT.

A program may be a script that runs another program, which does not get the script's signals. At the end of the load
that program gets SIGTERM as well, because it may still have to record operations.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from history.record.register_names import key_name
from history.record.values import encode_value
from installation.python_modules import module_command, module_environment
from workloads.control import (
    Close,
    Command,
    Control,
    Counts,
    FirstAck,
    Killed,
    Probe,
    Probed,
    ReadAll,
    ReadDone,
    Ready,
    SetPhase,
    StartLoad,
    StopLoad,
    Stopped,
    Trouble,
    adopts_orphans,
)
from workloads.settings import ClientSettings

POLL_S: Final = 0.1
RETRY_S: Final = 0.2
LEFT_S: Final = 0.02  # between two looks for processes that a program has left behind
STOP_S: Final = 5.0  # in addition to the time of one operation
# Each start of the program is a separate producer, so that no value is written twice. A run has at most 130 clients.
STARTS: Final = 500
PLACES: Final = 400  # places that can be probed once each: the other starts are for failed probes
_ERROR_CHARACTERS: Final = 200
CHANGES: Final = frozenset({"append", "write", "cas"})


def producers_of(settings: ClientSettings) -> tuple[int, int]:
    """The producer numbers of a client's values, for a program or any other client: the first, and how many."""
    return (settings.process * STARTS, STARTS) if settings.own.client_command else (settings.producer, 1)


def probe_every_s(within_s: float, places: int) -> float:
    """The interval between failed probes of `places` places: the program uses up its starts only when the time is
    over."""
    return within_s / (STARTS - places - 3)  # one probe more than fits, at the very end of the time


class CommandError(Exception):
    """The program ended when it should not have; the message has its exit code and names the file with its output."""


class CommandClient:
    """One program in one role."""

    def __init__(self, settings: ClientSettings, control: Control, role: str) -> None:
        self._settings = settings
        self._control = control
        self._role = role
        self._counts = Counts(control)
        self._phase = "main"
        self._starts = 0
        self._load: subprocess.Popen[bytes] | None = None
        self._tail: _Tail | None = None
        self._acknowledged = False
        self._is_answered = False  # whether the record of the last start has an operation that was answered
        self._invoked: dict[str, Any] = {}  # operations that were invoked and not completed, by id

    def run(self) -> None:
        """Serve commands until `close`. Raises `CommandError` when the program ends during the load."""
        self._control.tell(Ready())
        try:
            while (command := self._control.next(POLL_S)) is None or self._obey(command):
                if self._load is not None:
                    self._watch(self._load)
        finally:
            if self._load is not None:
                self._end(self._load)

    def _obey(self, command: Command) -> bool:
        match command:
            case StartLoad():
                self._load, output = self._start("load", "")
                self._tail = _Tail(output)
            case StopLoad():
                self._stop()
                self._control.tell(Stopped(0))  # open operations follow from the file
            case SetPhase():
                self._phase = command.name
            case Probe():
                error = self._task("probe", command.place, time.monotonic() + command.timeout_s)
                self._control.tell(Probed(command.id, error is None, error or ""))
            case ReadAll():
                self._read(command)
            case Close():
                return False
            case _:
                self._control.decline("client command", command)
        return True

    def _read(self, command: ReadAll) -> None:
        """Start the program until it has read the place, or the time is over. The error is that of the last attempt
        that the end of the time did not cut short, if there was one."""
        began_s, reason = time.monotonic(), ""
        give_up_s, self._is_answered = began_s + command.timeout_s, False
        while error := self._task("read", command.place, give_up_s):
            is_over = time.monotonic() >= give_up_s
            reason = reason if reason and is_over else error
            if is_over:
                break
        done = error is None
        idle_s = time.monotonic() - began_s if self._is_answered else 0.0
        self._control.tell(ReadDone(command.id, done, 1, int(done), "" if done else reason, idle_s))

    def _watch(self, load: subprocess.Popen[bytes]) -> None:
        self._count()
        code = self._ended(load, 0.0)
        if code:
            raise CommandError(f"{self._settings.own.client_command[0]} ended with {code} during the load")

    def _count(self) -> None:
        assert self._tail is not None
        for operation in self._tail.new():
            outcome = operation.get("type")
            if outcome == "invoke":
                self._invoked[str(operation.get("id"))] = operation.get("f")
            if outcome not in ("ok", "fail", "info"):
                continue
            self._counts.add(outcome)
            function = operation.get("f") or self._invoked.pop(str(operation.get("id")), None)
            if outcome == "ok" and isinstance(function, str) and function in CHANGES and not self._acknowledged:
                self._acknowledged = True
                self._control.tell(FirstAck(time.monotonic_ns()))
        self._counts.report(time.monotonic())

    def _stop(self) -> None:
        load, self._load = self._load, None
        if load is None:
            return
        code, in_time = load.returncode, True
        if code is None:
            give_up_s = time.monotonic() + self._settings.own_timeout_s + STOP_S
            load.send_signal(signal.SIGTERM)
            code = _wait(load, give_up_s - time.monotonic())
            if code is not None and not (in_time := _end_rest(load, give_up_s)):
                self._control.tell(Killed())
            code = self._end(load)
        self._count()
        self._counts.report(time.monotonic(), force=True)
        if code not in (0, -signal.SIGTERM):
            self._control.tell(Trouble(f"{self._settings.own.client_command[0]} ended with {code} after SIGTERM"))
        elif not in_time:
            self._control.tell(
                Trouble(f"a process that {self._settings.own.client_command[0]} started did not end in time")
            )

    def _task(self, task: str, place: int, give_up_s: float) -> str | None:
        """Run one start to its end. None when it exits with 0, otherwise what was wrong. A failure takes a moment,
        because the caller retries at once."""
        program, output = self._start(task, str(place))
        code = self._ended(program, max(0.0, give_up_s - time.monotonic()))
        if code is None:
            self._end(program)
            return f"the task {task} was not done in time{_last_error(output)}"
        self._is_answered = any(operation.get("type") in ("ok", "fail") for operation in _Tail(output).new())
        if code == 0 and (task != "probe" or _is_changed(output, place)):
            return None
        time.sleep(RETRY_S)
        if code == 0:
            return f"the task {task} ended with 0, but its record has no acknowledged change there{_last_error(output)}"
        return f"the task {task} ended with {code}{_last_error(output)}"

    def _ended(self, program: subprocess.Popen[bytes], timeout_s: float) -> int | None:
        """The exit code of a program within a time; None: it still runs.

        Processes that it has started end with it: a program may be a script that waits for another program, which is
        not stopped together with the script."""
        if program.returncode is not None:
            return int(program.returncode)
        code = _wait(program, timeout_s)
        if code is not None:
            if _left(program.pid):
                self._control.tell(Killed())
            _kill_all(program)
        return code

    def _end(self, program: subprocess.Popen[bytes]) -> int:
        """End a program and the processes that it has started, unless it has ended; returns its exit code."""
        if program.returncode is None:
            _kill_all(program)
            self._control.tell(Killed())
        return program.wait()

    def _start(self, task: str, place: str) -> tuple[subprocess.Popen[bytes], Path]:
        name = self._settings.client + (f"-{self._starts}" if self._starts else "")
        output = Path(self._settings.directory) / f"{name}.jsonl"
        output.parent.mkdir(parents=True, exist_ok=True)
        # It depends on the number of starts before this one.
        environment = module_environment() | self._environment(task, place, output)
        self._starts += 1
        program = subprocess.Popen(
            module_command("workloads.under_parent", str(os.getpid()), *self._settings.own.client_command),
            cwd=self._settings.own.command_directory or None,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,  # this process's stdout is the pipe to the run loop
            env=environment,
            start_new_session=True,
        )
        return program, output

    def _environment(self, task: str, place: str, output: Path) -> dict[str, str]:
        settings = self._settings
        if self._starts >= STARTS and task != "read":  # a read writes no values
            raise CommandError(f"the client command was started {STARTS} times; no values are left for another one")
        first_value = encode_value(settings.session, settings.process * STARTS + min(self._starts, STARTS - 1), 0)
        values: dict[str, Any] = {
            "TASK": task,
            "ROLE": self._role,
            "PLACE": place,
            "PHASE": self._phase,
            "ENDPOINTS": ",".join(settings.endpoints_from(self._starts)),
            "SEED": settings.seed,
            "DURATION_S": settings.duration_s,
            "RATE": settings.rate,
            "TIMEOUT_S": settings.own_timeout_s,
            "TOPIC": settings.topic,
            "PARTITIONS": settings.partitions,
            "FIRST_VALUE": first_value,
            "OUTPUT": output,
            **{key.upper(): value for key, value in settings.parameters.items()},
            **{f"OPTION_{key.upper()}": value for key, value in settings.own.options.items()},
        }
        return {f"BROWNOUT_{key}": str(value) for key, value in values.items()}


def _wait(program: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code of a program within a time; None: it still runs."""
    try:
        return program.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _end_rest(program: subprocess.Popen[bytes], give_up_s: float) -> bool:
    """Send SIGTERM to the processes that an ended program has left, and kill those that still run at `give_up_s`.
    Returns whether all of them ended in time.

    They get the signal after the program's end, because a program that waits for them has stopped them itself."""
    for pid in _left(program.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while (goes_on := _left(program.pid)) and time.monotonic() < give_up_s:
        time.sleep(LEFT_S)
    _kill_all(program)
    return not goes_on


def _left(group: int) -> list[int]:
    """The remaining processes of a program: those in its process group, and those that it had put into another group
    before it ended, which this process has adopted. A zombie counts as ended."""
    pids, ours = [], str(os.getpid()) if adopts_orphans() else None
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, parent, its_group = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
            if (str(group) == its_group or ours == parent) and state not in ("Z", "X"):
                pids.append(int(stat.parent.name))
    return pids


def _kill_all(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and its processes; repeat for processes that are adopted only after their parent's end."""
    give_up_s = time.monotonic() + STOP_S
    while (pids := _left(program.pid)) and time.monotonic() < give_up_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LEFT_S)


def _is_changed(output: Path, place: int) -> bool:
    """Whether the program recorded an acknowledged change of this place. The reader of the record reports lines that
    are not valid."""
    invoked: dict[str, dict[str, Any]] = {}
    tail = _Tail(output)
    for line in tail.new():
        name = json.dumps(line.get("id"))
        if line.get("type") == "invoke":
            invoked[name] = line
        elif line.get("type") == "ok":
            entry = {**invoked.get(name, {}), **line}
            if str(entry.get("f")) in CHANGES and entry.get("key", entry.get("partition")) in (key_name(place), place):
                return True
    return tail.is_strange


def _last_error(output: Path) -> str:
    """The error of the last failed operation in the program's record, as a part of a sentence."""
    errors = [str(operation["error"]) for operation in _Tail(output).new() if operation.get("error")]
    if not errors:
        return "; its record has no error"
    return f"; the last error in its record: {errors[-1][:_ERROR_CHARACTERS]}"


class _Tail:
    """The complete lines that were appended to a file since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.is_strange = False  # whether a line was not a JSON object

    def new(self) -> list[dict[str, Any]]:
        """Skips lines that are not operations; the reader of the record reports them."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                lines, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._at += len(lines) + len(newline)
        operations = []
        for line in filter(None, lines.split(b"\n")):
            try:
                operation = json.loads(line)
            except ValueError:
                operation = None
            if isinstance(operation, dict):
                operations.append(operation)
            else:
                self.is_strange = True
        return operations


def main(settings: ClientSettings, control: Control, role: str) -> None:
    """Run a client process with a user's program."""
    CommandClient(settings, control, role).run()
