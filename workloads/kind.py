"""The declaration of a workload kind. Each kind is one file in `workloads/kinds/`, found by `workloads.kinds`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from history.field_types import COMPUTED, SETTINGS, Count, Positive, Seconds, one_of
from workloads.control import Control
from workloads.settings import ClientSettings, WorkloadFile

Judge = Literal["log", "register", "own"]
ScriptStep = Literal["produce", "consume", "delete-records"]

MAX_CLIENTS: Final = 64  # each client is a process, and a machine has room for a limited number
JUDGES: Final = ("log", "register", "own")
OWN: Final = "own"
"""The kind of a workload of a user's own, which a campaign names by its class."""
SCRIPT_STEPS: Final = ("produce", "consume", "delete-records")
MAX_RATE: Final = 1e6  # beyond what a machine can send
MAX_PARTITIONS: Final = 1000  # what one machine and a run of minutes can handle
PLACEMENTS: Final = ("spread", "off-controller")
BEFORE_LOAD, UNDER_LOAD = "before-load", "under-load"
LONGEST_TOPIC: Final = 200  # file and directory names contain it and a suffix

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]*")


_TOPIC_NAME: Final = Meta(
    pattern=rf"^(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{LONGEST_TOPIC}}}$",
    title=f"a topic's name; use 1 to {LONGEST_TOPIC} of the characters a-z, A-Z, 0-9, '.', '_' and '-', and neither "
    "'.' nor '..'",
)
_ASSIGNMENT: Final = Meta(
    title="one list of node numbers per partition, such as [[1, 2], [2, 3]]",
    extra_json_schema={
        "instead": {
            "minItems": 1,
            "items": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1}},
        }
    },
)


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

    @property
    def shape(self) -> dict[str, Any]:
        """The JSON Schema of the key, as `systems.declared_tables` reads it."""
        if isinstance(self.default, bool):
            return {"type": "boolean"}
        if isinstance(self.default, str):
            return {"type": "string", "enum": list(self.choices)}
        kind = "integer" if isinstance(self.default, int) else "number"
        bounds = {"minimum": self.minimum} | ({} if self.maximum is None else {"maximum": self.maximum})
        return {"type": kind, **bounds}


@dataclass(frozen=True)
class Load:
    """The load that a campaign requests from a kind. `rate`: operations per second of all clients together;
    `partitions`: 0 for a kind without partitions; `parameters`: all of the kind's own parameters."""

    rate: float
    partitions: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class WorkloadSource:
    """A user's workload. `use`: `bank.py:Bank`, as the campaign names it; `path`: of the file, which has this text."""

    use: str
    path: Annotated[Path, COMPUTED]
    text: str

    @property
    def file(self) -> str:
        """As the campaign names it."""
        return self.use.rpartition(":")[0]

    @property
    def of_client(self) -> WorkloadFile:
        """For a client's process."""
        return WorkloadFile(self.use, str(self.path.absolute()), WorkloadFile.digest(self.text))


class LoadKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of [workload] that every kind has, beside its own."""

    kind: str = "log"
    """The kind of workload ([workloads](workloads.md)): each has keys of its own. Some have a user-defined client."""
    rate: Annotated[float, Meta(ge=0.1, le=MAX_RATE)] = 100.0
    """Operations per second, all clients together."""
    duration_s: Seconds = 60.0
    """How long the load lasts at least, unless a script decides it."""
    operations: Count = 0
    """The load continues, up to 1.5 times `duration_s`, until this number of operations is completed."""


class Workload(LoadKeys, frozen=True, kw_only=True):
    """[workload] of a campaign: the keys of a kind whose data is in the partitions of a topic. Other kinds have no
    topic and no partitions. `parameters`: the kind's own keys; `source`: of a workload of the user's own."""

    topic: Annotated[str, _TOPIC_NAME] = "log"
    """The topic's name."""
    partitions: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)] = 4
    """Partitions of the topic."""
    replication_factor: Positive = 3
    """Replicas of each partition; at most one on each node."""
    assignment: Annotated[tuple[tuple[Positive, ...], ...], _ASSIGNMENT] | None = None
    """Instead of the two above: the numbers of the nodes with the replicas of each partition, preferred leader
    first."""
    placement: Annotated[str, one_of(PLACEMENTS)] = "spread"
    """Of replicas without an `assignment`: `spread`, each partition's on the next nodes; `off-controller`: no replica
    on the node that leads the quorum when the topic is created."""
    topic_creation: Annotated[str, one_of((BEFORE_LOAD, UNDER_LOAD))] = BEFORE_LOAD
    """`before-load`: the load starts when all partitions have a leader and in-sync replicas. `under-load`: the load
    runs for a second, then the topic is created; producers have appends waiting at that moment, and send them as soon
    as they learn of a leader."""
    topic_settings: Annotated[Mapping[str, str], Meta(extra_json_schema=SETTINGS)] = {}
    """The settings with which the topic is created, by the system's names; Apache Kafka with KRaft, and our broker."""
    parameters: Annotated[Mapping[str, Any], COMPUTED] = {}
    source: Annotated[WorkloadSource | None, COMPUTED] = None

    @property
    def named(self) -> str:
        """The kind as the campaign names it."""
        return self.kind if self.source is None else self.source.use

    @property
    def load(self) -> Load:
        """The part that the workload's kind needs."""
        return Load(self.rate, self.partitions, self.parameters)

    def assign(self, ids: Sequence[int], controller: int | None = None) -> tuple[tuple[int, ...], ...]:
        """By partition: which of these nodes have its replicas, the preferred leader first."""
        if self.assignment is not None:
            return self.assignment
        among = [n for n in ids if self.placement == "spread" or n != controller]
        return tuple(
            tuple(among[(partition + offset) % len(among)] for offset in range(self.replication_factor))
            for partition in range(self.partitions)
        )


SHARED_KEYS: Final = frozenset(Workload.__struct_fields__) - {"parameters", "source"}
"""The keys of [workload] that a kind cannot declare."""


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
    `steps`: the steps that a script may use (`produce` and `delete-records` by the probe's client, `consume` by a
    reader). `problem`: what is wrong with the combination of parameters.
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
        for is_wrong, problem in self._contradictions():
            if is_wrong:
                raise KindError(f"workload kind {self.name!r}: {problem}")

    def _contradictions(self) -> list[tuple[bool, str]]:
        keys = [parameter.key for parameter in self.parameters]
        defaults = {parameter.key: parameter.default for parameter in self.parameters}
        bad_bounds = [parameter.key for parameter in self.parameters if not parameter.takes_default]
        shared_keys = sorted(SHARED_KEYS & set(keys))
        return [
            (_NAME.fullmatch(self.name) is None, "its name must consist of small letters, digits and '-'"),
            (not self.description.endswith("."), "its description is not a sentence"),
            (self.judge not in JUDGES, f"its judge {self.judge!r} is not one of {', '.join(JUDGES)}"),
            (len(set(keys)) != len(keys), "a parameter is declared twice"),
            (bool(shared_keys), f"{', '.join(shared_keys)} belongs to every kind; a kind cannot declare it"),
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
