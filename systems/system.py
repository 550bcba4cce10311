"""A system under test: what its nodes run in a run, and its observer. The base class of every system.

Templates in a description (Jinja2) can use
- `node`: the node itself: `name`, `id` (from 1), `address`, `ports.<name>`, `data_dir` (its own disk), `etc_dir`
  (configuration), `var_dir` (output of the service), `files_dir` (the version's files), `shared_dir` (one directory for
  all nodes of a run; empty in worlds without one);
- `nodes`: all nodes; `role_nodes.<role>`: the nodes of one role;
- `system_dir`: the description's own directory with its files, as the node sees it;
- `settings`: the node's settings, as texts by key; `version`; `cluster_id` (unique in each run);
- `required(value, message)`: the value; if it is empty, the run is refused with the message;
- `python`, `python_path`: an interpreter with Brownout's packages; and what the class adds in `variables`.
"""

import fnmatch
import re
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import nodes

from history.regular_files import read_text
from history.time_scale import ORDINARY, scaled
from installation.counted import counted
from nemeses.scheduling import for_each
from systems.description import FILE_NAME, Description, RoleDescription
from systems.errors import InputError
from systems.node_requirements import MachineRoot, Software
from systems.service import REMOTE_SYSTEM_DIR, Place, Service, in_url
from systems.settings import RoleSettings, Settings, is_whole
from systems.toml_tables import place_of_key, suggestion
from systems.view import Member, Observer, View

# ---- Finds the settings that a role's templates use: a setting that no template uses would have no effect.

_SETTINGS: Final = "settings"
_OF_ALL: Final = frozenset(dir(dict))


def settings_used(directory: Path, role: RoleDescription) -> frozenset[str] | None:
    """The keys that the role's templates use, including templates in files of this directory.

    None if a template may use any key: it loops over all settings, includes another file, or cannot be read (another
    check reports that)."""
    if role.setting_argument:
        return None
    keys: set[str] = set()
    try:
        for text in _texts(directory, role):
            named = _named(jinja2.Environment().parse(text))
            if named is None:
                return None
            keys |= named
    except (OSError, UnicodeDecodeError, jinja2.TemplateError):
        return None
    return frozenset(keys)


def _texts(directory: Path, role: RoleDescription) -> Iterator[str]:
    yield from (*role.command, *role.ready, *role.environment.values(), *role.shows)
    for words in (*role.prepare, *role.after_start):
        yield from words
    for name in role.files.values():
        yield read_text(directory / name)


def _named(template: nodes.Template) -> set[str] | None:
    """The keys of settings that are used by name; None if the template uses settings in another way."""
    if any(template.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends))):
        return None
    keys = [key for node in template.find_all((nodes.Getattr, nodes.Getitem)) if (key := _key(node)) is not None]
    uses = sum(node.name == _SETTINGS for node in template.find_all(nodes.Name))
    return set(keys) if len(keys) == uses else None


def _key(node: Any) -> str | None:
    """The key in `settings.key` or `settings["key"]`; None for any other expression."""
    if not isinstance(node.node, nodes.Name) or node.node.name != _SETTINGS:
        return None
    if isinstance(node, nodes.Getattr):
        return None if node.attr in _OF_ALL else str(node.attr)
    return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else None


_CONNECT_S = 0.5
KILLED = 137


