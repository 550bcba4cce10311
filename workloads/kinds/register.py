"""Reads, writes and compare-and-sets of a few keys, through a user-defined client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from history.record.register_names import key_name
from workloads import command_client, contract
from workloads.api import RegisterClient
from workloads.connection import Called
from workloads.control import Control
from workloads.kind import MAX_CLIENTS, ClientRole, Load, Mix, PlannedClient, WorkloadKind, WorkloadParameter
from workloads.settings import ClientSettings
from workloads.user_process import RETRY_S, OwnProcess

if TYPE_CHECKING:
    from history.record.writer import Invocation, OperationWriter

MAX_KEYS: Final = 1000
WEIGHTS: Final = ("reads", "writes", "cas")


class RegisterProcess(OwnProcess[RegisterClient]):
    """The process of a client under load, and of the fresh client of the final reads."""

    base = RegisterClient
    who = "client"

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        super().__init__(settings, control, writer)
        self._keys = settings.parameters["keys"]
        self._weights = [settings.parameters[name] for name in WEIGHTS]
        self._seen: dict[str, int | None] = {}  # the last value of each key that this client knows

    def operate(self) -> str:
        key = key_name(self.rng.randrange(self._keys))
        (operation,) = self.rng.choices(WEIGHTS, self._weights)
        if self.connected():
            return "fail"
        if operation == "reads":
            return self._read(key)
        outcome = self._write(key).outcome if operation == "writes" else self._compare_and_set(key)
        if outcome == "ok":
            self.acknowledged()
        return outcome

    def probe(self, place: int) -> str | None:
        if error := self.connected():
            return error
        called = self._write(key_name(place))
        return None if called.outcome == "ok" else called.error

    def read_all(self, place: int, give_up_s: float) -> tuple[bool, int, int]:
        while time.monotonic() < give_up_s:
            if self.connected() is None and self._read(key_name(place)) == "ok":
                return True, 1, 1
            time.sleep(RETRY_S)
        return False, 1, 0

    def _read(self, key: str) -> str:
        invocation = self._writer.start("read", key=key)
        called = self.call("read", lambda client: contract.held(client.read(key)))
        if called.outcome != "ok":  # a read has no effect: one without an answer counts as failed
            self._end(invocation, "fail", called)
            return "fail"
        self._end(invocation, "ok", called, value=called.value)
        self._seen[key] = called.value
        return "ok"

    def _write(self, key: str) -> Called:
        invocation = self._writer.start("write", key=key)
        called = self.call("write", lambda client: contract.written(client.write(key, invocation.value)))
        self._end(invocation, called.outcome, called)
        if called.outcome == "ok":
            self._seen[key] = invocation.value
        return called

    def _compare_and_set(self, key: str) -> str:
        expected = self._seen.get(key)
        invocation = self._writer.start("cas", key=key, expected=expected)
        called = self.call(
            "compare_and_set",
            lambda client: contract.was_set(client.compare_and_set(key, expected, invocation.value)),
        )
        if called.outcome == "ok" and not called.value:
            self._end(invocation, "fail", called, is_mismatch=True)
            self._seen.pop(key, None)
            return "fail"
        self._end(invocation, called.outcome, called)
        if called.outcome == "ok":
            self._seen[key] = invocation.value
        return called.outcome

    def _end(
        self, invocation: Invocation, outcome: str, called: Called, *, is_mismatch: bool = False, **columns: int | None
    ) -> None:
        """Record how an operation ended. If its error is the word that marks a failed compare-and-set in a record,
        another text is recorded, because the refusal says nothing about the key's value."""
        from history.record.schemas import MISMATCH

        error = f"refused: {called.error}" if called.error == MISMATCH else called.error
        error = MISMATCH if is_mismatch else error
        self._writer.end(invocation, outcome, error=error, endpoint=self.asked(called), **columns)


def _main(settings: ClientSettings, control: Control) -> None:
    if settings.own.client_command:
        command_client.main(settings, control, "client" if settings.producer >= 0 else "reader")
        return
    from history.record.shapes import REGISTER
    from workloads.client_record import open_record

    with open_record(settings, REGISTER) as writer:
        RegisterProcess(settings, control, writer).run()


def _clients(load: Load) -> tuple[PlannedClient, ...]:
    count = load.parameters["clients"]
    return tuple(PlannedClient("client", f"client-{n + 1}", load.rate / count, first=True) for n in range(count))


def _mix(load: Load) -> Mix:
    """By the weights. A compare-and-set counts as neither, because it depends on the value that it finds."""
    reads, writes, cas = (load.parameters[name] for name in WEIGHTS)
    return Mix(*(load.rate * weight / (reads + writes + cas) for weight in (writes, reads)))


def _keys(load: Load) -> tuple[str, ...]:
    return tuple(f"key {key_name(number)}" for number in range(load.parameters["keys"]))


def _problem(parameters: Mapping[str, Any]) -> str | None:
    if parameters["writes"] + parameters["cas"] == 0:
        return "writes and cas are both 0: a register without changes proves nothing; give one of them a weight"
    return None


def _weight(key: str, default: int, operation: str) -> WorkloadParameter:
    return WorkloadParameter(key, default, f"weight of {operation} in the mix", maximum=1000)


KIND: Final = WorkloadKind(
    name="register",
    description="Clients read, write and compare-and-set a few keys, through a user-defined client.",
    judge="register",
    partitioned=False,
    own_client=True,
    parameters=(
        WorkloadParameter("clients", 4, "processes that issue the load", minimum=1, maximum=MAX_CLIENTS),
        WorkloadParameter("keys", 4, "number of keys that they share", minimum=1, maximum=MAX_KEYS),
        _weight("reads", 5, "reads"),
        _weight("writes", 3, "writes"),
        _weight("cas", 2, "compare-and-sets"),
    ),
    roles={"client": ClientRole(_main, changes=True), "reader": ClientRole(_main, changes=False)},
    clients=_clients,
    mix=_mix,
    places=_keys,
    probe="client",
    probe_means="a write to each key is acknowledged",
    reader="reader",
    read_means="each key is read by a fresh client",
    problem=_problem,
)
