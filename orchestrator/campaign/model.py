"""A campaign as data: cluster, load, faults and checks. `campaign.parser` reads it from TOML."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from analysis.evidence.run_toml import Checks
from analysis.verdict import Expectation
from history.field_types import LONGEST_S, Count, Positive, Seconds, one_of
from nemeses import AIMS, KINDS, Aim, FaultPlan
from nemeses.own_kind import OwnKind
from nemeses.registry import AnyKind
from orchestrator.campaign.profiles import PROFILES
from orchestrator.campaign.steps import Step
from orchestrator.world_kind import AUTO
from orchestrator.world_kinds import NAMES
from systems import RoleSettings
from systems.description import Draws
from workloads.kind import MAX_RATE, Workload
from workloads.settings import OwnClient

NODE_ROOTS = ("machine", "image")
FILESYSTEMS = ("ext4", "xfs")
STRICT = "strict"
"""Simulation only: a filesystem that guarantees exactly what POSIX promises and no more."""
MAX_NODES = 9
MAX_SEED = (1 << 63) - 1  # exclusive, so that the number of seeds still fits
LEAST_RATE = 0.1
NEMESES = ("random", "schedule", "steps", "none")

_NAME_OF_A_DIRECTORY = "[a-z0-9][a-z0-9._-]{0,63}$"
_LETTERS = "use small letters, digits, '.', '_' and '-'"
CELL_NAME = Meta(pattern=f"^{_NAME_OF_A_DIRECTORY}", title=f"a name for a directory; {_LETTERS}")
# The store has a link to the last run.
CAMPAIGN_NAME = Meta(
    pattern=f"^(?!latest$){_NAME_OF_A_DIRECTORY}",
    title=f"a name for a directory in the store; {_LETTERS}, not 'latest'",
)

_CLIENT_CLASS = Meta(pattern=r"^.+:[A-Za-z_]\w*$", title='of the form "parser.py:Class" or "module:Class"')
FaultName = Annotated[str, one_of(KINDS)]
_OwnFault = Annotated[str, Meta(pattern=r"^.+\.py:[A-Za-z_]\w*$", title='of the form "parser.py:Class"')]
_Rate = Annotated[float, Meta(ge=LEAST_RATE, le=MAX_RATE)]
_SwarmNodes = Annotated[int, Meta(ge=1, le=7)]  # the sizes at which replicated logs are run
_Voters = Annotated[int, Meta(ge=1, le=5)]
_SwarmSeconds = Annotated[float, Meta(ge=5, le=10_000)]  # less has no room for a fault; more, too many of the shortest


_Profile = Annotated[str, one_of(PROFILES)]


class Topology(msgspec.Struct, frozen=True):
    """[topology] of a campaign."""

    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES)] = 3
    """The nodes are n1, n2, ..."""
    world: Annotated[str, one_of(NAMES)] = AUTO
    """`namespaces` (root on Linux), `process` (faults of processes only), `auto`: the better of these; `vagrant`
    (virtual machines), `inventory` (hosts of an Ansible inventory), `simulation` (our own broker in virtual time, every
    run from its seed: docs/simulation.md)."""
    filesystem: Annotated[str, one_of((*FILESYSTEMS, STRICT))] = "ext4"
    """Of each node's own disk; `strict`, in the simulation only, keeps exactly what POSIX promises."""
    inventory: str | None = None
    """With `world = "inventory"`: the inventory file, relative to the campaign's. The command line may give it, too."""
    node_root: Annotated[str, one_of(NODE_ROOTS)] = "machine"
    """With `world = "namespaces"`: the root filesystem of nodes; `image`: from `./brownout image build`."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


class SystemKeys(msgspec.Struct, frozen=True):
    """[system] of a campaign: what is tested; without this table our own broker."""

    name: str | None = None
    """[systems](systems.md) has all systems. Default: `brownout`, or the name in the description at `path`."""
    version: str | None = None
    """Default: the first version of the system's description."""
    path: str | None = None
    """The directory of a [system of your own](your-system.md), relative to the campaign's file."""
    roles: Mapping[str, str] = {}
    """By node name, such as `n3 = "controller"`: roles that are not the system's default."""


