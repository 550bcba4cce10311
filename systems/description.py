"""Reads a system's description, `system.toml`: its name, what its nodes run, and what it promises.

Texts of roles are templates (Jinja2); see `systems.system` for what they can use.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from history.field_types import COMPUTED, LONGEST_S, SETTINGS, one_of
from history.record.values import FIRST_SEQUENCES
from history.upper_bounds import UPPER_BOUNDS
from installation.files import PROJECT_ROOT
from systems.declared_tables import Problem, read_file
from systems.toml_tables import TomlSource

FILE_NAME: Final = "system.toml"
REPLICA_FORMATS: Final = ("kafka", "none")
METADATA_FORMATS: Final = ("kraft", "none")
PLACEMENTS: Final = ("all", "first", "last", "rest", "named")
_BELOW: Final = "; start with a name, and leave out '..'"
# Files of the worlds in the directories of a service's configuration and output: see `orchestrator.worlds`.
_RECORDS: Final = frozenset(
    {"data", "data.partial", "earlier", "earlier.partial", "events.jsonl", "service.log", "console.log", "kernel.log"}
    | {"journal.log", "service.sh", "service.port", "data_dir"}
    | {"sshd_config", "authorized_keys", "host_key", "host_key.pub"}
)
# A role cannot have the name of a table or key of campaigns, because its settings are a table of the role's name.
_RESERVED: Final = (
    "topology|workload|client|nemesis|checks|seeds|cell|swarm|system|name|description|mutants|version|expect"
)
_SYSTEM_NAME: Final = Meta(
    pattern="^[a-z0-9][a-z0-9._-]{0,63}$", title="a name of a system; use small letters, digits, '.', '_' and '-'"
)
_ROLE_NAME: Final = Meta(
    pattern=f"^(?!({_RESERVED})$)[a-z][a-z0-9_]{{0,31}}$",
    title="a name of a role; use small letters, digits and '_', but not the name of a campaign's table",
)
_VARIABLE_NAME: Final = Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$", title="a name of a variable; use letters, digits, '_'")
_CLASS: Final = Meta(pattern=r"^[^:]+\.py:[A-Za-z_]\w*$", title='of the form "parser.py:Class"')
_WORDS: Final = {"uniqueItems": False}
_COMMANDS: Final = Meta(title='a list of commands, each with its words: [["mkdir", "-p", "..."], [...]]')
_EVENT_NAME: Final = Meta(
    pattern="^[a-z][a-z0-9-]{0,31}$", title="a name of an event; use small letters, digits and '-', such as election"
)
_EXIT_CODES: Final = Meta(min_length=1, title="a list of exit codes after SIGTERM, numbers from 0 to 255")

_Port = Annotated[int, Meta(ge=1, le=65535)]
_Command = Annotated[tuple[str, ...], Meta(min_length=1, extra_json_schema=_WORDS)]
_Deadline = Annotated[float, Meta(ge=0.1, le=LONGEST_S)]
_Texts = Annotated[Mapping[str, str], Meta(extra_json_schema=SETTINGS)]
_Bound = Annotated[float, Meta(ge=1e-6, le=1e15)]
_Range = tuple[_Bound, _Bound]
_TIMEOUT_NAME: Final = Meta(
    pattern="^[a-z][a-z0-9-]{0,31}$", title="a name of a time-out; use small letters, digits and '-', such as session"
)


class Promises(msgspec.Struct, frozen=True):
    """[promises] of a description: what the checkers may expect of the system."""

    upper_bound: Annotated[str, one_of(UPPER_BOUNDS)] = "strict"
    """For a log: how strictly the log ends that it reports bound its length ([architecture](architecture.md))."""
    sequences: Annotated[str, one_of(FIRST_SEQUENCES)] = "any"
    """For `replicas = "kafka"`: the first sequence that a leader accepts of an idempotent producer that is new to its
    log; `from-zero`: only 0, and another one is the anomaly `sequence-gap-on-replica`."""
    replicas: Annotated[str, one_of(REPLICA_FORMATS)] = "none"
    """The format of the replicas' files, which are then compared."""
    metadata: Annotated[str, one_of(METADATA_FORMATS)] = "none"
    """The format of the metadata quorum's files, which are then checked."""
    events: bool = False
    """Whether nodes write `events.jsonl`, as Brownout's own broker does; scripts can wait for these events."""


