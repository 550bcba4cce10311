"""A campaign as data: what to run, what goes wrong, and what must hold. `campaign_file` reads it from TOML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.run_directory import LEAST_SHARE
from analysis.verdict import Expectation
from orchestrator.campaign.steps import Step
from systems import RoleSettings
from workloads.kind import Load
from workloads.settings import OwnClient

SIMULATION = "simulation"
"""The world in which everything follows from the seed."""
WORLDS = ("auto", "namespaces", "process", "vagrant", "inventory", SIMULATION)
NODE_ROOTS = ("machine", "image")
FILESYSTEMS = ("ext4", "xfs")
STRICT = "strict"
"""Of the simulation only: a filesystem that gives what it promises and no more."""
PLACEMENTS = ("spread", "off-controller")
BEFORE_LOAD, UNDER_LOAD = "before-load", "under-load"
TOPIC_CREATIONS = (BEFORE_LOAD, UNDER_LOAD)
UPPER_BOUNDS = ("strict", "session", "lower-bound-only")
VERDICTS = ("pass", "fail", "unknown")
MAX_NODES = 9
MAX_SEED = (1 << 63) - 1  # none comes up to it: all of them can still be counted
MAX_RATE, MAX_DURATION_S = 1e6, 1e7  # more than any machine puts, and a third of a year
MAX_PARTITIONS = 1000  # what one machine and a run of minutes can bear


@dataclass(frozen=True)
class Topology:
    """`inventory`: of the inventory world, relative to the campaign's file; it may be given on the command line.

    `node_root`: of the namespace world, whether nodes run on the machine's root filesystem or on the nodes' image."""

    nodes: int = 3
    world: str = "auto"
    filesystem: str = "ext4"
    inventory: str | None = None
    node_root: str = "machine"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


@dataclass(frozen=True)
class SystemUnderTest:
    """Which system is tested, and who plays what. `directory`: where it is described, None for one that comes with
    Brownout. `roles`: by node name, where the campaign says them."""

    name: str = "brownout"
    version: str | None = None
    directory: Path | None = None
    roles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """`rate`: operations a second of all clients. The load ends after `duration_s`, with at least `operations` done.
    `parameters`: the kind's own. A kind whose data lies in no topic has no partitions.

    `placement`: where replicas go that have no explicit `assignment`. `spread`: each partition's on the next nodes.
    `off-controller`: all on nodes other than the controller, whichever that is when the topic is created.
    `topic_creation`: `before-load`: the load starts when all partitions have a leader and in-sync replicas.
    `under-load`: the producers already have appends waiting when the topic is created.
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

    @property
    def load(self) -> Load:
        """What the workload's kind needs to know."""
        return Load(self.rate, self.partitions, self.parameters)

    def assign(self, ids: Sequence[int], controller: int | None = None) -> tuple[tuple[int, ...], ...]:
        """For each partition which of these nodes have its replicas, the preferred leader first."""
        if self.assignment is not None:
            return self.assignment
        among = [n for n in ids if self.placement == "spread" or n != controller]
        return tuple(
            tuple(among[(partition + offset) % len(among)] for offset in range(self.replication_factor))
            for partition in range(self.partitions)
        )


@dataclass(frozen=True)
class NemesisSettings:
    """`random`: faults by seed while the load runs. `steps`: the script in `steps`. `none`: nothing goes wrong.

    `optional_faults`: those of `faults` that a world may lack; without any other the campaign is not run there.
    `overlap`: a fault may begin before the one before it is healed. `quiet_s`: times of the main phase (from, to) in
    which none is in force."""

    kind: str = "none"
    faults: tuple[str, ...] = ()
    optional_faults: tuple[str, ...] = ()
    interval_s: tuple[float, float] = (2.0, 4.0)
    duration_s: tuple[float, float] = (2.0, 4.0)
    overlap: bool = False
    quiet_s: tuple[tuple[float, float], ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def inflicts(self) -> frozenset[str]:
        """The kinds of fault that can happen at all."""
        return frozenset(self.faults) | {step.needs for step in self.steps if step.needs}

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of fault that a world must be able to inflict."""
        return self.inflicts - set(self.optional_faults)

    def left_out(self, capabilities: Collection[str]) -> tuple[str, ...]:
        """The optional kinds that a world of these capabilities lacks."""
        return tuple(kind for kind in self.optional_faults if kind not in capabilities)

    def scheduled(self, capabilities: Collection[str]) -> tuple[str, ...]:
        """The kinds that a random schedule has in such a world, each at least once."""
        return tuple(kind for kind in self.faults if kind not in self.left_out(capabilities))


@dataclass(frozen=True)
class Checks:
    """`min_ok`: acknowledged changes that the system promises to keep (see `analysis.load`), and `min_queries`:
    answered queries under load, that a run needs; None: what `campaign.stake` makes of the planned load. `min_share`:
    of the planned changes, that must be acknowledged under
    load. `converge_s`: within which the cluster must be whole and take writes after everything was healed: longer is an
    anomaly; None: it is waited for, and a cluster that does not come is unknown. `progress_s`: within which writes are
    acknowledged while faults last, where enough of the cluster is untouched; None: what the settings allow."""

    upper_bound: str = "strict"
    min_ok: int | None = None
    min_queries: int | None = None
    min_share: float = LEAST_SHARE
    required_faults: tuple[str, ...] = ()
    converge_s: int | None = None
    progress_s: int | None = None


@dataclass(frozen=True)
class Swarm:
    """Between what a run draws from its seed, both ends included; see `campaign.swarm`. `rate`: operations a second."""

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
    of the client that the user brings."""

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
