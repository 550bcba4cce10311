"""Parses and checks the steps of a scripted nemesis: a campaign's `[[nemesis.step]]`.

A step does one thing to the cluster or waits for one condition; no step just sleeps. Nodes are named `n1`, `n2`, ...,
by the role that they have when the step runs (`leader:0`, `follower:0`, `controller`), or by a name that an earlier
step assigned with `as = "A"`.
"""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from history.field_types import COMPUTED, LONGEST_S, SETTINGS, Count, Positive, Seconds, one_of
from installation.counted import counted
from installation.sanitize import plain
from nemeses import HEALED_BY, INJECTED_BY, Choice, Files, Kind, Parameter, ParameterError, Word
from systems.declared_tables import read_keys, shapes
from systems.toml_tables import Table
from systems.view import LOCAL_START, LOG_START, OFFSETS, PENDING_UPLOAD
from workloads.settings import ALL

# Steps other than starting and stopping faults; each kind of fault defines the words for those.
ELECT = "elect"
DELETE_RECORDS = "delete-records"
RUN = "run"
CONFIGURE, JOIN = "configure", "join"
"""Steps that change the topic, or a node's settings: for systems that control their topics."""
OWN_NODE_WORDS = frozenset({"name", "sync", ELECT, RUN})
_OWN_WORDS = frozenset({"produce", "consume", "wait", DELETE_RECORDS, CONFIGURE, JOIN})
# `controller` is the leader of the cluster as a whole; `leader:0` and `follower:0` are those of a partition.
CONTROLLER = "controller"
# Heals cuts between groups, faults of one node, or all of them: its step has its own form.
HEAL = "heal"
NODE_WORDS = (
    OWN_NODE_WORDS | {word for word, kind in INJECTED_BY.items() if kind.takes == "node"} | (HEALED_BY.keys() - {HEAL})
)
GROUP_WORDS = frozenset(word for word, kind in INJECTED_BY.items() if kind.takes == "groups")
_taken = (_OWN_WORDS | OWN_NODE_WORDS) & (INJECTED_BY.keys() | HEALED_BY.keys()) or GROUP_WORDS & HEALED_BY.keys()
assert not _taken, f"a kind of fault uses a word that steps have for something else: {sorted(_taken)}"
STARTS = (LOG_START, LOCAL_START, PENDING_UPLOAD)
"""Where the log of a replica that joins can be expected to start, as offsets that the leader states."""


Groups = tuple[tuple[str, ...], tuple[str, ...]]
"""Two groups of nodes, by their names in the script."""