class Draws(msgspec.Struct, frozen=True):
    """[roles.ROLE.draws] of a description: the settings of nodes of this role that a campaign with [swarm] draws."""

    ranges: Mapping[str, _Range] = {}
    """By setting, the least and the largest value that runs of a campaign with [swarm] draw: `"session-ms" =
    [1000, 6000]`. Whole numbers are drawn if both are whole. Small values are as likely as large ones (the logarithm is
    even)."""
    knobs: Mapping[str, _Range] = {}
    """Further settings; a run draws a fifth of them. No promise depends on them, as on sizes of buffers and delays, and
    their values are rare in practice. This range has precedence over one in `ranges`."""
    timeouts: Mapping[Annotated[str, _TIMEOUT_NAME], str] = {}
    """Which of these settings are time-outs, by a name: `session = "session-ms"`. Drawn faults last 0.3 to 2.2 times
    one of them. Profiles know the names `session`, `lag`, `fetch` and `election`."""
    timeout_unit_s: Annotated[float, Meta(ge=1e-6, le=LONGEST_S)] = 0.001
    """The unit of the time-outs in seconds. Default: milliseconds."""
    starts_alone: bool = False
    """Whether a service gets ready while all others are down. Only then do drawn faults overlap: the end of one waits
    until its services are ready again, and another one could prevent that."""
    profiles: Mapping[str, Mapping[str, _Range]] = {}
    """By [profile](campaigns.md#profiles), ranges that its runs have instead."""


class RoleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """[roles.ROLE] of a description: what a node of this role runs."""

    name: Annotated[str, COMPUTED]
    nodes: Annotated[str, one_of(PLACEMENTS)] = "all"
    """Which nodes have this role: `rest` are those without another role, `named` only those that a campaign names. A
    campaign can override it: `[system.roles] n1 = "..."`."""
    ports: Annotated[Mapping[str, _Port], Meta(min_length=1)]
    """Needed: the ports by name. Clients connect to the first port; the service has started when the first port is
    open. In the process world the nodes share an address and get other port numbers, so always write
    `{{ node.ports.NAME }}`."""
    command: _Command
    """Needed: the program and its arguments. The program stays in the foreground and ends at SIGTERM. Its output is
    kept. Its working directory is `{{ node.data_dir }}`. Start the process that does the work directly: a shell script
    ends with `exec my-server`. A supervisor that restarts a crashed program hides the crash from the verdict. Child
    processes are killed and paused together with the program. SIGTERM goes to the program alone; child processes that
    remain after it get SIGTERM next, and the run's journal records them."""
    prepare: Annotated[tuple[_Command, ...], _COMMANDS] = ()
    """Commands that run once on each node before its first start, in the same working directory, for example to format
    a directory: `[["{{ system_dir }}/format", "..."]]`. See [preparation](#preparation)."""
    ready: Annotated[tuple[str, ...], Meta(extra_json_schema=_WORDS)] = ()
    """A command that exits with 0 when the service is ready, run again until then: `["my-server", "ping"]`. Without it,
    a service is ready when its first port is open. After a fault, the port alone counts."""
    after_start: Annotated[tuple[_Command, ...], _COMMANDS] = ()
    """Commands that run once when all services of all nodes are ready, node by node, for example to join a cluster:
    `[["my-server", "join", "{{ nodes[0].address }}"]]`. See [preparation](#preparation)."""
    environment: Annotated[Mapping[Annotated[str, _VARIABLE_NAME], str], Meta(extra_json_schema=SETTINGS)] = {}
    """Environment variables. A shell passes them on."""
    files: _Texts = {}
    """Configuration files: `"name" = "template"`. The template is beside `system.toml`; the result is written to
    `{{ node.etc_dir }}/name`. The name can contain directories: `"conf/server.conf"`."""
    shows: tuple[str, ...] = ()
    """Further directories of this machine that local nodes must see. Nodes always see the directory of
    `system.toml`."""
    defaults: _Texts = {}
    """Settings. A campaign's table `[ROLE]` changes them, `[ROLE.n1]` for one node, a cell's table for one cell."""
    draws: Draws = Draws()
    """What a campaign with [swarm] draws."""
    setting_argument: str = ""
    """A template with `{{ key }}` and `{{ value }}`: one argument that is added to `command` for each setting."""
    start_deadline_s: _Deadline = 30.0
    """Deadline from the start until the first port is open and `ready` exits with 0."""
    stop_deadline_s: _Deadline = 30.0
    """Deadline from SIGTERM to the end of the process."""
    prepare_deadline_s: _Deadline = 60.0
    """Deadline of each command of `prepare` and `after_start`."""
    stop_exit_codes: Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], _EXIT_CODES] = (0, 143)
    """Allowed exit codes after SIGTERM, as a shell reports them (143: ended by SIGTERM). Any other code is the anomaly
    `unexpected-exit`."""
    kills_at_stop: bool = False
    """`true`: a process that has not ended by its deadline is killed, and that is not an anomaly. `false`: that is an
    error."""
    start_order: int = 0
    """Roles with lower numbers start first and stop last."""
    serves_clients: bool = True
    """Whether clients get the addresses of these nodes."""


