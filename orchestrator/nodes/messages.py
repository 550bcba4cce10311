"""The messages between a command and the daemon that keeps nodes: JSON objects, one per line.

A command sends one order. The daemon answers with any number of `ProgressMessage`, then with the order's result, a
`RefusedMessage` or a `Failed`.
"""

import msgspec
from msgspec import UNSET, UnsetType


class _Order(msgspec.Struct, tag_field="order", tag=str.lower):
    pass


class Status(_Order):
    """Return the state of the nodes, at any time: `NodesStatus`."""


class Shell(_Order):
    """Return how to enter a node: `ShellCommand`. Without words for a shell, with words for a command."""

    node: str
    command: list[str]


class StartMessage(_Order):
    """Start the services that do not run: `NodesUp`."""


class StopMessage(_Order):
    """Stop the services that run: `NodesUp`."""


class Down(_Order):
    """Take everything down. The answer is the closing of the connection."""


Order = Status | Shell | StartMessage | StopMessage | Down


class _Answer(msgspec.Struct, tag_field="answer"):
    pass


class ProgressMessage(_Answer, tag="progress"):
    """The current activity."""

    text: str


class RefusedMessage(_Answer, tag="refused"):
    """The order cannot be followed; the user can remedy that."""

    text: str


class Failed(_Answer, tag="failed"):
    """Following the order failed."""

    text: str


class NodesUp(_Answer, tag="up"):
    """The nodes' names, and the addresses of their services when they run."""

    nodes: list[str]
    bootstrap: str


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


class NodesStatus(_Answer, tag="status"):
    """All nodes. `state` is "coming up", "up" or "going down"; nodes are queried only when they are up."""

    state: str
    nodes: list[NodeStatus] = []
    bootstrap: str | UnsetType = UNSET


class ShellCommand(_Answer, tag="shell"):
    """The command line that enters a node from inside the sandbox."""

    command: list[str]


Result = NodesUp | NodesStatus | ShellCommand
Answer = ProgressMessage | RefusedMessage | Failed | NodesUp | NodesStatus | ShellCommand
