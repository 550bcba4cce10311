"""The client process around a user-defined client class: commands, pacing and counts. Each kind adds its operations."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from workloads.api import Client
from workloads.connection import MAKE_S, Called, ClientConnection
from workloads.control import (
    Append,
    Appended,
    AppendResult,
    Close,
    Command,
    Control,
    Counts,
    FirstAck,
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
)
from workloads.pacing import Pacer
from workloads.settings import ClientSettings
from workloads.user_module import ClientClassError, load_class, method_line

if TYPE_CHECKING:
    from history.record.writer import OperationWriter

C = TypeVar("C", bound=Client)

IDLE_S: Final = 0.05
RETRY_S: Final = 0.1


class OwnProcess(ABC, Generic[C]):
    """Serves the run loop's commands with a user's client of class `base`."""

    base: type[C]
    who: str

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        """Raises `ClientClassError` when the class cannot be loaded."""
        self.settings = settings
        self.rng = Random(settings.seed)
        self._control = control
        self._writer = writer
        self._counts = Counts(control)
        self._pacer: Pacer | None = None
        self._acknowledged = False
        self._last_error = ""
        self._is_answered = False  # whether the system answered the last call
        self._advanced_s = 0.0  # when the complete read that is under way last read something new
        self._told: set[str] = set()
        self._broken = ""  # how the class has broken its contract
        client_class = self._class = load_class(settings.own.client_class, self.base)
        attempts = count()
        self._connection: ClientConnection[C] = ClientConnection(
            lambda: client_class(settings.endpoints_from(next(attempts)), settings.own_timeout_s, settings.own.options),
            settings.own_patience_s,
            make_s=MAKE_S * settings.time_scale,
        )

    @abstractmethod
    def operate(self) -> str | None:
        """Issue one operation of the load; returns its outcome, None if this client has nothing more to do."""

    @abstractmethod
    def probe(self, place: int) -> str | None:
        """Make one change to a place; None when it was acknowledged, otherwise why not."""

    @abstractmethod
    def read_all(self, place: int, give_up_s: float) -> tuple[bool, int, int]:
        """Read all of a place until `give_up_s` (monotonic); whether it is complete, its end, the offset reached."""

    def append(self, partition: int) -> AppendResult | None:
        """One append for a script's command; None: this client does not append."""

    def run(self) -> None:
        """Serve commands until `close`. Raises `ClientClassError` when the class has broken its contract."""
        self._control.tell(Ready())
        while True:
            wait_s = IDLE_S if self._pacer is None else min(IDLE_S, self._pacer.wait_s(time.monotonic()))
            command = self._control.next(wait_s)
            if command is not None and not self._obey(command):
                break
            if self._pacer is not None and self._pacer.take(time.monotonic()):
                if (outcome := self.operate()) is not None:
                    self._counts.add(outcome)
                self._counts.report(time.monotonic())
            self._end_if_broken()
            self._writer.tick()
        self._connection.close()

    def connected(self) -> str | None:
        """Make sure that a client object exists before an operation is invoked; None, or the reason why not."""
        self._end_if_broken()
        made_count = self._connection.made
        error = self._connection.open()
        self._last_error = error or self._last_error
        self._is_answered = self._is_answered and not error
        if made_count and self._connection.made > made_count:
            # The new object may know less than the one before.
            self._writer.new_session()
        return error

    def call(self, method: str, operation: Callable[[C], Any]) -> Called:
        """Call a method of the client; each mistake in its code is reported once. A result that breaks the contract
        ends the process as soon as the operation is recorded."""
        called = self._connection.call(operation)
        if called.is_broken:
            place = f"{method_line(self._class, method)}{self._class.__name__}.{method}"
            called = replace(called, error=f"{place} {called.error}")
            self._broken = called.error
        self._last_error = called.error or self._last_error
        self._is_answered = called.outcome in ("ok", "fail") and not called.mistake
        if called.mistake and called.error not in self._told:
            self._told.add(called.error)
            self._control.tell(Trouble(called.error))
        return called

    def asked(self, called: Called) -> str:
        """The endpoint of a call, empty if the client names none of those that it was given."""
        return called.endpoint if called.endpoint in self.settings.endpoints else ""

    def advanced(self) -> None:
        """A complete read has read something new."""
        self._advanced_s = time.monotonic()

    def _end_if_broken(self) -> None:
        if self._broken:
            self._writer.flush()
            raise ClientClassError(self._broken)

    def acknowledged(self) -> None:
        """Count an acknowledged change of this client."""
        if not self._acknowledged:
            self._acknowledged = True
            self._control.tell(FirstAck(time.monotonic_ns()))

    def _obey(self, command: Command) -> bool:
        match command:
            case StartLoad():
                self._pacer = Pacer(self.settings.rate, self.rng, start_s=time.monotonic())
            case StopLoad():
                self._pacer = None
                self._writer.flush()
                self._counts.report(time.monotonic(), force=True)
                self._control.tell(Stopped(0))  # an operation ends before the next command is taken
            case SetPhase():
                self._writer.phase = command.name
            case Probe():
                error = self.probe(command.place)
                self._writer.flush()
                if error is not None:
                    time.sleep(RETRY_S)  # the run loop sends the next probe at once
                self._control.tell(Probed(command.id, error is None, error or ""))
            case ReadAll():
                self._is_answered = False
                self.advanced()
                complete, end, read = self.read_all(command.place, time.monotonic() + command.timeout_s)
                self._writer.flush()
                error = "" if complete else self._last_error
                idle_s = time.monotonic() - self._advanced_s if self._is_answered else 0.0
                self._control.tell(ReadDone(command.id, complete, end, read, error, idle_s))
            case Append():
                self._append(command)
            case Close():
                return False
        return True

    def _append(self, command: Append) -> None:
        results: list[AppendResult] = []
        for _ in range(command.count):
            result = self.append(command.partition)
            if result is None:
                self._control.decline(self.who, command)
                return
            results.append(result)
            if result.outcome != "ok":
                break
        self._writer.flush()
        self._control.tell(Appended(command.id, results))