_NODE: Final = {"type": "string", "pattern": r"^(n\d+|controller|leader:\d+|follower:\d+(:\d+)?|[A-Z][A-Za-z0-9_]*)$"}
NodeName = Annotated[
    str,
    Meta(
        pattern=_NODE["pattern"],
        title='a node; use n1, n2, ..., "leader:0", "follower:0", "controller", or a name that an earlier step '
        "assigned with as",
        extra_json_schema={"names": "node"},
    ),
]
Partition = Annotated[int, Meta(ge=0, extra_json_schema={"names": "partition"})]
_ALIAS: Final = Meta(pattern="^[A-Z][A-Za-z0-9_]*$", title="a name; start it with a capital letter, such as A")
_BETWEEN: Final = Meta(
    title='a pair of nodes, such as ["A", "B"], or of groups, such as [["A"], ["B", "n3"]]',
    extra_json_schema={
        "names": "node",
        "instead": {"items": {"anyOf": [_NODE, {"type": "array", "minItems": 1, "items": _NODE}]}},
    },
)
_EXIT_CODES: Final = Meta(min_length=1, title="a list of exit codes, numbers from 0 to 255")
_ACKS: Final = Meta(
    title='"all", 1 or 0', extra_json_schema={"instead": {"type": ["string", "integer"], "enum": ["all", 1, 0, -1]}}
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What all steps have. `number` counts from 1."""

    number: Annotated[int, COMPUTED]
    do: str
    """Needed: what the step does."""
    deadline_s: Annotated[float, Meta(ge=0.001, le=LONGEST_S)] = 30.0
    """A step that is not done within this time ends the run."""
    why: str = ""
    """A comment, which the progress lines and the report show."""

    @property
    def title(self) -> str:
        """The step's name in progress lines, the journal and error messages."""
        return f"step {self.number} ({self.describe()})"

    def describe(self) -> str:
        return self.do

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the step, by their names in the script."""
        return ()

    @property
    def kind(self) -> Kind[Any] | None:
        """The kind of fault that it starts, if any."""
        return INJECTED_BY.get(self.do)

    @property
    def needs(self) -> str | None:
        """The name of the kind of fault that the world must be able to inject, if any."""
        return None if self.kind is None else self.kind.name


class NodeStep(Step, frozen=True, kw_only=True):
    """Do something to one node, and optionally name the node for later steps.

    `parameters`: those of the kind of fault that it starts."""

    node: NodeName
    """Needed: the node."""
    alias: Annotated[str, _ALIAS] | None = msgspec.field(default=None, name="as")
    """A name for the node in later steps; it starts with a capital letter."""
    parameters: Annotated[Mapping[str, Any], COMPUTED] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def describe(self) -> str:
        given = {key: value for key, value in self._details.items() if value is not None}
        how = "".join(f" {key}={plain(value)}" for key, value in given.items())
        return f"{self.do} {self.node}{how}" + (f" as {self.alias}" if self.alias else "")

    @property
    def _details(self) -> Mapping[str, Any]:
        return self.parameters


class OwnFaultStep(NodeStep, frozen=True, kw_only=True):
    """Inject a fault of the campaign's own, whose name is in `do`."""

    own_kind: Annotated[Any, COMPUTED]

    @property
    def kind(self) -> Kind[Any]:
        own_kind: Kind[Any] = self.own_kind
        return own_kind


class ElectStep(NodeStep, frozen=True, kw_only=True):
    """Let a node lead. Elections are clean. Kafka with ZooKeeper elects for both, Apache Kafka 4 and our broker for
    partitions."""

    partition: Partition | None = None
    """The partition that the node must lead; without it, the cluster."""

    @property
    def _details(self) -> Mapping[str, Any]:
        return {"partition": self.partition}


class RunStep(NodeStep, frozen=True, kw_only=True):
    """Run a command on a node, in its data directory, for example to promote a standby. `deadline_s` is its time. The
    journal has its exit code and the ends of its output."""

    command: Annotated[tuple[str, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": False})]
    """Needed: the program and its arguments, each a template as in `system.toml`:
    `["my-server", "promote", "--at", "{{ node.address }}:{{ node.ports.client }}"]`. A shell is one of
    `["sh", "-c", "..."]`."""
    exit_codes: Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], _EXIT_CODES] = (0,)
    """The exit codes that are accepted; another one ends the run."""

    @property
    def _details(self) -> Mapping[str, Any]:
        return {"command": shlex.join(self.command)}


class CutStep(Step, frozen=True, kw_only=True):
    """Cut the traffic between two groups of nodes."""

    between: Annotated[Groups, _BETWEEN]
    """Needed: the nodes or groups. `[["controller"], ["n1", "n2", "n3"]]` cuts the controller from all others."""
    one_way: bool = False
    """Only from the first to the second."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.between[0], *self.between[1])

    def describe(self) -> str:
        return f"{self.do} {_plain(self.between[0])} {'->' if self.one_way else '<->'} {_plain(self.between[1])}"


class HealStep(Step, frozen=True, kw_only=True):
    """End every cut, delay, loss, and fault of the campaign's own."""

    between: Annotated[Groups, _BETWEEN] | None = None
    """Only the cut between these nodes or groups."""
    node: NodeName | None = None
    """Only the delays, losses and own faults of this node."""

    @property
    def nodes(self) -> tuple[str, ...]:
        groups = self.between or ((), ())
        return (*groups[0], *groups[1], *([] if self.node is None else [self.node]))

    def describe(self) -> str:
        if self.node is not None:
            return f"heal {self.node}"
        return "heal" if self.between is None else f"heal {_plain(self.between[0])} <-> {_plain(self.between[1])}"


class ProduceStep(Step, frozen=True, kw_only=True):
    """Append values to one partition, one after the other, and require an outcome."""

    partition: Partition = 0
    """The partition."""
    count: Positive = 1
    """How many records."""
    acks: Annotated[int, _ACKS] = ALL
    """Which replicas acknowledge: `"all"` in-sync ones, the leader (1), or none (0). Default: `"all"`."""
    timeout_s: Annotated[float, Meta(ge=0.1, le=LONGEST_S)] = 5.0
    """After this time an append has no known outcome."""
    expect: Annotated[str, one_of(("ok", "info", "fail", "any"))] = "ok"
    """The required outcome: acknowledged, unknown, refused, or any."""
    until_ok: bool = False
    """More records follow, within the step's deadline, until `count` are acknowledged."""

    def describe(self) -> str:
        return f"produce {self.count} to {self.partition} with acks={'all' if self.acks < 0 else self.acks}"


class ConsumeStep(Step, frozen=True, kw_only=True):
    """Read one partition from its start to its end with a fresh client."""

    partition: Partition = 0
    """The partition."""

    def describe(self) -> str:
        return f"consume {self.partition}"


class DeleteRecordsStep(Step, frozen=True, kw_only=True):
    """Delete the records of a partition below an offset (DeleteRecords), again until that is answered."""

    partition: Partition = 0
    """The partition."""
    offset: Positive
    """Needed: the offset below which records are deleted."""
    timeout_s: Annotated[float, Meta(ge=0.1, le=LONGEST_S)] = 5.0
    """The time for one request."""

    def describe(self) -> str:
        return f"{self.do} of {self.partition} below {self.offset}"


class ConfigureStep(Step, frozen=True, kw_only=True):
    """Change settings of the topic, or of a node, while it runs."""

    settings: Annotated[Mapping[str, str], Meta(min_length=1, extra_json_schema=SETTINGS)]
    """Needed: the settings by name, such as `{ "retention.ms" = 1000 }`."""
    node: NodeName | None = None
    """The node; without it, the topic."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return () if self.node is None else (self.node,)

    def describe(self) -> str:
        text = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"configure {self.node or 'the topic'}: {text}"


class JoinStep(Step, frozen=True, kw_only=True):
    """Add a node to a partition's replicas and wait until it is in sync. The record has the time, the size and the
    start of its log, and its leader epochs beside the leader's."""

    node: NodeName
    """Needed: the node."""
    partition: Partition = 0
    """The partition."""
    starts_at: Annotated[str, one_of(STARTS)] | None = None
    """The offset of the leader at which the new log must start; another one is the anomaly `wrong-bootstrap-offset`."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def describe(self) -> str:
        return f"{self.do} {self.node} to {self.partition}" + (f" from {self.starts_at}" if self.starts_at else "")


class WaitKeys(Step, frozen=True, kw_only=True):
    """Wait until a condition holds.

    The keys of all conditions; `CONDITIONS` has those of each."""

    leader: NodeName
    """The node leads the partition."""
    isr: Annotated[tuple[NodeName, ...], Meta(min_length=1)]
    """Exactly these nodes are the partition's in-sync replicas."""
    offline: Partition
    """The partition has no leader."""
    in_sync: Partition
    """All replicas of the partition are in sync."""
    controller: NodeName
    """The node is the controller."""
    fenced: NodeName
    """The controller has fenced the node."""
    unfenced: NodeName
    """The controller has not fenced the node."""
    offset: Annotated[str, one_of(OFFSETS)]
    """An offset that the partition's leader states is at least `at_least`."""
    at_least: Count
    """The least value of `offset`."""
    event: str
    """The node traces this event ..."""
    where: Mapping[str, Any] = {}
    """... with these fields."""
    checkpoint: Count
    """The high watermark in the node's checkpoint file, so on its disk, is at least this offset."""
    log: str
    """The node's service prints a line that matches this regular expression, after the last step that was not a
    `wait`."""
    log_end: Count
    """The replica's log end offset, by its own progress events, is at least this offset."""
    seconds: Seconds
    """This time passes while clients continue. Scripts that were made from runs keep their pace with it; others should
    wait for a condition."""
    node: NodeName
    """The node of `event`, `checkpoint`, `log` and `log_end`."""
    partition: Partition = 0
    """The partition of `leader`, `isr`, `offset`, `checkpoint` and `log_end`."""


CONDITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "leader": {"node": "leader", "partition": "partition"},
    "isr": {"nodes": "isr", "partition": "partition"},
    "offline": {"partition": "offline"},
    "controller": {"node": "controller"},
    "fenced": {"node": "fenced"},
    "unfenced": {"node": "unfenced"},
    "event": {"event": "event", "node": "node", "where": "where"},
    "checkpoint": {"node": "node", "at_least": "checkpoint", "partition": "partition"},
    "log": {"node": "node", "pattern": "log"},
    "log_end": {"node": "node", "at_least": "log_end", "partition": "partition"},
    "in_sync": {"partition": "in_sync"},
    "offset": {"name": "offset", "at_least": "at_least", "partition": "partition"},
    "seconds": {"seconds": "seconds"},
}
"""What `wait` can wait for: by the key that names the condition, its arguments and the keys that they are read from."""


