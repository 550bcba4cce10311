"""The declaration of a workload kind. Each kind is one file in `workloads/kinds/`, found by `workloads.kinds`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from workloads.control import Control
from workloads.settings import ClientSettings

Judge = Literal["log", "register"]
ScriptStep = Literal["produce", "consume"]

MAX_CLIENTS: Final = 64  # each client is a process, and a machine has room for a limited number
JUDGES: Final = ("log", "register")
SCRIPT_STEPS: Final = ("produce", "consume")
# The keys of [workload] that have the same meaning for every kind.
SHARED_KEYS: Final = frozenset(
    {
        "kind",
        "rate",
        "duration_s",
        "operations",
        "topic",
        "partitions",
        "replication_factor",
        "assignment",
        "placement",
        "topic_creation",
    }
)

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]*")


class KindError(Exception):
    """An invalid workload kind; the message has its name and the reason."""


@dataclass(frozen=True)
class WorkloadParameter:
    """One key of a kind in a campaign's [workload]. Its type is the default's: bool, int, float or str.

    `unit` and `meaning` are for the documentation; `maximum` None: no maximum. `choices`: the allowed texts."""

    key: str
    default: bool | int | float | str
    meaning: str
    unit: str = ""
    minimum: int | float = 0
    maximum: int | float | None = None
    choices: tuple[str, ...] = ()

    @property
    def takes_default(self) -> bool:
        """Whether the default is within the bounds."""
        if isinstance(self.default, str):
            return self.default in self.choices
        return self.minimum <= self.default and (self.maximum is None or self.default <= self.maximum)


@dataclass(frozen=True)
class Load:
    """The load that a campaign requests from a kind. `rate`: operations per second of all clients together;
    `partitions`: 0 for a kind without partitions; `parameters`: all of the kind's own parameters."""

    rate: float
    partitions: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Mix:
    """The composition of a load, in operations per second of all clients together: `changes`, which must persist once
    they are acknowledged, and `queries`, whose answers bound the content (ends of logs, reads of registers)."""

    changes: float
    queries: float


@dataclass(frozen=True)
class PlannedClient:
    """A client process under load. `first`: it starts with the run and issues the first operations; the others start
    after the first acknowledgement, so that they do not slow it down. `rate`: its share, operations per second."""

    role: str
    name: str
    rate: float
    first: bool


@dataclass(frozen=True)
class ClientRole:
    """The program of a client role. `changes`: the role writes values, and needs a range of its own for them."""

    main: Callable[[ClientSettings, Control], None]
    changes: bool


def _no_problem(_: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class WorkloadKind:
    """A workload kind.

    `judge`: the checker of the recorded history; run.toml has it as `kind`. `partitioned`: the data is in the
    partitions of a topic. `clients`: the processes that issue the load. `mix`: the composition of the load. `places`:
    the names of what is probed after the last heal and read at the end, one after the other. `probe`: the role whose
    client answers `Probe`; `probe_means`: the meaning of a successful probe. `reader`: the role whose client answers
    `ReadAll`; `read_means`: when a final read is complete. `own_client`: the clients are the user's (`workloads.api`).
    `steps`: the steps that a script may use (`produce` by the probe's client, `consume` by a reader). `problem`: what
    is wrong with the combination of parameters.
    """

    name: str
    description: str
    judge: Judge
    partitioned: bool
    parameters: tuple[WorkloadParameter, ...]
    roles: Mapping[str, ClientRole]
    clients: Callable[[Load], tuple[PlannedClient, ...]]
    mix: Callable[[Load], Mix]
    places: Callable[[Load], tuple[str, ...]]
    probe: str
    probe_means: str
    reader: str
    read_means: str
    own_client: bool = False
    steps: frozenset[ScriptStep] = field(default_factory=frozenset)
    problem: Callable[[Mapping[str, Any]], str | None] = _no_problem

    def __post_init__(self) -> None:
        """Raises `KindError` for a kind that contradicts itself."""
        for wrong, what in self._contradictions():
            if wrong:
                raise KindError(f"workload kind {self.name!r}: {what}")

    def _contradictions(self) -> list[tuple[bool, str]]:
        keys = [parameter.key for parameter in self.parameters]
        defaults = {parameter.key: parameter.default for parameter in self.parameters}
        bad_bounds = [parameter.key for parameter in self.parameters if not parameter.takes_default]
        taken = sorted(SHARED_KEYS & set(keys))
        return [
            (_NAME.fullmatch(self.name) is None, "its name must consist of small letters, digits and '-'"),
            (not self.description.endswith("."), "its description is not a sentence"),
            (self.judge not in JUDGES, f"its judge {self.judge!r} is not one of {', '.join(JUDGES)}"),
            (len(set(keys)) != len(keys), "a parameter is declared twice"),
            (bool(taken), f"{', '.join(taken)} belongs to every kind; a kind cannot declare it"),
            (
                any(_KEY.fullmatch(key) is None for key in keys),
                "a parameter must consist of small letters, digits and '_'",
            ),
            (bool(bad_bounds), f"the default of {', '.join(bad_bounds)} is out of its bounds"),
            (any(not p.meaning for p in self.parameters), "a parameter without a meaning"),
            (self.probe not in self.roles, f"its probe {self.probe!r} is not one of its roles"),
            (self.reader not in self.roles, f"its reader {self.reader!r} is not one of its roles"),
            (not (self.probe_means and self.read_means), "it does not say what its probe and its final reads mean"),
            (bool(self.steps - set(SCRIPT_STEPS)), f"a script has no other steps than {', '.join(SCRIPT_STEPS)}"),
            (self.problem(defaults) is not None, "its defaults contradict each other"),
        ]
