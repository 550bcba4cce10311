"""The type of a trial of a client: a name, the client's version, the action, and the observation."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.broker.clients.harness import Cluster


class NotTriedError(Exception):
    """The client is not here; the message says why."""


@dataclass(frozen=True)
class Trial:
    """`version` and `run` raise `NotTriedError` where the client is not here. `run` says what was seen, in a few words,
    and raises anything else when that is not what it should be. Trials of one client are run in their order."""

    client: str
    done: str
    version: Callable[[], str]
    run: Callable[[Cluster], str]


@dataclass(frozen=True)
class Seen:
    """The outcome of a trial: `works`, `broken` or `not tried`."""

    trial: Trial
    version: str
    outcome: str
    said: str


def try_out(trial: Trial, nodes: Cluster) -> Seen:
    """Run a trial; whatever goes wrong is what was seen."""
    version = "-"
    try:
        version = trial.version()
        return Seen(trial, version, "works", trial.run(nodes))
    except NotTriedError as absent:
        return Seen(trial, version, "not tried", str(absent))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Seen(trial, version, "broken", f"{type(error).__name__}: {lines[-1][:200]}")
