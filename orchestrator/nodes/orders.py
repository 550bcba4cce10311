"""Orders of commands to the process that keeps the nodes: one JSON line each way, over a Unix socket.

A command follows the log of that process until its answer is there, so the user sees the progress.
"""

import contextlib
import math
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal, NoReturn, TextIO

import msgspec
from msgspec import UNSET, UnsetType

from installation.commands import command
from orchestrator.errors import RunError, UsageError
from orchestrator.nodes.state import KeptNodes

Say = Callable[[str], None]

LOOK_S: Final = 30.0
_POLL_S: Final = 0.02
_READ_S: Final = 5.0


class Order(msgspec.Struct):
    """What to do. "ssh" asks how to enter a node: without words for a shell, with words for a command."""

    action: Literal["status", "ssh", "start", "stop"]
    node: str = ""
    words: list[str] = []


class NodeStatus(msgspec.Struct, frozen=True):
    """The current state of one node. `state` is "up", "off" or "unreachable"; only the last has a `reason`.

    None: for `boot_id`, the node has no boot id of its own; for `service_pid`, no service runs."""

    name: str
    address: str
    port: int
    state: str
    boot_id: str | None = None
    service_pid: int | None = None
    reason: str | UnsetType = UNSET


class OrderAnswer(msgspec.Struct):
    """The nodes after the order, or the command line that enters one from inside the sandbox, or an error.

    `is_usage`: the user can remedy the error. `holder`: the process that answered, as the asking process sees it."""

    nodes: list[NodeStatus] = []
    argv: list[str] = []
    error: str = ""
    is_usage: bool = False
    holder: int = 0

    def require(self) -> None:
        """Raises the error, as `UsageError` or `RunError`."""
        if self.error:
            raise (UsageError if self.is_usage else RunError)(self.error)


def ask(kept_nodes: KeptNodes, order: Order, say: Say = lambda _: None, silence_s: float = LOOK_S) -> OrderAnswer:
    """Give an order to the nodes that are up. Raises `UsageError`, and `RunError`, also after this time without a
    line."""
    if (phase := kept_nodes.phase) != "up":
        raise UsageError(f"the nodes are {phase}; wait until that is done, then try again")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(silence_s)
            with _address(kept_nodes) as address, kept_nodes.tail() as log:
                connection.connect(address)
                connection.sendall(msgspec.json.encode(order) + b"\n")
                follow(log, lambda: bool(select.select([connection], [], [], 0)[0]), say, silence_s)
            answer = msgspec.json.decode(connection.makefile("rb").readline(), type=OrderAnswer)
        except PermissionError as error:
            raise UsageError("the nodes belong to another user; run this as that user (perhaps with sudo)") from error
        except TimeoutError as error:
            raise RunError(
                "the process that keeps the nodes does not answer, or still follows another order "
                f"(its log: {kept_nodes.log}); {command('nodes', 'down')} ends it"
            ) from error
        except (OSError, msgspec.MsgspecError) as error:
            raise RunError(
                "the process that keeps the nodes has ended, or is of another version; "
                f"{command('nodes', 'status')} shows which, {command('nodes', 'down')} ends it"
            ) from error
        answer.holder = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    answer.require()
    return answer


@contextlib.contextmanager
def listening(kept_nodes: KeptNodes) -> Iterator[socket.socket]:
    """The socket for orders. Raises `RunError` if it cannot be made."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            with _address(kept_nodes) as address:
                listener.bind(address)
            listener.listen()
        except OSError as error:
            raise RunError(
                f"no socket can be made in {kept_nodes.directory}: {error.strerror}; move the project"
            ) from error
        yield listener


def serve(listener: socket.socket, answer: Callable[[Order], OrderAnswer]) -> NoReturn:
    """OrderAnswer orders one after the other, until an interrupt."""
    while True:
        connection, _ = listener.accept()
        # The command may have ended, or be of another version.
        with connection, contextlib.suppress(OSError, msgspec.MsgspecError):
            connection.settimeout(_READ_S)
            order = msgspec.json.decode(connection.makefile("rb").readline(), type=Order)
            connection.sendall(msgspec.json.encode(answer(order)) + b"\n")


def take_failure(kept_nodes: KeptNodes) -> OrderAnswer:
    """Why the nodes could not be made or taken down; no error if they could. Removes the record."""
    try:
        failure = msgspec.json.decode(kept_nodes.failure.read_bytes(), type=OrderAnswer)
    except FileNotFoundError:
        return OrderAnswer()
    kept_nodes.failure.unlink(missing_ok=True)
    return failure


def follow(log: TextIO, is_over: Callable[[], bool], say: Say, silence_s: float = math.inf) -> None:
    """Pass on what the process writes until the condition is true. Raises `TimeoutError` after this time without a
    line."""
    give_up_s = time.monotonic() + silence_s
    while True:
        is_last = is_over()
        for line in map(str.rstrip, log):
            say(line.partition(" s] ")[2] or line)  # each command counts its own time
            give_up_s = time.monotonic() + silence_s
        if is_last:
            return
        if time.monotonic() > give_up_s:
            raise TimeoutError
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _address(kept_nodes: KeptNodes) -> Iterator[str]:
    """The socket's path by way of a descriptor: a socket address holds only 107 bytes, and project paths may be
    longer."""
    descriptor = os.open(kept_nodes.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{kept_nodes.orders.name}"
    finally:
        os.close(descriptor)