def keys_of_wait(condition: str) -> set[str]:
    """The keys of a `wait` for this condition."""
    return {*Step.__struct_fields__, *CONDITIONS[condition].values()} - {"number"}


class WaitStep(Step, frozen=True, kw_only=True):
    """Wait until a condition holds; `arguments` are the condition's own."""

    condition: str
    arguments: Mapping[str, object] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        one, several = self.arguments.get("node"), self.arguments.get("nodes", ())
        assert isinstance(several, tuple)
        return (*several, *([str(one)] if one is not None else []))

    def describe(self) -> str:
        shown = ", ".join(f"{k}={_plain(v)}" for k, v in self.arguments.items() if v not in (None, {}))
        return f"wait for {self.condition}" + (f": {shown}" if shown else "")


def _plain(value: object) -> str:
    """The nodes of a group, the fields that a condition requires (`topic log and partition 0`), or any other value."""
    if isinstance(value, Mapping):
        return " and ".join(f"{key} {plain(each)}" for key, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else plain(value)


FORMS: Final[Mapping[str, type[Step]]] = {
    **dict.fromkeys(sorted(NODE_WORDS), NodeStep),
    ELECT: ElectStep,
    RUN: RunStep,
    **dict.fromkeys(sorted(GROUP_WORDS), CutStep),
    HEAL: HealStep,
    "produce": ProduceStep,
    "consume": ConsumeStep,
    DELETE_RECORDS: DeleteRecordsStep,
    CONFIGURE: ConfigureStep,
    JOIN: JoinStep,
    "wait": WaitKeys,
}
"""By the word in `do`: the keys of the step."""


class StepParser:
    """Parses the steps of one campaign in order, so that a name must be defined before it is used."""

    def __init__(self, nodes: int, partitions: int, own_kinds: Mapping[str, Kind[Any]]) -> None:
        """`own_kinds`: the campaign's own kinds of fault, by name."""
        self._nodes = nodes
        self._partitions = partitions
        self._own_kinds = own_kinds
        self._forms: dict[str, type[Step]] = {**FORMS, **dict.fromkeys(own_kinds, OwnFaultStep)}
        self._names: set[str] = set()

    def parse(self, tables: list[Table]) -> tuple[Step, ...]:
        """Also parses the steps after an invalid one, to report all errors. Raises `InputError`."""
        steps = []
        for number, table in enumerate(tables, 1):
            step = table.source.attempt(lambda n=number, this=table: self._step(n, this), None)  # type: ignore[misc]
            if step is not None:
                steps.append(step)
            elif isinstance(alias := table.data.get("as"), str):
                self._names.add(alias)  # so that later steps that use this name report no further error
        return tuple(steps)

    def _step(self, number: int, table: Table) -> Step:
        do = read_keys(table, Step, {"do": self._forms}, only={"do"})["do"]
        asked, condition = None, ""
        if do == "wait":
            condition = self._condition(table)
            asked = keys_of_wait(condition)
        values = read_keys(table, self._forms[do], {"do": self._forms}, asked)
        self._check_places(table, self._forms[do], values)
        step = self._made(table, number, do, condition, values)
        table.done()
        return step

    def _made(self, table: Table, number: int, do: str, condition: str, values: dict[str, Any]) -> Step:
        """The step with these values, which fit each other."""
        if values.get("between") is not None:
            values["between"] = self._groups(table, values["between"])
        if condition:
            arguments = {argument: values[key] for argument, key in CONDITIONS[condition].items()}
            common = {key: values[key] for key in ("do", "deadline_s", "why")}
            return WaitStep(number=number, **common, condition=condition, arguments=arguments)
        if issubclass(self._forms[do], NodeStep):
            if do == "name" and values["alias"] is None:
                table.refuse('as is missing; add as = "A"')
            if values["alias"] is not None:
                self._names.add(values["alias"])
            if do in self._own_kinds:
                values["own_kind"] = self._own_kinds[do]
            values["parameters"] = self._parameters(table, number, values.get("own_kind") or INJECTED_BY.get(do))
        elif do == HEAL and None not in (values["between"], values["node"]):
            table.refuse("heal takes between (for a cut) or node (for delays and losses), not both", "node")
        elif do == "produce":
            self._check_produce(table, values)
        return self._forms[do](number=number, **values)

    def _check_places(self, table: Table, form: type[Step], values: Mapping[str, Any]) -> None:
        """Refuse nodes and partitions that the cluster does not have."""
        for key, shape in shapes(form).items():
            named = shape.get("names") or shape.get("items", {}).get("names")
            value = values.get(key)
            if value is None:
                continue
            if named == "partition":
                self._check_partition(table, key, value)
            elif named == "node":
                groups = [value] if isinstance(value, str) else value
                for name in itertools.chain(*([each] if isinstance(each, str) else each for each in groups)):
                    self._check_node(table, key, name)

    def _parameters(self, table: Table, number: int, kind: Kind[Any] | None) -> dict[str, Any]:
        """The parameters of the fault that the step starts, if any."""
        if kind is None:
            return {}
        parameters: dict[str, Any] = {}
        for each in kind.parameters:
            match each:
                case Parameter(name, default=default):
                    parameters[name] = table.number(name) if default is None else table.number(name, default)
                case Choice(name, scripted=True):
                    parameters[name] = number if table.boolean(name, False) else None
                case Files(name) if name in table:
                    parameters[name] = table.text(name)
                case Word(name, words=words) if name in table:
                    parameters[name] = table.text(name, choices=words)
        try:
            kind.check(parameters)
        except ParameterError as error:
            table.refuse(str(error), error.parameter)
        return parameters

    def _groups(self, table: Table, groups: Sequence[str | tuple[str, ...]]) -> Groups:
        first, second = ((group,) if isinstance(group, str) else group for group in groups)
        if set(first) & set(second):
            table.refuse("between: a node cannot be cut from itself", "between")
        return first, second

    def _check_produce(self, table: Table, values: dict[str, Any]) -> None:
        values["acks"] = ALL if values["acks"] == "all" else values["acks"]
        if values["count"] > 1 and values["expect"] in ("info", "fail"):
            # Scripts append sequentially: the next append would follow a write that may still arrive.
            table.refuse(f'count must be 1 with expect = "{values["expect"]}"; leave count out', "count")
        if values["until_ok"] and "expect" in table:
            table.refuse("expect: with until_ok appends are repeated until acknowledged; leave out one", "expect")

    def _condition(self, table: Table) -> str:
        given = [name for name in CONDITIONS if name in table]
        if len(given) != 1:
            table.refuse(f"a wait needs exactly one of: {', '.join(CONDITIONS)}; {len(given)} are given")
        if given == ["log"] and isinstance(pattern := table.data["log"], str):
            try:
                re.compile(pattern)
            except re.error as error:
                table.refuse(f"log: {pattern!r} is not a regular expression: {error}", "log")
        return given[0]

    def _check_partition(self, table: Table, key: str, index: int) -> None:
        if index >= self._partitions:
            table.refuse(f"{key}: the topic has {counted(self._partitions, 'partition')}, counted from 0", key)

    def _check_node(self, table: Table, key: str, name: str) -> None:
        """Refuse a name that is not certain to name a node when its step runs."""
        if name in self._names or name == CONTROLLER:
            return
        if match := re.fullmatch(r"n(\d+)", name):
            if not 1 <= int(match[1]) <= self._nodes:
                table.refuse(f"{key}: there is no {name}; the nodes are n1 to n{self._nodes}", key)
        elif match := re.fullmatch(r"leader:(\d+)|follower:(\d+)(?::\d+)?", name):
            if int(match[1] or match[2]) >= self._partitions:
                partitions = counted(self._partitions, "partition")
                table.refuse(f"{key}: {name}: the topic has {partitions}, counted from 0", key)
        else:
            named = f"; named so far: {', '.join(sorted(self._names))}" if self._names else ""
            table.refuse(
                f'{key}: {name!r} is not a node; use n1 to n{self._nodes}, "leader:0", "follower:0", "controller", '
                f"or a name that an earlier step assigned with as{named}",
                key,
            )
