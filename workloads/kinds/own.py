"""A workload of a user's own: operations that a user's class draws, through a user-defined client."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from history.strict_json import decode
from workloads import contract
from workloads.api import Client
from workloads.control import Control, Trouble
from workloads.kind import MAX_CLIENTS, OWN, ClientRole, Load, Mix, PlannedClient, WorkloadKind, WorkloadParameter
from workloads.loaded_workload import DRAWN, HANGS_S, DrawnOperations, LoadedWorkload
from workloads.own_workload import Operation
from workloads.settings import ClientSettings
from workloads.user_process import IDLE_S, RETRY_S, OwnProcess

if TYPE_CHECKING:
    from history.record.writer import OperationWriter

PARAMETERS: Final = "own"
"""The parameters of the user's class, among those of the kind."""
SHARE: Final = "queries_share"
"""The share of queries in the load, as drawn before the run, among the parameters of the kind."""


class OwnOperations(OwnProcess[Client]):
    """The process of a client under load, and of the fresh client of the final read."""

    base = Client
    who = "client"

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        """Raises `ClientClassError` or `OwnClassError` when a class cannot be loaded."""
        super().__init__(settings, control, writer)
        self._loaded = LoadedWorkload.of_file(settings.workload)
        self._workload = self._loaded.make(settings.parameters[PARAMETERS], settings.client)
        self._drawn = self._operations()
        self._result: Any = None
        self._drawing_s = math.inf  # since when the generator has been under way
        threading.Thread(target=self._watch, args=(threading.get_ident(),), name="watch", daemon=True).start()

    def operate(self) -> str | None:
        if self.connected():
            return "fail"
        operation = self._next()
        if operation is None:
            return None
        outcome = self._invoke(operation)
        if outcome == "ok" and (not self._is_query(operation) or self.settings.parameters[SHARE] == 1):
            self.acknowledged()
        return outcome

    def probe(self, place: int) -> str | None:
        del place  # there is one
        if error := self.connected():
            return error
        operation = self._next()
        for _ in range(DRAWN):
            if operation is None:  # the load is over for this client, but not for its probes
                self._drawn, self._result = self._operations(), None
            elif not self._is_query(operation):
                break
            operation = self._next()
        if operation is None:
            return "the workload draws no further operation"
        return None if self._invoke(operation) == "ok" else self._last_error

    def read_all(self, place: int, give_up_s: float) -> tuple[bool, int, int]:
        del place
        drawn = self._loaded.final(self._workload, self._class)
        self._result = None
        operation = self._next(drawn)
        while operation is not None:
            if time.monotonic() >= give_up_s:
                self._last_error = self._last_error or drawn.unended()
                return False, drawn.count, drawn.count - 1
            if self.connected() is None and self._invoke(operation) == "ok":
                self.advanced()
                operation = self._next(drawn)
            else:
                time.sleep(RETRY_S)
        return True, drawn.count, drawn.count

    def _operations(self) -> DrawnOperations:
        return self._loaded.operations(self._workload, self._class, self.rng)

    def _next(self, drawn: DrawnOperations | None = None) -> Operation | None:
        """The next operation, of the load or of others."""
        self._drawing_s = time.monotonic()
        try:
            return (drawn or self._drawn).next(self._result)
        finally:
            self._drawing_s = math.inf

    def _watch(self, thread: int) -> None:
        """Report a generator that hangs, with the line where it does."""
        while time.monotonic() - self._drawing_s < HANGS_S:
            time.sleep(IDLE_S)
        self._control.tell(Trouble(self._loaded.hanging(thread, HANGS_S)))

    def _is_query(self, operation: Operation) -> bool:
        return operation.function in self._workload.queries

    def _invoke(self, operation: Operation) -> str:
        """One operation, recorded; returns its outcome."""
        function = operation.function
        invocation = self._writer.start(
            "query" if self._is_query(operation) else "call",
            function=function,
            key=operation.key,
            argument=contract.json_text(operation.argument),
        )
        called = self.call(function, lambda client: contract.answered(getattr(client, function)(operation)))
        is_without_effect = self._is_query(operation) and called.outcome == "info"
        outcome, result = "fail" if is_without_effect else called.outcome, called.value
        self._writer.end(invocation, outcome, result=result, error=called.error, endpoint=self.asked(called))
        self._result = decode(result) if outcome == "ok" else None
        return outcome


def _main(settings: ClientSettings, control: Control) -> None:
    from history.record.shapes import FREE
    from workloads.client_record import open_record

    with open_record(settings, FREE) as writer:
        OwnOperations(settings, control, writer).run()


def _clients(load: Load) -> tuple[PlannedClient, ...]:
    count = load.parameters["clients"]
    return tuple(PlannedClient("client", f"client-{n + 1}", load.rate / count, first=True) for n in range(count))


def _mix(load: Load) -> Mix:
    share = load.parameters[SHARE]
    return Mix(load.rate * (1 - share), load.rate * share)


KIND: Final = WorkloadKind(
    name=OWN,
    description='A campaign names its class, `kind = "bank.py:Bank"`, or a set, queue, counter, bank, source of ids or '
    'transactions: `kind = "set"` ([workloads of your own](own-workloads.md)). '
    "Clients call the functions that the class draws, through a user-defined client.",
    judge="own",
    partitioned=False,
    own_client=True,
    parameters=(WorkloadParameter("clients", 4, "processes that issue the load", minimum=1, maximum=MAX_CLIENTS),),
    roles={"client": ClientRole(_main, changes=False)},
    clients=_clients,
    mix=_mix,
    places=lambda _: ("the system",),
    probe="client",
    probe_means="a function that changes something is acknowledged",
    reader="client",
    read_means="a fresh client asks what the class names for the final read",
)
