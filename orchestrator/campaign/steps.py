"""Parses and checks the steps of a scripted nemesis: a campaign's `[[nemesis.step]]`.

A step does one thing to the cluster or waits for one condition; no step just sleeps. Nodes are named `n1`, `n2`, ...,
by the role that they have when the step runs (`leader:0`, `follower:0`, `controller`), or by a name that an earlier
step assigned with `as = "A"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from installation.counted import counted
from installation.sanitize import plain
from nemeses import HEALED_BY, INJECTED_BY, Choice, Files, Kind, Parameter, ParameterError
from orchestrator.campaign.free_settings import read_settings
from systems.toml_tables import Table
from systems.view import LOCAL_START, LOG_START, OFFSETS, PENDING_UPLOAD

DEFAULT_DEADLINE_S = 30.0

# Steps other than starting and stopping faults; each kind of fault defines the words for those.
ELECT = "elect"
CONFIGURE, JOIN = "configure", "join"
"""Steps that change the topic, or a node's settings: for systems that control their topics."""
_OWN_NODE_WORDS = frozenset({"name", "sync", ELECT})
_OWN_WORDS = frozenset({"produce", "consume", "wait", CONFIGURE, JOIN})
# `controller` is the leader of the cluster as a whole; `leader:0` and `follower:0` are those of a partition.
CONTROLLER = "controller"
# Heals cuts between groups, faults of one node, or all of them: its step has its own form.
HEAL = "heal"
NODE_WORDS = (
    _OWN_NODE_WORDS | {word for word, kind in INJECTED_BY.items() if kind.takes == "node"} | (HEALED_BY.keys() - {HEAL})
)
GROUP_WORDS = frozenset(word for word, kind in INJECTED_BY.items() if kind.takes == "groups")
WORDS = _OWN_WORDS | NODE_WORDS | GROUP_WORDS | {HEAL}
_taken = (_OWN_WORDS | _OWN_NODE_WORDS) & (INJECTED_BY.keys() | HEALED_BY.keys()) or GROUP_WORDS & HEALED_BY.keys()
assert not _taken, f"a kind of fault uses a word that steps have for something else: {sorted(_taken)}"
CONDITIONS = (
    "leader",
    "isr",
    "offline",
    "controller",
    "fenced",
    "unfenced",
    "event",
    "checkpoint",
    "log",
    "log_end",
    "in_sync",
    "offset",
    "seconds",
)
STARTS = (LOG_START, LOCAL_START, PENDING_UPLOAD)
"""Where the log of a replica that joins can be expected to start, as offsets that the leader states."""


Groups = tuple[tuple[str, ...], tuple[str, ...]]
"""Two groups of nodes, by their names in the script."""


@dataclass(frozen=True)
class Step:
    """What all steps have. `number` counts from 1; `why` is a comment for readers of the campaign and the report."""

    number: int
    do: str
    deadline_s: float
    why: str

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


@dataclass(frozen=True)
class NodeStep(Step):
    """Do something to one node, and optionally name the node for later steps. `parameters`: those of the kind of fault
    that it starts, or the `partition` to elect the node for (without one: the cluster)."""

    node: str
    alias: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def describe(self) -> str:
        given = {key: value for key, value in self.parameters.items() if value is not None}
        how = "".join(f" {key}={plain(value)}" for key, value in given.items())
        return f"{self.do} {self.node}{how}" + (f" as {self.alias}" if self.alias else "")


@dataclass(frozen=True)
class CutStep(Step):
    """Cut the traffic between two groups of nodes, both ways or only from the first to the second."""

    between: Groups
    one_way: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.between[0], *self.between[1])

    def describe(self) -> str:
        return f"{self.do} {_plain(self.between[0])} {'->' if self.one_way else '<->'} {_plain(self.between[1])}"


@dataclass(frozen=True)
class HealStep(Step):
    """Heal the cut between these groups, or the delays and losses of one node, or everything."""

    between: Groups | None = None
    node: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        groups = self.between or ((), ())
        return (*groups[0], *groups[1], *([] if self.node is None else [self.node]))

    def describe(self) -> str:
        if self.node is not None:
            return f"heal {self.node}"
        return "heal" if self.between is None else f"heal {_plain(self.between[0])} <-> {_plain(self.between[1])}"