class System:
    """One version of a system. The defaults serve every system whose nodes are alike; a class overrides what differs.

    `mutants`: deliberate bugs that it can switch on, by name; `description.promises`: what the checkers may expect.
    """

    mutants: Mapping[str, Any] = {}
    least_java = 0
    """The oldest feature release of Java that its nodes must have; 0: no Java."""
    has_controller = False
    """Whether an observer reports the leader of the whole cluster."""
    has_partitions = False
    """Whether an observer reports each partition's leader and in-sync replicas."""
    elects: frozenset[str] = frozenset()
    """For what its observer can elect a node (`systems.view.Elector`): a "partition", the whole "cluster"."""
    controls_topics = False
    """Whether its observer can set topics' settings and replicas, and asks for their offsets
    (`systems.view.TopicControl`)."""
    trace_events: Mapping[str, Sequence[str]] | None = None
    """The events that its nodes trace, each with its fields; None if they are not known in advance."""

    def __init__(self, description: Description, version: str | None = None) -> None:
        """Raises `InputError` for a version that the description does not have."""
        if version is not None and version not in description.versions:
            raise InputError(
                f"{description.name} has no version {version!r}; {suggestion(version, description.versions)}"
            )
        self.description = description
        self.version = version or next(iter(description.versions), "")

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def files_dir(self) -> str:
        """The directory of this version's files on this machine; empty if it needs no files."""
        return ""

    def files(self) -> dict[str, Path]:
        """This version's files, by their paths below the nodes' directory for them."""
        top = Path(self.files_dir)
        if not self.files_dir:
            return {}
        return {str(path.relative_to(top)): path for path in sorted(top.rglob("*")) if path.is_file()}

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        """Make sure that this machine has what the nodes need. Called before any node is made. Raises `InputError` with
        what is missing and how to get it."""
        del on_progress

    # ---- what a campaign may set

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        """What is wrong with a setting, or None. By default: that no template uses it. Whether the program has such a
        setting only the program knows."""
        del value
        if type(self).effective is not System.effective:  # which may derive other settings from it
            return None
        used = settings_used(self.description.directory, self.description.roles[role])
        if used is None or key in used:
            return None
        path = self.description.directory / FILE_NAME
        hint = (
            suggestion(key, used) if used else "templates use a setting as {{ settings.KEY }}, or by setting_argument"
        )
        return f"{key}: no template of [roles.{role}] in {path} uses it, so that it would have no effect; {hint}"

    def defaults(self, role: str) -> Mapping[str, str]:
        """The settings of this version that a campaign may change, with their defaults; empty if only the program knows
        them."""
        del role
        return {}

    def check_node(self, role: str, settings: Mapping[str, str], where: str) -> str | None:
        """What is wrong with all settings of a node together, or None; the message starts with `where`."""
        del role, settings, where
        return None

    def assign_roles(self, count: int, asked: Mapping[str, str]) -> tuple[str, ...]:
        """The role of each node, by number. `asked`: roles by node name, as a campaign gives them.

        Raises `InputError` for a node without a role or with several, a role without a node, and unknown names.
        """
        roles, names = self.description.roles, [f"n{number}" for number in range(1, count + 1)]
        assignment = dict(asked)
        for name, role_name in assignment.items():
            if name not in names:
                raise InputError(f"roles: unknown node {name}; the nodes are n1 to n{count}")
            if role_name not in roles:
                raise InputError(f"roles: {self.name} has no role {role_name!r}; {suggestion(role_name, roles)}")
        if not asked:
            for role in roles.values():
                if role.nodes in ("first", "last"):
                    assignment.setdefault(names[0 if role.nodes == "first" else -1], role.name)
        unassigned = [name for name in names if name not in assignment]
        takers = [role.name for role in roles.values() if role.nodes in ("all", "rest")]
        if unassigned and not takers:
            raise InputError(f"roles: {unassigned[0]} has no role; give each node one of: {', '.join(roles)}")
        assignment |= dict.fromkeys(unassigned, takers[0] if takers else "")
        idle = [role for role in takers if role not in assignment.values()]
        if idle and unassigned:
            raise InputError(
                f"roles: no node has the role {idle[0]}, because {takers[0]} takes all remaining nodes; assign roles "
                '([system.roles] n1 = ...), or give one of them nodes = "first", "last" or "named" in system.toml'
            )
        if idle and not asked:
            raise InputError(f"roles: no node has the role {idle[0]}; give [topology] more nodes")
        alone = [role.name for role in roles.values() if role.nodes in ("first", "last")]
        needed = [name for name in alone if not asked and name not in assignment.values()]
        if needed:
            raise InputError(
                f"roles: no node has the role {needed[0]}; {self.name} needs more than {counted(count, 'node')}"
            )
        return tuple(assignment[name] for name in names)

    def make_files(self, root: MachineRoot, on_progress: Callable[[str], None]) -> Mapping[str, Path]:
        """Additional files of machines, made by their own programs: see `Software`. By default: no files."""
        del root, on_progress
        return {}

    # ---- what nodes run

    def effective(self, role: str, given: Mapping[str, str], time_scale: float) -> dict[str, str]:
        """A node's settings: the role's defaults, overridden by the given ones; times are multiplied by the scale."""
        settings = {**self.description.roles[role].defaults, **given}
        if time_scale == ORDINARY:
            return settings
        return {key: self._scaled(key, value, time_scale) for key, value in settings.items()}

    def _scaled(self, key: str, value: str, time_scale: float) -> str:
        is_time = any(fnmatch.fnmatchcase(key, pattern) for pattern in self.description.settings.times)
        return str(scaled(int(value), time_scale)) if is_time and is_whole(value) else value

    def arguments(self, mutants: Sequence[str]) -> tuple[str, ...]:
        """Arguments of the command for these mutants."""
        if mutants:
            raise InputError(f"{self.name} has no mutants: {', '.join(mutants)}")
        return ()

    def variables(self, node: Place, cluster_id: str) -> dict[str, Any]:
        """Additional variables of this system's templates."""
        del node, cluster_id
        return {}

    def identity(self, cluster_id: str) -> str | None:
        """The cluster.id in meta.properties on its nodes' disks; None if it is not known in advance."""
        del cluster_id
        return None

    def shown(self) -> tuple[str, ...]:
        """The directories of this machine that local nodes must see, in addition to those that the roles name."""
        return (self.files_dir,) if self.files_dir else ()

    # ---- observation

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> Observer:
        """An observer of the cluster. By default: a node that accepts connections is alive; it reports nothing else."""
        del topic
        return PortObserver(members, time_scale)


