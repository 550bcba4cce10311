"""The exceptions that the orchestrator raises deliberately, and their exit codes."""

import signal
from collections.abc import Mapping
from typing import Any

from nemeses.ports import HostError
from systems.errors import ClusterError, InputError

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_UNKNOWN = 2
EXIT_USAGE = 64
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130

EXIT_OF_VERDICT = {"pass": EXIT_PASS, "fail": EXIT_FAIL, "unknown": EXIT_UNKNOWN}


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals with which users stop a command."""


class UsageError(InputError):
    """The user's input is invalid (exit 64); the message names file and key, or argument, and the remedy."""


class RunError(ClusterError):
    """A run cannot continue: a node does not start, a cluster does not heal, a step misses its deadline.

    The evidence is kept. The run's verdict is unknown, with this message as the reason, or fail, if the evidence
    already proves an anomaly.
    """


class OverdueError(RunError):
    """The cluster did not reach a state in time, although everything that it depends on worked."""


class StalledReadError(RunError):
    """Final reads did not reach the end. `facts`: what `Journal.final_read_stalled` takes of the first place."""

    def __init__(self, text: str, facts: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.facts = facts


class WorldError(RunError, HostError):
    """A world, or the machine that it is made on, could not do what was requested; names the node and the cause."""


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; everything is healed and taken down before the process ends.

    Not an `Exception`: an interrupted checker must not be reported as a crashed one.
    """