@dataclass(frozen=True)
class SystemUnderTest:
    """The tested system and its nodes' roles. `directory`: of its description, None for one of Brownout's. `roles`: by
    node name, where the campaign states them."""

    name: str = "brownout"
    version: str | None = None
    directory: Path | None = None
    roles: Mapping[str, str] = field(default_factory=dict)


class OwnFaultKinds(msgspec.Struct, frozen=True, kw_only=True):
    """[nemesis] of a campaign with `kind = "steps"`, beside its steps."""

    kinds: tuple[_OwnFault, ...] = ()
    """[Faults of your own](own-faults.md): `"parser.py:Class"`, each file relative to the campaign's. `faults` and `do`
    can have their names."""


class RandomFaults(OwnFaultKinds, frozen=True, kw_only=True):
    """[nemesis] of a campaign with `kind = "random"`."""

    faults: Annotated[tuple[FaultName, ...], Meta(min_length=1)]
    """Needed: the kinds of fault. Each happens at least once."""
    optional_faults: tuple[FaultName, ...] = ()
    """Those of `faults` that a world may lack; a world that lacks another one rejects the campaign."""
    interval_s: tuple[Seconds, Seconds] = (2.0, 4.0)
    """The least and the longest time from one fault's end to the next one's start."""
    duration_s: tuple[Seconds, Seconds] = (2.0, 4.0)
    """The least and the longest time of a fault."""


class ScheduledFaults(OwnFaultKinds, frozen=True, kw_only=True):
    """[nemesis] of a campaign with `kind = "schedule"`, beside its faults."""

    overlap: bool = False
    """A fault may start before the previous one is healed. Otherwise a fault that takes longer than planned delays all
    later ones. A fault that would hide the evidence of another one in force is left out."""


class ScheduledFault(msgspec.Struct, frozen=True, kw_only=True):
    """[[nemesis.fault]] of a campaign with `kind = "schedule"`."""

    fault: FaultName
    """Needed: the kind of fault."""
    at_s: Seconds
    """Needed: when it starts, counted from the first acknowledged write. The load lasts at least until all are
    healed."""
    duration_s: Seconds
    """Needed: the time from its injection to its heal."""
    nodes: tuple[str, ...] = ()
    """Its targets, such as `["n1"]`. Default: by `aim`."""
    aim: Annotated[str, one_of(AIMS)] = "any"
    """The role of the targets when it starts."""
    draw: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Decides among several nodes of that role."""
    parameters: Mapping[str, Any] = {}
    """Those of the kind of fault, as the journal of a run has them."""

    @property
    def plan(self) -> FaultPlan:
        """As of a random schedule, on its own targets."""
        return FaultPlan(
            self.fault, self.at_s, self.duration_s, cast("Aim", self.aim), self.draw, self.parameters, self.nodes
        )


class NemesisSettings(RandomFaults, frozen=True, kw_only=True):
    """`random`: faults drawn from the seed while the load runs. `schedule`: those in `moments`, each at its time.
    `steps`: the script in `steps`. `none`: no faults.

    `overlap`: a fault may start before the previous one is healed. `quiet_s`: times of the main phase (from, to)
    without any fault in force. `own_kinds`: the campaign's own kinds of fault, by name."""

    kind: str = "none"
    faults: tuple[FaultName, ...] = ()
    overlap: bool = False
    quiet_s: tuple[tuple[float, float], ...] = ()
    steps: tuple[Step, ...] = ()
    moments: tuple[ScheduledFault, ...] = ()
    own_kinds: Mapping[str, OwnKind] = {}

    @property
    def known_kinds(self) -> Mapping[str, AnyKind]:
        """All kinds of fault that the campaign may name."""
        return {**KINDS, **self.own_kinds}

    @property
    def possible_faults(self) -> frozenset[str]:
        """All kinds of fault that can happen."""
        return frozenset(self.faults) | {step.needs for step in self.steps if step.needs}

    @property
    def needs(self) -> frozenset[str]:
        """The built-in kinds of fault that a world must be able to inject."""
        return self.possible_faults - set(self.optional_faults) - self.own_kinds.keys()

    def left_out(self, capabilities: Collection[str]) -> tuple[str, ...]:
        """The optional kinds that a world with these capabilities lacks."""
        return tuple(kind for kind in self.optional_faults if kind not in capabilities and kind not in self.own_kinds)

    def scheduled(self, capabilities: Collection[str]) -> tuple[str, ...]:
        """The kinds that a random schedule has in such a world, each at least once."""
        return tuple(kind for kind in self.faults if kind not in self.left_out(capabilities))


