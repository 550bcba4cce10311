"""The daemon that keeps nodes: starts them, follows orders until the order to take them down, and does that.

A program, started by `client.bring_up` in its own session: `daemon DIRECTORY LOCK STARTER`. LOCK and STARTER are
inherited descriptors: the registry's lock, and the channel to the command that waits for the nodes. If that command
ends before the nodes are up, they are taken down.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from installation.python_modules import module_command
from orchestrator.cleanup import always, clean_up
from orchestrator.errors import Interrupted, RunError, UsageError
from orchestrator.machine import sandbox
from orchestrator.nodes import rpc
from orchestrator.nodes.cluster import HeldNodes
from orchestrator.nodes.messages import (
    Answer,
    Down,
    Failed,
    NodesStatus,
    NodesUp,
    Order,
    ProgressMessage,
    RefusedMessage,
    Shell,
    ShellCommand,
    StartMessage,
    Status,
    StopMessage,
)
from orchestrator.nodes.rpc import Channel, UnknownMessageError
from orchestrator.nodes.state import KeptNodes, NodesPlan
from orchestrator.running.interrupts import Interrupts

# The longest time for which a pending order delays the end.
_ORDER_S = 60.0


class Holder:
    """Holds one set of nodes. Call `hold` once, from the main thread."""

    def __init__(self, kept: KeptNodes, plan: NodesPlan, starter: Channel[Order], listener: socket.socket) -> None:
        self._kept = kept
        self._plan = plan
        self._starter = starter
        self._listener = listener
        self._nodes: HeldNodes | None = None
        self._up = threading.Event()
        self._ending = threading.Event()
        self._began_s = time.monotonic()
        self._busy = threading.Lock()
        self._main_thread = threading.get_ident()
        self._listeners: list[Channel[Order]] = [starter]

    def hold(self) -> None:
        """Start, follow orders, take down. Errors while starting or ending are reported to the command that asked."""
        interrupts = Interrupts(
            on_first=lambda: self._say("taking the nodes down"), on_second=lambda: self._say("aborting")
        )
        ending = always(self._take_down, shield=interrupts.shielded)
        with contextlib.suppress(Interrupted), interrupts.installed(), ending:
            for task in (self._attend_starter, self._attend_all):
                threading.Thread(target=task, daemon=True).start()
            self._bring_up()
            threading.Event().wait()

    # ---- up and down, in the main thread

    def _bring_up(self) -> None:
        try:
            nodes = self._nodes = HeldNodes(self._kept, self._plan)
            nodes.up(self._say)
        except Exception as error:
            _log_unexpected(error)
            self._starter.tell(_failure(error))
            raise Interrupted from error
        self._up.set()
        self._listeners.remove(self._starter)
        self._starter.tell(nodes.summary())

    def _take_down(self) -> None:
        self._ending.set()
        self._busy.acquire(timeout=_ORDER_S)  # a pending order would fail without its nodes
        clean_up(self._take_nodes_down, self._kept.remove)

    def _take_nodes_down(self) -> None:
        try:
            if self._nodes is not None:
                self._nodes.down(self._say)
        except Exception as error:
            _log_unexpected(error)
            for each in self._listeners:
                each.tell(_failure(error))

    def _say(self, text: str) -> None:
        """To the log, and to every command that waits for the nodes to be up or down."""
        print(f"[{time.monotonic() - self._began_s:6.1f} s] {text}", flush=True)
        for each in list(self._listeners):
            each.tell(ProgressMessage(text))

    def _end(self) -> None:
        """Make the main thread take the nodes down, wherever it is; further calls do nothing."""
        if not self._ending.is_set():
            self._ending.set()
            signal.pthread_kill(self._main_thread, signal.SIGTERM)

    # ---- orders, each in a thread of its own

    def _attend_starter(self) -> None:
        """End when the command that started this process has ended or closes the connection before the nodes are up."""
        while self._starter.receive() is not None:
            pass
        if not self._up.is_set():
            self._end()

    def _attend_all(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._attend, args=(rpc.of_holder(connection),), daemon=True).start()

    def _attend(self, asker: Channel[Order]) -> None:
        try:
            order = asker.receive()
            if isinstance(order, Down):
                self._listeners.append(asker)
                self._end()
                return  # the command waits for the end of this process
            if order is not None:
                asker.tell(self._answer(asker, order))
        except UnknownMessageError as error:
            asker.tell(RefusedMessage(f"unknown order ({error}): the nodes were made by another version"))
        except Exception as error:
            _log_unexpected(error)
            asker.tell(_failure(error))
        asker.close()

    def _answer(self, asker: Channel[Order], order: Status | Shell | StartMessage | StopMessage) -> Answer:
        if isinstance(order, Status):
            return self._status()
        if self._nodes is None or self._ending.is_set() or not self._up.is_set():
            state = "taken down" if self._ending.is_set() else "brought up"
            return RefusedMessage(f"the nodes are {state}; wait until that is done, then try again")
        if isinstance(order, Shell):
            return ShellCommand(self._nodes.shell(order.node, order.command))
        return self._switch_services(self._nodes, asker, on=isinstance(order, StartMessage))

    def _status(self) -> NodesStatus:
        if self._nodes is None or self._ending.is_set() or not self._up.is_set():
            return NodesStatus("going down" if self._ending.is_set() else "coming up")
        return self._nodes.status()

    def _switch_services(self, nodes: HeldNodes, asker: Channel[Order], *, on: bool) -> NodesUp:
        with self._busy:
            (nodes.start_services if on else nodes.stop_services)(lambda text: asker.tell(ProgressMessage(text)))
        return nodes.summary()


def _failure(error: Exception) -> Answer:
    if isinstance(error, UsageError):
        return RefusedMessage(str(error))
    if isinstance(error, RunError):
        return Failed(str(error))
    text = "".join(traceback.format_exception(error))
    return Failed(f"{text}this is a bug of Brownout; the traceback above shows where")


def _log_unexpected(error: Exception) -> None:
    if not isinstance(error, UsageError | RunError):
        traceback.print_exception(error)


def main(arguments: Sequence[str]) -> NoReturn:
    kept, lock, starter = KeptNodes(Path(arguments[0])), int(arguments[1]), int(arguments[2])
    plan = kept.plan
    if plan.sandboxed and sandbox.current_sandbox() is None:
        sandbox.enter_sandbox(module_command("orchestrator.nodes.daemon", *arguments))
    for descriptor in (lock, starter):
        os.set_inheritable(descriptor, False)
    connection = rpc.of_holder(socket.socket(fileno=starter))
    try:
        listener = rpc.listen(kept.directory)
    except OSError as error:
        connection.tell(Failed(f"no socket can be made in {kept.directory}: {error.strerror}; move the project"))
        sys.exit(1)
    Holder(kept, plan, connection, listener).hold()
    os._exit(0)  # does not wait for threads that still serve connections


if __name__ == "__main__":
    main(sys.argv[1:])
