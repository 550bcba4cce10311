"""A campaign as data: cluster, load, faults and checks. `campaign.parser` reads it from TOML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.evidence.run_toml import LEAST_SHARE
from analysis.verdict import Expectation
from orchestrator.campaign.steps import Step
from orchestrator.world_kind import AUTO
from systems import RoleSettings
from workloads.kind import Load
from workloads.settings import OwnClient

SIMULATION = "simulation"
"""The world in which everything follows from the seed."""
NODE_ROOTS = ("machine", "image")
FILESYSTEMS = ("ext4", "xfs")
STRICT = "strict"
"""Simulation only: a filesystem that guarantees exactly what POSIX promises and no more."""
PLACEMENTS = ("spread", "off-controller")
BEFORE_LOAD, UNDER_LOAD = "before-load", "under-load"
TOPIC_CREATIONS = (BEFORE_LOAD, UNDER_LOAD)
VERDICTS = ("pass", "fail", "unknown")
MAX_NODES = 9
MAX_SEED = (1 << 63) - 1  # exclusive, so that the number of seeds still fits
MAX_RATE = 1e6  # beyond what a machine can send
MAX_PARTITIONS = 1000  # what one machine and a run of minutes can handle


@dataclass(frozen=True)
class Topology:
    """`inventory`: of the inventory world, relative to the campaign's file; the command line may give it, too.

    `node_root`: of the namespaces world, whether nodes run on the machine's root filesystem or on the nodes' image."""

    nodes: int = 3
    world: str = AUTO
    filesystem: str = "ext4"
    inventory: str | None = None
    node_root: str = "machine"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


@dataclass(frozen=True)
class SystemUnderTest:
    """The tested system and its nodes' roles. `directory`: of its description, None for one of Brownout's. `roles`: by
    node name, where the campaign states them."""

    name: str = "brownout"
    version: str | None = None
    directory: Path | None = None
    roles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """`rate`: operations per second of all clients. The load ends after `duration_s`, with at least `operations` done.
    `parameters`: the kind's own. A kind whose data is not in a topic has no partitions.

    `placement`: of replicas without an explicit `assignment`. `spread`: each partition's on the next nodes.
    `off-controller`: all on nodes other than the controller at the time when the topic is created.
    `topic_creation`: `before-load`: the load starts when all partitions have a leader and in-sync replicas.
    `under-load`: the producers already have appends waiting when the topic is created.
    `topic_settings`: those with which the topic is created, by the system's names.
    """

    kind: str = "log"
    topic: str = "log"
    partitions: int = 4
    replication_factor: int = 3
    assignment: tuple[tuple[int, ...], ...] | None = None
    placement: str = "spread"
    topic_creation: str = BEFORE_LOAD
    rate: float = 100.0
    duration_s: float = 60.0
    operations: int = 0
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)
    topic_settings: Mapping[str, str] = field(default_factory=dict)

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


@dataclass(frozen=True)
class NemesisSettings:
    """`random`: faults drawn from the seed while the load runs. `steps`: the script in `steps`. `none`: no faults.

    `optional_faults`: those of `faults` that a world may lack; a world that lacks another one rejects the campaign.
    `overlap`: a fault may start before the previous one is healed. `quiet_s`: times of the main phase (from, to)
    without any fault in force."""

    kind: str = "none"
    faults: tuple[str, ...] = ()
    optional_faults: tuple[str, ...] = ()
    interval_s: tuple[float, float] = (2.0, 4.0)
    duration_s: tuple[float, float] = (2.0, 4.0)
    overlap: bool = False
    quiet_s: tuple[tuple[float, float], ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def possible_faults(self) -> frozenset[str]:
        """All kinds of fault that can happen."""
        return frozenset(self.faults) | {step.needs for step in self.steps if step.needs}

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of fault that a world must be able to inject."""
        return self.possible_faults - set(self.optional_faults)

    def left_out(self, capabilities: Collection[str]) -> tuple[str, ...]:
        """The optional kinds that a world with these capabilities lacks."""
        return tuple(kind for kind in self.optional_faults if kind not in capabilities)

    def scheduled(self, capabilities: Collection[str]) -> tuple[str, ...]:
        """The kinds that a random schedule has in such a world, each at least once."""
        return tuple(kind for kind in self.faults if kind not in self.left_out(capabilities))


@dataclass(frozen=True)
class Checks:
    """`min_ok`: acknowledged changes that a run needs, of those that the system promises to keep (see
    `analysis.evidence.load`). `min_queries`: answered queries under load; None: derived from the planned load
    (`campaign.load_targets`). `min_share`: the share of the planned changes that must be acknowledged under load.
    `converge_s`: the time after the heal within which the cluster must be whole and take writes; longer is an
    anomaly; None: the run waits, and a cluster that does not recover is unknown. `progress_s`: the time within
    which writes are acknowledged while faults last, if enough of the cluster is unaffected; None: derived from the
    settings. `min_remote_segments`: complete remote segments that a run with tiered storage needs; None: one."""

    upper_bound: str = "strict"
    min_ok: int | None = None
    min_queries: int | None = None
    min_share: float = LEAST_SHARE
    required_faults: tuple[str, ...] = ()
    converge_s: int | None = None
    progress_s: int | None = None
    min_remote_segments: int | None = None


@dataclass(frozen=True)
class Swarm:
    """Ranges from which a run draws by its seed, both ends included; see `campaign.swarm`. `rate`: operations/s."""

    nodes: tuple[int, int] = (1, 7)
    voters: tuple[int, int] = (1, 5)
    rate: tuple[float, float] = (20.0, 150.0)
    duration_s: tuple[float, float] = (12.0, 40.0)


@dataclass(frozen=True)
class Seeds:
    first: int = 1
    count: int = 1


@dataclass(frozen=True)
class Cell:
    """One column of the matrix: the campaign with these mutants, settings, version (None: the campaign's) and options
    of a user-defined client."""

    name: str = "main"
    mutants: tuple[str, ...] = ()
    settings: RoleSettings = field(default_factory=dict)
    version: str | None = None
    expect: Expectation = field(default_factory=Expectation)
    client_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Campaign:
    name: str
    description: str
    topology: Topology
    system: SystemUnderTest
    settings: RoleSettings
    workload: Workload
    nemesis: NemesisSettings
    checks: Checks
    seeds: Seeds
    cells: tuple[Cell, ...]
    path: Path
    text: str
    client: OwnClient = field(default_factory=OwnClient)
    swarm: Swarm | None = None
