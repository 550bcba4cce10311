"""Reads a system's description, `system.toml`: its name, what its nodes run, and what it promises.

Reading is strict: an error names the file, the line and the key (`InputError`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from history.upper_bounds import UPPER_BOUNDS
from history.values import FIRST_SEQUENCES
from installation.files import PROJECT_ROOT
from systems.toml_tables import Table, TomlSource

FILE_NAME = "system.toml"
REPLICA_FORMATS = ("kafka", "none")
METADATA_FORMATS = ("kraft", "none")
PLACEMENTS = ("all", "first", "last", "rest", "named")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}")
_BELOW = "; start with a name, and leave out '..'"
# Files of the worlds in the directories of a service's configuration and output: see `orchestrator.worlds`.
_RECORDS = frozenset(
    {"data", "data.partial", "earlier", "earlier.partial", "events.jsonl", "service.log", "console.log", "kernel.log"}
    | {"journal.log", "service.sh", "service.port", "data_dir"}
    | {"sshd_config", "authorized_keys", "host_key", "host_key.pub"}
)
# Tables of campaigns. A role cannot have one of these names, because its settings are a table of the role's name.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    {"topology", "workload", "client", "nemesis", "checks", "seeds", "cell", "swarm", "system", "name"}
    | {"description", "mutants", "version", "expect"}
)


@dataclass(frozen=True)
class Promises:
    """What the checkers may expect of the system. `upper_bound`: the strictest bound of its queries; `replicas`: the
    format of its replicas' files; `metadata`: the format of its metadata quorum's files; `events`: whether its nodes
    write trace events, for which scripts can wait; `sequences`: one of `FIRST_SEQUENCES`, the first sequences that a
    leader accepts of an idempotent producer that is new to its log."""

    upper_bound: str = "strict"
    replicas: str = "none"
    metadata: str = "none"
    events: bool = False
    sequences: str = "any"


@dataclass(frozen=True)
class RoleDescription:
    """What a node of this role runs. Texts are templates (Jinja2); see `systems.system` for what they can use.

    `nodes`: which nodes have the role unless a campaign assigns roles: all, the first, the last, or the rest (nodes
    without another role); named: only nodes that a campaign names. `ports`: by name; clients reach the service at the
    first one. `files`: file names of templates, by their path below the node's configuration directory. Deadlines are
    in seconds.
    """

    name: str
    nodes: str
    ports: Mapping[str, int]
    command: tuple[str, ...]
    prepare: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    setting_argument: str = ""
    start_deadline_s: float = 30.0
    stop_deadline_s: float = 30.0
    prepare_deadline_s: float = 60.0
    kills_at_stop: bool = False
    stop_exit_codes: tuple[int, ...] = (0, 143)
    start_order: int = 0
    serves_clients: bool = True


@dataclass(frozen=True)
class ClientDescription:
    """How clients are made if the workload has no library of its own for the system: a Python class
    (`parser.py:Class`), or a program that writes its operations to a file (see docs/operations.md). `timeout_s`: the
    longest time of one operation."""

    class_name: str | None = None
    command: tuple[str, ...] = ()
    timeout_s: float | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """One system. `directory` holds its files; `class_name` is `parser.py:Class` there, None for the plain family.

    `versions`: the first is the default; empty for a system without versions. `times`: globs of settings that are
    times; a world's time scale multiplies them. `fatal`: regular expressions of log lines that no healthy process
    writes. `playbook_role`: the Ansible role that installs the system on machines of its own.
    """

    name: str
    title: str
    directory: Path
    class_name: str | None
    workloads: tuple[str, ...]
    versions: Mapping[str, Mapping[str, str]]
    roles: Mapping[str, RoleDescription]
    promises: Promises
    client: ClientDescription
    times: tuple[str, ...]
    collect_directory: str
    collect_files: tuple[str, ...]
    fatal: tuple[str, ...]
    programs: Mapping[str, str]
    playbook_role: str | None

    @property
    def own_directory(self) -> tuple[str, ...]:
        """The directory of a system that is not part of Brownout, even when it is in the checkout. Nodes must see it,
        because its programs may be there."""
        return () if self.directory.is_relative_to(PROJECT_ROOT / "systems") else (str(self.directory),)


def read(path: Path) -> Description:
    """Read a description from its file, or from the directory that contains it. Raises `InputError`."""
    if path.is_dir():
        path = path / FILE_NAME
    root = TomlSource.read_stored(path).root()
    name = root.text("name")
    if _NAME.fullmatch(name) is None:
        root.refuse(f"name: {name!r} cannot name a system; use small letters, digits, '.', '_' and '-'", "name")
    collect, log, machine = root.table("collect"), root.table("log"), root.table("machine")
    settings = root.table("settings")
    description = Description(
        name=name,
        title=root.text("title", name),
        directory=path.resolve().parent,
        class_name=root.text("class", "") or None,
        workloads=root.texts("workloads"),
        versions=_versions(root.table("versions")),
        roles=_roles(root.table("roles")),
        promises=_promises(root.table("promises")),
        client=_client(root.table("client")),
        times=settings.texts("times", ()),
        collect_directory=_collected_directory(collect),
        collect_files=_collected_files(collect),
        fatal=_patterns(log, "fatal"),
        programs=_texts(machine.table("programs")),
        playbook_role=machine.text("playbook_role", "") or None,
    )
    if not description.workloads:
        root.refuse('workloads is empty; name what can be tested, such as ["register"]', "workloads")
    for table in (collect, log, machine, settings, root):
        table.done()
    return description


def _versions(table: Table) -> dict[str, dict[str, str]]:
    versions = {name: _texts(table.table(name)) for name in table.data}
    table.done()
    return versions


def _roles(table: Table) -> dict[str, RoleDescription]:
    roles: dict[str, RoleDescription] = {}
    for name in table.data:
        if _WORD.fullmatch(name) is None:
            table.refuse(f"{name!r} cannot name a role; use small letters, digits and '_'", name)
        if name in _RESERVED:
            table.refuse(f"{name!r} cannot name a role: campaigns have another table of that name", name)
        roles[name] = _role(name, table.table(name))
    if not roles:
        table.refuse("no role is given; add [roles.NAME] with command = [...] and ports = {...}")
    table.done()
    return roles


def _role(name: str, table: Table) -> RoleDescription:
    ports_table = table.table("ports")
    ports = {port: ports_table.integer(port, minimum=1, maximum=65535) for port in ports_table.data}
    ports_table.done()
    if not ports:
        table.refuse("ports is missing; add ports = { client = 1234 }: clients reach the service at the first port")
    default = RoleDescription(name, "all", {}, ())
    role = RoleDescription(
        name=name,
        nodes=table.text("nodes", default.nodes, choices=PLACEMENTS),
        ports=ports,
        command=_words(table, "command"),
        prepare=_commands(table, "prepare"),
        environment=_variables(table.table("environment")),
        files=_configuration(table.table("files")),
        shows=table.texts("shows", ()),
        defaults=_texts(table.table("defaults")),
        setting_argument=table.text("setting_argument", default.setting_argument),
        start_deadline_s=table.seconds("start_deadline_s", default.start_deadline_s, minimum=0.1),
        stop_deadline_s=table.seconds("stop_deadline_s", default.stop_deadline_s, minimum=0.1),
        prepare_deadline_s=table.seconds("prepare_deadline_s", default.prepare_deadline_s, minimum=0.1),
        kills_at_stop=table.boolean("kills_at_stop", default.kills_at_stop),
        stop_exit_codes=_exit_codes(table, default.stop_exit_codes),
        start_order=table.integer("start_order", default.start_order),
        serves_clients=table.boolean("serves_clients", default.serves_clients),
    )
    if not role.command:
        table.refuse("command is empty; give the program and its arguments", "command")
    table.done()
    return role


def _promises(table: Table) -> Promises:
    default = Promises()
    promises = Promises(
        upper_bound=table.text("upper_bound", default.upper_bound, choices=UPPER_BOUNDS),
        replicas=table.text("replicas", default.replicas, choices=REPLICA_FORMATS),
        metadata=table.text("metadata", default.metadata, choices=METADATA_FORMATS),
        events=table.boolean("events", default.events),
        sequences=table.text("sequences", default.sequences, choices=FIRST_SEQUENCES),
    )
    table.done()
    return promises


def _client(table: Table) -> ClientDescription:
    client = ClientDescription(
        class_name=table.text("class", "") or None,
        command=_words(table, "command") if "command" in table else (),
        timeout_s=table.seconds("timeout_s", minimum=0.01) if "timeout_s" in table else None,
        options=_texts(table.table("options")),
    )
    if client.class_name and re.fullmatch(r"[^:]+\.py:[A-Za-z_]\w*", client.class_name) is None:
        table.refuse(f'class: {client.class_name!r} is not of the form "parser.py:Class"', "class")
    if client.class_name and client.command:
        table.refuse("class and command are both given; leave one of them out", "command")
    table.done()
    return client


def _collected_directory(table: Table) -> str:
    directory = table.text("directory", ".")
    if not _stays_below(directory):
        table.refuse(f"directory: {directory!r} is not below a node's data directory{_BELOW}", "directory")
    return directory


def _collected_files(table: Table) -> tuple[str, ...]:
    patterns = table.texts("files", ())
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        if not parts or not _stays_below(pattern):
            table.refuse(f"files: {pattern!r} names nothing below the directory{_BELOW}", "files")
        if any("**" in part and part != "**" for part in parts):
            table.refuse(f"files: {pattern!r}: '**' is a part of its own, as in 'a/**/*.log'", "files")
    return patterns


def _configuration(table: Table) -> dict[str, str]:
    for path in table.data:
        if not PurePosixPath(path).parts or not _stays_below(path):
            table.refuse(f"{path!r} is not below a node's configuration directory{_BELOW}", path)
        if PurePosixPath(path).parts[0] in _RECORDS:
            table.refuse(
                f"{path!r} cannot be written there, because Brownout has a file of that name; choose another", path
            )
    return _texts(table)


def _stays_below(path: str) -> bool:
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


def _patterns(table: Table, key: str) -> tuple[str, ...]:
    patterns = table.texts(key, ())
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            table.refuse(f"{key}: {pattern!r} is not a regular expression: {error}", key)
    return patterns


def _exit_codes(table: Table, default: tuple[int, ...]) -> tuple[int, ...]:
    codes = table.raw("stop_exit_codes", list(default))
    if not isinstance(codes, list) or not all(type(code) is int and 0 <= code <= 255 for code in codes) or not codes:
        table.refuse("stop_exit_codes: exit codes after SIGTERM are a list of numbers from 0 to 255", "stop_exit_codes")
    return tuple(codes)


def _words(table: Table, key: str) -> tuple[str, ...]:
    """A command's words; unlike names, words may repeat."""
    words = table.raw(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        table.refuse(f'{key}: a command is a list of texts such as ["./server", "--port", "80"]', key)
    return tuple(words)


def _commands(table: Table, key: str) -> tuple[tuple[str, ...], ...]:
    commands = table.raw(key, [])
    if not isinstance(commands, list) or not all(
        isinstance(words, list) and words and all(isinstance(word, str) for word in words) for words in commands
    ):
        table.refuse(f'{key}: commands are lists of texts: [["mkdir", "-p", "..."], [...]]', key)
    return tuple(tuple(words) for words in commands)


def _variables(table: Table) -> dict[str, str]:
    """Environment variables. A shell passes them on, so their names must be valid in a shell."""
    variables = _texts(table)
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            table.refuse(f"{name!r} cannot name a variable; use letters, digits and '_'", name)
    return variables


def _texts(table: Table) -> dict[str, str]:
    """Texts by key; numbers and truth values become text as they are written."""
    texts: dict[str, str] = {}
    for key in table.data:
        value = table.raw(key, None)
        if not isinstance(value, str | int | float):
            table.refuse(f"{key}: {value!r} is neither a text nor a number; put a key with dots in quotes", key)
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    table.done()
    return texts