@dataclass(frozen=True)
class ProduceStep(Step):
    """Append `count` values to one partition, one after the other, and require an outcome. With `until_ok`, further
    values replace those that were not acknowledged, within the step's deadline, until `count` were."""

    partition: int
    count: int
    acks: int
    timeout_s: float
    expect: str
    until_ok: bool = False

    def describe(self) -> str:
        return f"produce {self.count} to {self.partition} with acks={'all' if self.acks < 0 else self.acks}"


@dataclass(frozen=True)
class ConsumeStep(Step):
    """Read one partition from its start to its end with a fresh client."""

    partition: int

    def describe(self) -> str:
        return f"consume {self.partition}"


@dataclass(frozen=True)
class ConfigureStep(Step):
    """Change settings of the topic, or of a node, while it runs."""

    settings: Mapping[str, str]
    node: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return () if self.node is None else (self.node,)

    def describe(self) -> str:
        text = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"configure {self.node or 'the topic'}: {text}"


@dataclass(frozen=True)
class JoinStep(Step):
    """Add a node to a partition's replicas, wait until it is in sync, and record what that took. `starts_at`: where the
    new replica's log must start (one of `STARTS`); None: anywhere."""

    node: str
    partition: int
    starts_at: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def describe(self) -> str:
        return f"{self.do} {self.node} to {self.partition}" + (f" from {self.starts_at}" if self.starts_at else "")


@dataclass(frozen=True)
class WaitStep(Step):
    """Wait until a condition holds; `arguments` are the condition's own keys."""

    condition: str
    arguments: Mapping[str, object] = field(default_factory=dict)

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


