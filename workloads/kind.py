"""What a workload kind says of itself. Each kind is one file in `workloads/kinds/`, found by `workloads.kinds`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from workloads.control import Control
from workloads.settings import ClientSettings

Judge = Literal["log", "register"]
ScriptStep = Literal["produce", "consume"]

MAX_CLIENTS: Final = 64  # each is a process; more than a machine bears
JUDGES: Final = ("log", "register")
SCRIPT_STEPS: Final = ("produce", "consume")
# The keys of [workload] that mean the same whatever the kind.
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
    """A workload kind that is not whole; the message names it and what is wrong."""


@dataclass(frozen=True)
class WorkloadParameter:
    """One key of a kind in a campaign's [workload]. Its type is the default's: bool, int, float or str.

    `unit` and `meaning` are for the documentation; `maximum` None: none. `choices`: what a text may be."""

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
    """What a campaign asks of a kind. `rate`: operations a second of all clients together; `partitions`: 0 for a kind
    that has none; `parameters`: the kind's own, all of them."""

    rate: float
    partitions: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Mix:
    """What a load consists of, operations a second of all clients together: `changes`, of which each that is
    acknowledged must stay, and `queries`, whose answers bound what is there (ends of logs, reads of registers)."""

    changes: float
    queries: float


@dataclass(frozen=True)
class PlannedClient:
    """A client process under load. `first`: it starts with the run and puts the first operations; the others start
    after the first acknowledged one, so that they do not slow it down. `rate`: its share, operations a second."""

    role: str
    name: str
    rate: float
    first: bool


@dataclass(frozen=True)
class ClientRole:
    """What a client process of a role does, from its first line to its last. `changes`: it needs values of its own."""

    main: Callable[[ClientSettings, Control], None]
    changes: bool


def _no_problem(_: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class WorkloadKind:
    """A workload kind.

    `judge`: which checker reads what was recorded; run.toml has it as `kind`. `partitioned`: the data lies in the
    partitions of a topic. `clients`: which processes put the load. `mix`: of what that consists. `places`: what is
    probed after everything was healed and finally read, one after the other, as it is named in complaints. `probe`: the
    role whose client answers `Probe`, `probe_means` what that is; `reader`: the role whose client answers `ReadAll`,
    `read_means` when that is complete. `own_client`: the clients are the user's (`workloads.api`). `steps`: what a
    script may ask of it (`produce` of the probe, `consume` of a reader). `problem`: what is wrong with parameters that
    are each in their bounds.
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
            (_NAME.fullmatch(self.name) is None, "its name needs small letters, digits and '-' only"),
            (not self.description.endswith("."), "its description is not a sentence"),
            (self.judge not in JUDGES, f"its judge {self.judge!r} is none of {', '.join(JUDGES)}"),
            (len(set(keys)) != len(keys), "a parameter is there twice"),
            (bool(taken), f"{', '.join(taken)} belongs to every kind and cannot be its own"),
            (any(_KEY.fullmatch(key) is None for key in keys), "a parameter needs small letters, digits and '_' only"),
            (bool(bad_bounds), f"the default of {', '.join(bad_bounds)} is out of its bounds"),
            (any(not p.meaning for p in self.parameters), "a parameter without a meaning"),
            (self.probe not in self.roles, f"its probe {self.probe!r} is none of its roles"),
            (self.reader not in self.roles, f"its reader {self.reader!r} is none of its roles"),
            (not (self.probe_means and self.read_means), "it does not say what its probe and its final reads mean"),
            (bool(self.steps - set(SCRIPT_STEPS)), f"a script has no other steps than {', '.join(SCRIPT_STEPS)}"),
            (self.problem(defaults) is not None, "its defaults do not go together"),
        ]
