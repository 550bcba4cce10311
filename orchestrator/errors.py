"""What the orchestrator raises on purpose, and the exit code that each means to the shell."""

from __future__ import annotations

import signal

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
"""By these signals people ask a command to stop."""


class UsageError(InputError):
    """The user's input cannot be acted on (exit 64); the message names file and key, or argument, and the remedy."""


class RunError(ClusterError):
    """A run cannot go on: a node that does not come up, a cluster that does not heal, a step past its deadline.

    What was recorded stays; the run's verdict is unknown, with this message as the reason, or fail, should the record
    already prove an anomaly.
    """


class OverdueError(RunError):
    """What was awaited of the cluster did not come within its time, though everything that it stands on worked."""


class WorldError(RunError, HostError):
    """A world, or the machine that it is made on, could not do what was asked; names the node and the cause."""


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; everything is healed and torn down on the way out.

    Not an `Exception`: a checker that is interrupted must not be taken for one that crashed.
    """