@dataclass(frozen=True)
class Deployed:
    """One run's system on its nodes. `roles`: by node number, from 1."""

    system: System
    roles: tuple[str, ...]
    cluster_id: str
    settings: RoleSettings = field(default_factory=dict)
    mutants: tuple[str, ...] = ()

    def role(self, number: int) -> RoleDescription:
        return self.system.description.roles[self.roles[number - 1]]

    def ports(self, number: int) -> Mapping[str, int]:
        return self.role(number).ports

    @property
    def identity(self) -> str | None:
        """As `System.identity`; None if a campaign's settings give the cluster another id."""
        tables = [keys for part in self.settings.values() for keys in (part.common, *part.per_node.values())]
        is_given = any("cluster.id" in keys for keys in tables)
        return None if is_given else self.system.identity(self.cluster_id)

    @property
    def collected(self) -> tuple[str, tuple[str, ...]]:
        return self.system.description.collect.directory, self.system.description.collect.files

    @property
    def files_dir(self) -> str:
        return self.system.files_dir

    @property
    def files_name(self) -> str:
        return f"{self.system.name}/{self.system.version}" if self.system.version else self.system.name

    @property
    def software(self) -> Software:
        """What other machines need for this system. Raises `InputError` if it is not known."""
        description = self.system.description
        return Software(
            title=f"{description.title} {self.system.version}".rstrip(),
            name=self.files_name,
            files=self.system.files(),
            least_java=self.system.least_java,
            programs=description.machine.programs,
            ports=tuple(tuple(self.ports(number).values()) for number in range(1, len(self.roles) + 1)),
            playbook_role=description.machine.playbook_role,
            own_directory=description.directory if description.own_directory else None,
            make=self.system.make_files,
        )

    def members(self, nodes: Sequence[Place]) -> list[Member]:
        """The nodes' services, as clients reach them."""
        return [
            Member(
                node.name,
                node.id,
                node.address,
                next(iter(node.ports.values())),
                self.roles[node.id - 1],
                dict(node.ports),
            )
            for node in nodes
        ]

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        """Raises `InputError` for a template that cannot be rendered."""
        system, role = self.system, self.role(node.id)
        settings = self._effective(node, time_scale)
        text = self._templates(node, nodes, time_scale)
        return Service(
            role=role.name,
            command=(
                *(text.fill(word, "command") for word in role.command),
                *text.each_setting(role.setting_argument, settings),
                *system.arguments(self.mutants),
            ),
            files={f"{node.etc_dir}/{path}": text.file(path, name) for path, name in role.files.items()},
            prepare=tuple(tuple(text.fill(word, "prepare") for word in words) for words in role.prepare),
            ready=tuple(text.fill(word, "ready") for word in role.ready),
            after_start=tuple(tuple(text.fill(word, "after_start") for word in words) for words in role.after_start),
            environment={key: text.fill(value, f"environment.{key}") for key, value in role.environment.items()},
            shows=(
                *filter(None, (text.fill(path, "shows") for path in role.shows)),
                *((*system.description.own_directory, *system.shown()) if node.is_local else ()),
            ),
            start_deadline_s=role.start_deadline_s,
            stop_deadline_s=role.stop_deadline_s,
            prepare_deadline_s=role.prepare_deadline_s,
            kills_at_stop=role.kills_at_stop,
            stop_exit_codes=(*role.stop_exit_codes, *((KILLED,) if role.kills_at_stop else ())),
            start_order=role.start_order,
        )

    def command(
        self, words: Sequence[str], node: Place, nodes: Sequence[Place], time_scale: float = 1.0
    ) -> tuple[str, ...]:
        """A campaign's command for a node: its words are templates as those of a service's command. Raises `InputError`
        for one that cannot be rendered."""
        text = self._templates(node, nodes, time_scale)
        return tuple(text.fill(word, "command", place=f"the command for {node.name}") for word in words)

    def configuration(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> dict[str, str]:
        """The texts of a node's configuration files, by their paths below its configuration directory. Raises
        `InputError` for a template that cannot be rendered."""
        text = self._templates(node, nodes, time_scale)
        return {path: text.file(path, name) for path, name in self.role(node.id).files.items()}

    def _effective(self, node: Place, time_scale: float) -> dict[str, str]:
        role = self.role(node.id).name
        return self.system.effective(role, self.settings.get(role, Settings()).of(node.name), time_scale)

    def _templates(self, node: Place, nodes: Sequence[Place], time_scale: float) -> "_Templates":
        system = self.system
        node, *nodes = (replace(place, address=in_url(place.address)) for place in (node, *nodes))
        return _Templates(
            system.description,
            self.role(node.id).name,
            {
                "node": node,
                "nodes": nodes,
                "role_nodes": {
                    name: [place for place in nodes if self.roles[place.id - 1] == name]
                    for name in system.description.roles
                },
                "system_dir": str(system.description.directory) if node.is_local else REMOTE_SYSTEM_DIR,
                "settings": self._effective(node, time_scale),
                "version": system.version,
                "cluster_id": self.cluster_id,
                "python": node.python,
                "python_path": node.python_path,
                "time_scale": time_scale,
                **system.variables(node, self.cluster_id),
            },
        )


@cache
def _environment(directory: Path) -> jinja2.Environment:
    """One for each directory of a process, so that a template is compiled once and not for each node. A changed file is
    compiled again."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directory),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals["required"] = _required
    return environment


class _Templates:
    """A role's templates with the values of one node."""

    def __init__(self, description: Description, role: str, values: Mapping[str, Any]) -> None:
        self._description = description
        self._role = role
        self._values = dict(values)
        self._environment = _environment(description.directory)

    def each_setting(self, text: str, settings: Mapping[str, str]) -> list[str]:
        """The text once for each setting; an empty list for an empty text. Raises `InputError`."""
        pairs = settings.items() if text else ()
        return [self.fill(text, "setting_argument", key=key, value=value) for key, value in pairs]

    def fill(self, text: str, dotted_key: str, *, place: str = "", **extra: str) -> str:
        """Render one text. Raises `InputError` with its place, by default that of the key in the description. `extra`:
        values for this text alone."""
        try:
            return self._environment.from_string(text).render(self._values, **extra)
        except Exception as error:  # an expression in a template can raise any Python exception
            place = place or f"{self._place(*dotted_key.split('.'))} {dotted_key}"
            raise InputError(f"{place}: {text!r} cannot be rendered: {_why(error)}") from error

    def file(self, path: str, name: str) -> str:
        """Render the template `name` for the file at `path`. Raises `InputError` with the template's file and line."""
        try:
            return self._environment.get_template(name).render(self._values)
        except jinja2.TemplateNotFound as error:
            missing = f"{self._description.directory}/{error.name or name}"
            raise InputError(f"{self._place('files', path)} files: {path!r}: there is no template {missing}") from None
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)  # Jinja adds frames with the template's lines
            lines = [frame.lineno for frame in frames if frame.filename.endswith(f"/{name}")]
            line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
            place = f"{self._description.directory}/{name}" + (f":{line}" if line else "")
            raise InputError(f"{place}: the template cannot be rendered: {_why(error)}") from error

    def _place(self, *keys: str) -> str:
        """The place of a key of the role in the description."""
        place = place_of_key(self._description.directory / FILE_NAME, "roles", self._role, *keys)
        return f"{place}: [roles.{self._role}]"