class ClientDescription(msgspec.Struct, frozen=True):
    """[client] of a description: how clients are made if the workload has no library of its own for the system. A
    campaign's `[client]` overrides it."""

    class_name: Annotated[str, _CLASS] | None = msgspec.field(default=None, name="class")
    """`"parser.py:Class"`, beside `system.toml`."""
    command: Annotated[tuple[str, ...], Meta(extra_json_schema=_WORDS)] = ()
    """Instead of a class: a program and its arguments, which writes its operations to a file
    ([operations](operations.md)). A program name with a `/` is relative to `system.toml`."""
    timeout_s: Annotated[float, Meta(ge=0.01, le=LONGEST_S)] | None = None
    """The time limit of one operation. Default: 2 s."""
    options: _Texts = {}
    """Texts for the client: `options` of the class, `BROWNOUT_OPTION_...` of a program."""


class SettingPatterns(msgspec.Struct, frozen=True):
    """[settings] of a description."""

    times: tuple[str, ...] = ()
    """Which settings are times (patterns such as `"*.ms"`). They are multiplied by the world's time scale."""


class CollectedFiles(msgspec.Struct, frozen=True):
    """[collect] of a description: what is collected from each node."""

    directory: str = "."
    """The directory with the files, below the data directory; without `..`."""
    files: tuple[str, ...] = ()
    """Patterns below that directory, such as `"*.log"` or `"**/*.log"`. At the end, every node that serves clients must
    have a matching file, or the directory that a pattern names before its last `/`. Otherwise the run is *unknown*."""


class LogPatterns(msgspec.Struct, frozen=True):
    """[log] of a description."""

    fatal: tuple[str, ...] = ()
    """Regular expressions of lines that no healthy process writes: a matching log line fails the run."""
    events: Mapping[str, Annotated[str, _EVENT_NAME]] = {}
    """What log lines mean: `"became leader" = "election"`, a regular expression and the name of an event. The journal
    and the page of a run have the lines that match, with their nodes. After an `election` the page shows its node as
    the leader."""