class StepParser:
    """Parses the steps of one campaign in order, so that a name must be defined before it is used."""

    def __init__(self, nodes: int, partitions: int) -> None:
        self._nodes = nodes
        self._partitions = partitions
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
        do = table.text("do", choices=WORDS)
        deadline_s = table.seconds("deadline_s", DEFAULT_DEADLINE_S, minimum=0.001)
        why = table.text("why", "")
        step: Step
        if do in NODE_WORDS:
            step = self._node_step(table, number, do, deadline_s, why)
        elif do in GROUP_WORDS:
            step = self._cut(table, number, do, deadline_s, why)
        elif do == "produce":
            step = self._produce(table, number, deadline_s, why)
        elif do == "consume":
            step = ConsumeStep(number, do, deadline_s, why, self._partition(table))
        elif do == "wait":
            step = self._wait(table, number, deadline_s, why)
        elif do == CONFIGURE:
            step = self._configure(table, number, deadline_s, why)
        elif do == JOIN:
            step = self._join(table, number, deadline_s, why)
        else:
            step = self._heal(table, number, deadline_s, why)
        table.done()
        return step

    def _node_step(self, table: Table, number: int, do: str, deadline_s: float, why: str) -> NodeStep:
        node = self._node(table, "node")
        alias = table.text("as", "") or None
        if do == "name" and alias is None:
            table.refuse('as is missing; add as = "A"')
        if alias is not None:
            if re.fullmatch(r"[A-Z][A-Za-z0-9_]*", alias) is None:
                table.refuse(f"as: {alias!r} is not a name; start it with a capital letter, such as A", "as")
            self._names.add(alias)
        return NodeStep(number, do, deadline_s, why, node, alias, self._parameters(table, number, do))

    def _parameters(self, table: Table, number: int, do: str) -> dict[str, Any]:
        """The parameters of the fault that the step starts, if any, or of an election."""
        if do == ELECT:
            return {"partition": self._partition(table)} if "partition" in table else {}
        if do not in INJECTED_BY:
            return {}
        parameters: dict[str, Any] = {}
        for each in INJECTED_BY[do].parameters:
            match each:
                case Parameter(name, default=default):
                    parameters[name] = table.number(name) if default is None else table.number(name, default)
                case Choice(name, scripted=True):
                    parameters[name] = number if table.boolean(name, False) else None
                case Files(name) if name in table:
                    parameters[name] = table.text(name)
        try:
            INJECTED_BY[do].check(parameters)
        except ParameterError as error:
            table.refuse(str(error), error.parameter)
        return parameters

    def _heal(self, table: Table, number: int, deadline_s: float, why: str) -> HealStep:
        if "between" in table and "node" in table:
            table.refuse("heal takes between (for a cut) or node (for delays and losses), not both", "node")
        groups = self._groups(table) if "between" in table else None
        return HealStep(number, HEAL, deadline_s, why, groups, self._node(table, "node") if "node" in table else None)

    def _cut(self, table: Table, number: int, do: str, deadline_s: float, why: str) -> CutStep:
        groups = self._groups(table)
        return CutStep(number, do, deadline_s, why, groups, table.boolean("one_way", False))

    def _groups(self, table: Table) -> Groups:
        groups = table.raw("between", None)
        if not isinstance(groups, list) or len(groups) != 2:
            table.refuse('between is a pair of nodes, such as ["A", "B"], or of groups, such as [["A"], ["B", "n3"]]')
        first, second = (
            tuple(self._known(table, "between", member) for member in (group if isinstance(group, list) else [group]))
            for group in groups
        )
        if not first or not second:
            table.refuse("between: a group has no node; name at least one in each group", "between")
        if set(first) & set(second):
            table.refuse("between: a node cannot be cut from itself", "between")
        return first, second

    def _produce(self, table: Table, number: int, deadline_s: float, why: str) -> ProduceStep:
        acks = table.raw("acks", "all")
        if acks not in ("all", 0, 1, -1) or isinstance(acks, bool):
            table.refuse(f'acks: {acks!r} is not "all", 1 or 0', "acks")
        count = table.integer("count", 1, minimum=1)
        expect = table.text("expect", "ok", choices=("ok", "info", "fail", "any"))
        until_ok = table.boolean("until_ok", False)
        if count > 1 and expect in ("info", "fail"):
            # Scripts append sequentially: the next append would follow a write that may still arrive.
            table.refuse(f'count must be 1 with expect = "{expect}"; leave count out', "count")
        if until_ok and "expect" in table:
            table.refuse("expect: with until_ok appends are repeated until acknowledged; leave out one", "expect")
        return ProduceStep(
            number,
            "produce",
            deadline_s,
            why,
            partition=self._partition(table),
            count=count,
            acks=-1 if acks in ("all", -1) else acks,
            timeout_s=table.seconds("timeout_s", 5.0, minimum=0.1),
            expect=expect,
            until_ok=until_ok,
        )

    def _configure(self, table: Table, number: int, deadline_s: float, why: str) -> ConfigureStep:
        settings = read_settings(table, "settings")
        if not settings:
            table.refuse('settings is missing; add settings = { "retention.ms" = 1000 }', "settings")
        node = self._node(table, "node") if "node" in table else None
        return ConfigureStep(number, CONFIGURE, deadline_s, why, settings, node)

    def _join(self, table: Table, number: int, deadline_s: float, why: str) -> JoinStep:
        node, partition = self._node(table, "node"), self._partition(table)
        starts_at = table.text("starts_at", choices=STARTS) if "starts_at" in table else None
        return JoinStep(number, JOIN, deadline_s, why, node, partition, starts_at)

    def _wait(self, table: Table, number: int, deadline_s: float, why: str) -> WaitStep:
        given = [name for name in CONDITIONS if name in table]
        if len(given) != 1:
            table.refuse(f"a wait needs exactly one of: {', '.join(CONDITIONS)}; {len(given)} are given")
        condition = given[0]
        arguments = getattr(self, f"_wait_{condition}")(table)
        return WaitStep(number, "wait", deadline_s, why, condition, arguments)

    def _wait_leader(self, table: Table) -> dict[str, object]:
        return {"node": self._node(table, "leader"), "partition": self._partition(table)}

    def _wait_isr(self, table: Table) -> dict[str, object]:
        members = tuple(self._known(table, "isr", name) for name in table.texts("isr"))
        if not members:
            table.refuse("isr has no node; name those that must be in sync, or wait for offline = PARTITION", "isr")
        return {"nodes": members, "partition": self._partition(table)}

    def _wait_offline(self, table: Table) -> dict[str, object]:
        return {"partition": self._index(table, "offline")}

    def _wait_in_sync(self, table: Table) -> dict[str, object]:
        return {"partition": self._index(table, "in_sync")}

    def _wait_offset(self, table: Table) -> dict[str, object]:
        """An offset that the partition's leader states is at least `at_least`."""
        name, least = table.text("offset", choices=OFFSETS), table.integer("at_least", minimum=0)
        return {"name": name, "at_least": least, "partition": self._partition(table)}

    def _wait_controller(self, table: Table) -> dict[str, object]:
        return {"node": self._node(table, "controller")}

    def _wait_fenced(self, table: Table) -> dict[str, object]:
        return {"node": self._node(table, "fenced")}

    def _wait_unfenced(self, table: Table) -> dict[str, object]:
        return {"node": self._node(table, "unfenced")}

    def _wait_event(self, table: Table) -> dict[str, object]:
        where = dict(table.table("where").data)
        table.raw("where", None)
        return {"event": table.text("event"), "node": self._node(table, "node"), "where": where}

    def _wait_checkpoint(self, table: Table) -> dict[str, object]:
        """The high watermark in a node's checkpoint file, so on its disk, is at least `checkpoint`."""
        return {
            "node": self._node(table, "node"),
            "at_least": table.integer("checkpoint", minimum=0),
            "partition": self._partition(table),
        }

    def _wait_log(self, table: Table) -> dict[str, object]:
        """A node's service has printed a line that matches this regular expression, after the last step that was not a
        wait."""
        pattern = table.text("log")
        try:
            re.compile(pattern)
        except re.error as error:
            table.refuse(f"log: {pattern!r} is not a regular expression: {error}", "log")
        return {"node": self._node(table, "node"), "pattern": pattern}

    def _wait_log_end(self, table: Table) -> dict[str, object]:
        """A replica's log end offset, by its own progress events, is at least `log_end`."""
        return {
            "node": self._node(table, "node"),
            "at_least": table.integer("log_end", minimum=0),
            "partition": self._partition(table),
        }

    def _wait_seconds(self, table: Table) -> dict[str, object]:
        """Wait for this time while clients continue. A script that was made from a recorded run uses this to keep its
        timing. Other scripts should wait for a condition instead."""
        return {"seconds": table.seconds("seconds", minimum=0.0)}

    def _partition(self, table: Table) -> int:
        return self._index(table, "partition", 0)

    def _index(self, table: Table, key: str, default: int | None = None) -> int:
        index = table.integer(key, minimum=0) if default is None else table.integer(key, default, minimum=0)
        if index >= self._partitions:
            table.refuse(f"{key}: the topic has {counted(self._partitions, 'partition')}, counted from 0", key)
        return index

    def _node(self, table: Table, key: str) -> str:
        return self._known(table, key, table.text(key))

    def _known(self, table: Table, key: str, name: object) -> str:
        """`name`, if it is certain to name a node when its step runs."""
        if not isinstance(name, str):
            table.refuse(f"{key}: {name!r} is not a node's name", key)
        if name in self._names or name == CONTROLLER:
            return name
        if match := re.fullmatch(r"n(\d+)", name):
            if not 1 <= int(match[1]) <= self._nodes:
                table.refuse(f"{key}: there is no {name}; the nodes are n1 to n{self._nodes}", key)
            return name
        if match := re.fullmatch(r"leader:(\d+)|follower:(\d+)(?::\d+)?", name):
            if int(match[1] or match[2]) >= self._partitions:
                table.refuse(
                    f"{key}: {name}: the topic has {counted(self._partitions, 'partition')}, counted from 0", key
                )
            return name
        named = f"; named so far: {', '.join(sorted(self._names))}" if self._names else ""
        raise table.error(
            f'{key}: {name!r} is not a node; use n1 to n{self._nodes}, "leader:0", "follower:0", "controller", or a '
            "name "
            f"that an earlier step assigned with as{named}",
            key,
        )
