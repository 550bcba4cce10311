"""The run loop's handle of a client, wherever it runs: commands to it, and its answers."""

import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from installation.files import PROJECT_ROOT
from workloads.control import (
    Administered,
    Administration,
    Answer,
    Append,
    Appended,
    AppendResult,
    Close,
    Closed,
    ClusterSeen,
    Command,
    Count,
    DeleteRecords,
    DeletionSent,
    Event,
    FirstAck,
    Killed,
    MessageError,
    Probe,
    Probed,
    ReadAll,
    ReadDone,
    Ready,
    RecordsDeleted,
    RefusedCommand,
    Request,
    SetPhase,
    StartLoad,
    StopLoad,
    Stopped,
    Trouble,
    decode_event,
    encode,
)
from workloads.settings import ClientSettings

A = TypeVar("A", Appended, Probed, ReadDone, RecordsDeleted)


class ClientError(Exception):
    """A client that ended or does not answer; the message names it and where its log is."""


class ClientHandle(ABC):
    """One client of a workload kind, in one of its roles. Subclasses of each world implement the connection to it."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.counts = Count()
        self.first_ack_ns: int | None = None
        self.killed = 0  # number of programs that the client started and killed
        self.on_administration: Callable[[DeletionSent | RecordsDeleted | Administration], None] = lambda _: None
        """Called for each DeleteRecords of the client, before it is sent and with its outcome, and for what an
        administrator reports."""
        self._log = log
        self._answers: deque[Answer] = deque()
        self._is_ready = False
        self._has_stopped = False
        self._trouble: list[str] = []
        self._request = 0
        self._unresolved = 0

    @property
    def trouble(self) -> list[str]:
        """The client's complaints so far."""
        return list(self._trouble)

    @property
    def where_printed(self) -> str:
        """Names the file of the client's output, for the end of a sentence; reports an empty file, too."""
        try:
            printed = self._log.stat().st_size > 0
        except OSError:
            printed = False
        return f"; see {self._log}" if printed else "; it printed nothing"

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """The exit code, a signal as its negative number; None while the client runs."""

    def wait_ready(self, timeout_s: float) -> None:
        """Raises `ClientError` when the client is not ready within the time."""
        self._wait(lambda: self._is_ready, "ready", timeout_s)

    def start(self) -> None:
        """Start the load."""
        self._tell(StartLoad())

    def stop(self) -> None:
        """End the load; returns at once. `wait_stopped` waits."""
        self._tell(StopLoad())

    def wait_stopped(self, timeout_s: float) -> int:
        """Wait until every operation in flight has its outcome; returns how many have none nevertheless."""
        self._wait(lambda: self._has_stopped, "stopped", timeout_s)
        self._has_stopped = False
        return self._unresolved

    def phase(self, name: str) -> None:
        """Operations recorded from now on belong to this phase of the run."""
        self._tell(SetPhase(name))

    def append(self, partition: int, *, acks: int, count: int, timeout_s: float) -> list[AppendResult]:
        """Append values one after the other until one is not ok."""
        request = Append(self._next_id(), partition, acks, count, timeout_s)
        return self._ask(request, Appended, count * (timeout_s + 2.0) + 5.0).results

    def probe(self, place: int, timeout_s: float) -> Probed:
        """Whether a place (a partition, a key) takes operations: one attempt within `timeout_s`, preceded by up to the
        same time to construct a user-defined client's object."""
        return self._ask(Probe(self._next_id(), place, timeout_s), Probed, 2 * timeout_s + 7.0)

    def read_all(self, place: int, timeout_s: float) -> ReadDone:
        """Read all that a place holds; a partition from its first record to its end."""
        return self._ask(ReadAll(self._next_id(), place, timeout_s), ReadDone, timeout_s + 10.0)

    def delete_records(self, partition: int, offset: int, timeout_s: float) -> RecordsDeleted:
        """Delete the records of a partition below an offset."""
        return self._ask(DeleteRecords(self._next_id(), partition, offset, timeout_s), RecordsDeleted, timeout_s + 5.0)

    @abstractmethod
    def close(self, timeout_s: float = 10.0) -> None:
        """End the client and its recording in order, or by force after the timeout. Safe to call twice."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the client; its recorded operations stay."""

    @abstractmethod
    def _tell(self, command: Command) -> None:
        """Raises `ClientError` when the client has closed its end."""

    @abstractmethod
    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition on the received events holds; returns whether it holds within the time. Raises
        `ClientError` when the client ends before."""

    def _next_id(self) -> int:
        self._request += 1
        return self._request

    def _ask(self, request: Request, kind: type[A], patience_s: float) -> A:
        self._tell(request)

        def answered() -> bool:
            while self._answers and self._answers[0].id != request.id:
                self._answers.popleft()  # the answer to a request that timed out
            return bool(self._answers)

        if not self._until(answered, patience_s):
            raise ClientError(f"client {self.name} gave no answer within {patience_s:.0f} s{self.where_printed}")
        answer = self._answers.popleft()
        if isinstance(answer, kind):
            return answer
        raise ClientError(f"client {self.name}: {answer.text if isinstance(answer, RefusedCommand) else answer}")

    def _wait(self, holds: Callable[[], bool], condition: str, timeout_s: float) -> None:
        if not self._until(holds, timeout_s):
            trouble = f": {self._trouble[-1]}" if self._trouble else ""
            raise ClientError(
                f"client {self.name} is not {condition} after {timeout_s:.0f} s{trouble}{self.where_printed}"
            )

    def _hear(self, event: Event) -> None:
        match event:
            case Ready():
                self._is_ready = True
            case Count():
                self.counts = event
            case FirstAck():
                self.first_ack_ns = event.t
            case Stopped():
                self._unresolved = event.unresolved
                self._has_stopped = True
            case DeletionSent() | Administered() | ClusterSeen():
                self.on_administration(event)
            case RecordsDeleted():
                self.on_administration(event)
                self._answers.append(event)
            case Appended() | Probed() | ReadDone() | RefusedCommand():
                self._answers.append(event)
            case Trouble():
                self._trouble.append(event.text)
            case Killed():
                self.killed += 1
            case Closed():
                pass


class StartClient(Protocol):
    """How a world starts a client; output that is not an event goes to `log`."""

    def __call__(self, kind: str, role: str, settings: ClientSettings, log: Path) -> ClientHandle: ...


class ClientProcess(ClientHandle):
    """A client as a separate process. Create it in the main thread: the kernel kills the client when the thread that
    started it ends."""

    def __init__(self, kind: str, role: str, settings: ClientSettings, log: Path) -> None:
        super().__init__(settings.client, log)
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workloads", kind, role, settings.to_json(), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=PROJECT_ROOT,
                encoding="utf-8",
                errors="backslashreplace",
            )
        self.first_ack = threading.Event()
        self._heard = threading.Condition()
        self._listener = threading.Thread(target=self._listen, name=f"listen-{self.name}", daemon=True)
        self._listener.start()

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def close(self, timeout_s: float = 10.0) -> None:
        if self.alive:
            try:
                self._tell(Close())
                self._process.wait(timeout_s)
            except (ClientError, subprocess.TimeoutExpired):
                self._process.kill()
        self._process.wait()
        self._listener.join(1.0)  # its last messages may still be in the pipe
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _tell(self, command: Command) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(command) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._process.wait()
            self._check_alive()

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        give_up = time.monotonic() + timeout_s
        while True:
            with self._heard:
                if self._heard.wait_for(holds, 0.1):
                    return True
            self._check_alive()
            if time.monotonic() > give_up:
                return False

    def _check_alive(self) -> None:
        if not self.alive:
            self._listener.join(1.0)  # its last messages may still be in the pipe
            trouble = f": {self._trouble[-1]}" if self._trouble else ""
            raise ClientError(f"client {self.name} ended with {self._process.returncode}{trouble}{self.where_printed}")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = decode_event(line)
            except MessageError as error:  # output of another library; the record does not depend on it
                self._trouble.append(str(error))
                continue
            with self._heard:
                self._hear(event)
                self._heard.notify_all()
            if isinstance(event, FirstAck):
                self.first_ack.set()