class MachineNeeds(msgspec.Struct, frozen=True):
    """[machine] of a description: for separate machines."""

    programs: _Texts = {}
    """Programs that nodes need, and the Debian package of each."""
    playbook_role: Annotated[str, Meta(pattern=".+", title="a directory beside system.toml")] | None = None
    """An Ansible role that installs the system, a directory beside `system.toml`."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and tables of a description. `directory`: of its file."""

    name: Annotated[str, _SYSTEM_NAME]
    """Needed: the name in campaigns and reports: small letters, digits, `.`, `_`, `-`."""
    title: str = ""
    """The name in text for people. Default: the name."""
    directory: Annotated[Path, COMPUTED]
    class_name: str | None = msgspec.field(default=None, name="class")
    """`"parser.py:Class"`, a subclass of `brownout_api.System`; most systems need no class."""
    workloads: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Needed: which workloads can test the system: `["register"]`, `["append-log"]`, `["own"]` for
    [workloads of your own](own-workloads.md), or `["log"]` for systems that speak the Kafka protocol."""
    versions: Mapping[str, _Texts] = {}
    """`[versions.VERSION]`: one table for each version. The first is the default; a campaign chooses with
    `[system] version`. Templates use `{{ version }}`."""
    roles: Annotated[Mapping[Annotated[str, _ROLE_NAME], RoleDescription], Meta(min_length=1)]
    """Needed: `[roles.ROLE]`, what the nodes of a role run."""
    promises: Promises = Promises()
    """What the checkers may expect of the system."""
    client: ClientDescription = ClientDescription()
    """How clients are made."""
    settings: SettingPatterns = SettingPatterns()
    """Which settings have a meaning for the worlds."""
    collect: CollectedFiles = CollectedFiles()
    """What is collected from each node."""
    log: LogPatterns = LogPatterns()
    """What lines of the services' logs mean."""
    machine: MachineNeeds = MachineNeeds()
    """What separate machines need."""

    @property
    def own_directory(self) -> tuple[str, ...]:
        """The directory of a system that is not part of Brownout, even when it is in the checkout. Nodes must see it,
        because its programs may be there."""
        return () if self.directory.is_relative_to(PROJECT_ROOT / "systems") else (str(self.directory),)


def read(path: Path) -> Description:
    """Read a description from its file, or from the directory that contains it. Raises `InputError`."""
    if path.is_dir():
        path = path / FILE_NAME
    source = TomlSource.read_stored(path)
    description = read_file(source, Description, _problems, directory=path.resolve().parent)
    return replace(description, title=description.title or description.name)


def _problems(description: Description) -> Iterator[Problem]:
    """What bounds of single keys cannot express."""
    client, collect = description.client, description.collect
    if client.class_name and client.command:
        yield ("client", "command"), "a class is given, too; leave one of them out"
    if not _stays_below(collect.directory):
        yield ("collect", "directory"), f"{collect.directory!r} is not below a node's data directory{_BELOW}"
    for pattern in collect.files:
        if not PurePosixPath(pattern).parts or not _stays_below(pattern):
            yield ("collect", "files"), f"{pattern!r} names nothing below the directory{_BELOW}"
        if any("**" in part and part != "**" for part in PurePosixPath(pattern).parts):
            yield ("collect", "files"), f"{pattern!r}: '**' is a part of its own, as in 'a/**/*.log'"
    expressions = [(("log", "fatal"), pattern) for pattern in description.log.fatal]
    expressions += [(("log", "events"), pattern) for pattern in description.log.events]
    for path, pattern in expressions:
        try:
            re.compile(pattern)
        except re.error as error:
            yield path, f"{pattern!r} is not a regular expression: {error}"
    for role in description.roles.values():
        for name, key in role.draws.timeouts.items():
            if key not in role.draws.ranges:
                yield (
                    ("roles", role.name, "draws", "timeouts", name),
                    f"{key!r} has no range; add it to [roles.{role.name}.draws.ranges]",
                )
        for key in role.draws.knobs.keys() & set(role.draws.timeouts.values()):
            yield ("roles", role.name, "draws", "knobs", key), "is a time-out, which each run draws; leave it out here"
        for profile, ranges in role.draws.profiles.items():
            for key in ranges.keys() - role.draws.ranges.keys() - role.draws.knobs.keys():
                lacking = "has no range outside of the profile; add it to ranges"
                yield ("roles", role.name, "draws", "profiles", profile, key), lacking
        for name in role.files:
            if problem := _problem_of_file(name):
                yield ("roles", role.name, "files", name), problem


def _problem_of_file(name: str) -> str | None:
    parts = PurePosixPath(name).parts
    if not parts or not _stays_below(name):
        return f"is not below a node's configuration directory{_BELOW}"
    if parts[0] in _RECORDS:
        return "cannot be written there, because Brownout has a file of that name; choose another"
    return None


def _stays_below(path: str) -> bool:
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