def _required(value: str, otherwise: str) -> str:
    """A value that is not empty. Raises `ValueError` with the message `otherwise`."""
    if not value:
        raise ValueError(otherwise)
    return value


def _why(error: Exception) -> str:
    """Jinja's or Python's message; for a missing attribute of a node, without the name of our class."""
    return re.sub(r"^'[\w.]+\.(Node|Place) object'", "a node", str(error))


class PortObserver:
    """Observes only which nodes accept connections."""

    def __init__(self, members: Sequence[Member], time_scale: float = 1.0) -> None:
        self._members = tuple(members)
        self._patience_s = _CONNECT_S * time_scale

    def view(self) -> View:
        complaints = dict(zip(self._members, for_each(self._members, self._complaint), strict=True))
        alive = frozenset(member.name for member, complaint in complaints.items() if complaint is None)
        return View(unfenced=alive, complaints=tuple(filter(None, complaints.values())))

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        """Creates nothing: this observer knows no topics."""
        del assignment, timeout_s
        return None

    def close(self) -> None:
        """Nothing to close: each connection is closed when it was made."""

    def _complaint(self, member: Member) -> str | None:
        try:
            socket.create_connection((member.address, member.port), timeout=self._patience_s).close()
        except OSError as error:
            return f"{member.name} does not answer ({error})"
        return None