class Swarm(msgspec.Struct, frozen=True):
    """[swarm] of a campaign: ranges from which a run draws by its seed, both ends included; see `campaign.swarm`."""

    nodes: tuple[_SwarmNodes, _SwarmNodes] = (1, 7)
    """Nodes of the cluster; [topology] `nodes` is the most that is drawn."""
    voters: tuple[_Voters, _Voters] = (1, 5)
    """Of our own broker, voters of the metadata quorum: the first nodes."""
    rate: tuple[_Rate, _Rate] = (20.0, 150.0)
    """Operations per second."""
    duration_s: tuple[_SwarmSeconds, _SwarmSeconds] = (12.0, 40.0)
    """How long the load lasts."""
    profiles: tuple[_Profile, ...] = tuple(PROFILES)
    """[Profiles](campaigns.md#profiles). Each run draws one that suits the campaign."""


class Seeds(msgspec.Struct, frozen=True):
    """[seeds] of a campaign: each cell has a run for each seed."""

    first: Count = 1
    """The first seed."""
    count: Positive = 1
    """How many seeds there are."""


class ClientKeys(msgspec.Struct, frozen=True):
    """[client] of a campaign whose workload has a user-defined client ([workloads](workloads.md))."""

    client_class: Annotated[str, _CLIENT_CLASS] = ""
    """`"parser.py:Class"`, a file relative to the campaign's, or `"module:Class"`."""
    client_command: Annotated[tuple[str, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": False})] = ()
    """Instead of a class: a program with its arguments; one beside the campaign's file is named `./program`."""
    timeout_s: Annotated[float, Meta(ge=0.01, le=LONGEST_S)] | None = None
    """The longest time of one operation. Default: that of the system's description, or 2 s."""
    options: Mapping[str, str] = {}
    """Passed to the client unchanged; those of a cell override the campaign's."""


class CellKeys(msgspec.Struct, frozen=True):
    """[[cell]] of a campaign, beside its tables `expect`, `client` (only its options) and those of roles."""

    name: Annotated[str, CELL_NAME]
    """Needed: names the directories of its runs."""
    version: str | None = None
    """The version of the system, instead of [system]'s."""
    mutants: tuple[str, ...] = ()
    """Deliberate bugs of our broker; `./brownout mutants` lists them."""


class CampaignKeys(msgspec.Struct, frozen=True):
    """The keys of a campaign above its tables."""

    name: Annotated[str, CAMPAIGN_NAME]
    """Needed: also the directory in the store."""
    description: str = ""
    """One line for lists and reports."""


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
    profile: str = ""
    """The profile that a seed of a swarm drew."""
    timeouts_s: Mapping[str, float] = field(default_factory=dict)
    """The time-outs that it drew, by name, in seconds."""
    draws: Mapping[str, Draws] = field(default_factory=dict)
    """By role, what the system declares for a swarm."""
    checkers: Mapping[str, str] = field(default_factory=dict)
    """By file, the texts of the campaign's own checkers."""
