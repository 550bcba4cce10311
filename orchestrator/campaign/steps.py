"""The steps of a scripted nemesis: what a campaign may write under `[[nemesis.step]]`, parsed and checked.

A step does one thing to the cluster or waits for one condition of it; nothing sleeps. Nodes are named `n1`, `n2`, ...,
by the role they play when the step runs (`leader:0`, `follower:0`, `controller`), or by a name that an earlier step
gave with `as = "A"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nemeses.fault import Kind
from systems.toml_tables import Table

DEFAULT_DEADLINE_S = 30.0

# Steps that act on one node, and what each needs of the world beside plain processes.
NODE_ACTIONS: Mapping[str, Kind | None] = {
    "name": None,
    "kill": "kill",
    "start": None,
    "pause": "pause",
    "resume": None,
    "power-loss": "power-loss",
    "power-on": None,
    "stall": "stall",
    "freeze": "clock-freeze",
    "set-clock": "clock-jump",
    "reset-clock": None,
    "delay": "packet-delay",
    "lose": "packet-loss",
    "sync": None,
}
OTHER_ACTIONS: Mapping[str, Kind | None] = {
    "cut": "partition-one",
    "heal": None,
    "produce": None,
    "consume": None,
    "wait": None,
}
MOST_JUMP_S = 86_400.0
MOST_DELAY_MS = 2_000.0
MOST_LOSS_PERCENT = 50.0  # beyond it control connections do not work either
CONDITIONS = (
    "leader",
    "isr",
    "offline",
    "controller",
    "fenced",
    "unfenced",
    "event",
    "checkpoint",
    "log_end",
    "in_sync",
)


Groups = tuple[tuple[str, ...], tuple[str, ...]]
"""Two groups of nodes, by their names in the script."""


@dataclass(frozen=True)
class Step:
    """What all steps have. `number` counts from 1; `why` is for the reader of the campaign and of the report."""

    number: int
    do: str
    deadline_s: float
    why: str

    @property
    def title(self) -> str:
        """How the step is named in progress lines, the journal and failures."""
        return f"step {self.number} ({self.describe()})"

    def describe(self) -> str:
        return self.do

    @property
    def needs(self) -> Kind | None:
        """The fault kind that the world must be able to inflict, if any."""
        return NODE_ACTIONS.get(self.do) or OTHER_ACTIONS.get(self.do)


@dataclass(frozen=True)
class NodeStep(Step):
    """Do something to one node, and optionally give the node a name for the later steps. `parameters`: how much, in the
    words of `nemeses.Fault`."""

    node: str
    alias: str | None = None
    tear: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict)

    def describe(self) -> str:
        how = "".join(f" {key}={value:g}" for key, value in self.parameters.items())
        return f"{self.do} {self.node}{how}" + (f" as {self.alias}" if self.alias else "")


@dataclass(frozen=True)
class CutStep(Step):
    """Cut the traffic between two groups of nodes, both ways or only from the first to the second."""

    between: Groups
    one_way: bool = False

    def describe(self) -> str:
        return f"cut {_plain(self.between[0])} {'->' if self.one_way else '<->'} {_plain(self.between[1])}"


@dataclass(frozen=True)
class HealStep(Step):
    """End the cut between these groups, or the delays and losses of one node, or all of them."""

    between: Groups | None = None
    node: str | None = None

    def describe(self) -> str:
        if self.node is not None:
            return f"heal {self.node}"
        return "heal" if self.between is None else f"heal {_plain(self.between[0])} <-> {_plain(self.between[1])}"


@dataclass(frozen=True)
class ProduceStep(Step):
    """Append `count` values to one partition, one after the other, and require an outcome."""

    partition: int
    count: int
    acks: int
    timeout_s: float
    expect: str

    def describe(self) -> str:
        return f"produce {self.count} to {self.partition} with acks={'all' if self.acks < 0 else self.acks}"


@dataclass(frozen=True)
class ConsumeStep(Step):
    """Read one partition from its start to its end with a fresh client."""

    partition: int

    def describe(self) -> str:
        return f"consume {self.partition}"


@dataclass(frozen=True)
class WaitStep(Step):
    """Wait until a condition holds; `arguments` are the condition's own keys."""

    condition: str
    arguments: Mapping[str, object] = field(default_factory=dict)

    def describe(self) -> str:
        shown = ", ".join(f"{k}={_plain(v)}" for k, v in self.arguments.items() if v not in (None, {}))
        return f"wait for {self.condition}" + (f": {shown}" if shown else "")


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class StepParser:
    """Parses the steps of one campaign in order, so that a name is known before it is used."""

    def __init__(self, nodes: int, partitions: int) -> None:
        self._nodes = nodes
        self._partitions = partitions
        self._names: set[str] = set()

    def parse(self, tables: list[Table]) -> tuple[Step, ...]:
        return tuple(self._step(number, table) for number, table in enumerate(tables, 1))

    def _step(self, number: int, table: Table) -> Step:
        do = table.text("do", choices={*NODE_ACTIONS, *OTHER_ACTIONS})
        deadline_s = table.number("deadline_s", DEFAULT_DEADLINE_S, minimum=0.001)
        why = table.text("why", "")
        step: Step
        if do in NODE_ACTIONS:
            step = self._node_step(table, number, do, deadline_s, why)
        elif do == "cut":
            step = self._cut(table, number, deadline_s, why)
        elif do == "produce":
            step = self._produce(table, number, deadline_s, why)
        elif do == "consume":
            step = ConsumeStep(number, do, deadline_s, why, self._partition(table))
        elif do == "wait":
            step = self._wait(table, number, deadline_s, why)
        else:
            step = self._heal(table, number, deadline_s, why)
        table.done()
        return step

    def _node_step(self, table: Table, number: int, do: str, deadline_s: float, why: str) -> NodeStep:
        node = self._node(table, "node")
        alias = table.text("as", "") or None
        tear = table.boolean("tear", False) if do == "power-loss" else False
        if do == "name" and alias is None:
            table.refuse('as is missing; add as = "A"')
        if alias is not None:
            if re.fullmatch(r"[A-Z][A-Za-z0-9_]*", alias) is None:
                table.refuse(f"as: {alias!r} is not a name; begin it with a capital letter, such as A", "as")
            self._names.add(alias)
        return NodeStep(number, do, deadline_s, why, node, alias, tear, self._parameters(table, do))

    def _parameters(self, table: Table, do: str) -> dict[str, float]:
        """How much of it, of what has a measure."""
        if do == "set-clock":
            jump_s = table.number("jump_s", minimum=-MOST_JUMP_S)
            if not 1 <= abs(jump_s) <= MOST_JUMP_S:
                table.refuse(
                    f"jump_s: {jump_s:g} is not 1 to {MOST_JUMP_S:g} seconds, forward or (negative) back", "jump_s"
                )
            return {"jump_s": jump_s}
        if do == "delay":
            delay_ms, jitter_ms = table.number("delay_ms", minimum=1), table.number("jitter_ms", 0, minimum=0)
            if delay_ms > MOST_DELAY_MS:
                table.refuse(f"delay_ms: more than {MOST_DELAY_MS:g} ms is a cut rather than a delay", "delay_ms")
            if jitter_ms >= delay_ms:
                table.refuse("jitter_ms: the jitter must be smaller than delay_ms", "jitter_ms")
            return {"delay_ms": delay_ms, "jitter_ms": jitter_ms}
        if do == "lose":
            percent = table.number("percent", minimum=1)
            if percent > MOST_LOSS_PERCENT:
                table.refuse(f"percent: at most {MOST_LOSS_PERCENT:g}; to lose everything, use cut", "percent")
            return {"percent": percent}
        return {}

    def _heal(self, table: Table, number: int, deadline_s: float, why: str) -> HealStep:
        if "between" in table and "node" in table:
            table.refuse("heal takes between (for a cut) or node (for delays and losses), not both", "node")
        groups = self._groups(table) if "between" in table else None
        return HealStep(number, "heal", deadline_s, why, groups, self._node(table, "node") if "node" in table else None)

    def _cut(self, table: Table, number: int, deadline_s: float, why: str) -> CutStep:
        groups = self._groups(table)
        return CutStep(number, "cut", deadline_s, why, groups, table.boolean("one_way", False))

    def _groups(self, table: Table) -> Groups:
        groups = table.raw("between", None)
        if not isinstance(groups, list) or len(groups) != 2:
            table.refuse('between is a pair of nodes, such as ["A", "B"], or of groups, such as [["A"], ["B", "n3"]]')
        first, second = (
            tuple(self._known(table, "between", member) for member in (group if isinstance(group, list) else [group]))
            for group in groups
        )
        if set(first) & set(second):
            table.refuse("between: a node cannot be cut from itself", "between")
        return first, second

    def _produce(self, table: Table, number: int, deadline_s: float, why: str) -> ProduceStep:
        acks = table.raw("acks", "all")
        if acks not in ("all", 0, 1, -1) or isinstance(acks, bool):
            table.refuse(f'acks: {acks!r} is not "all", 1 or 0', "acks")
        return ProduceStep(
            number,
            "produce",
            deadline_s,
            why,
            partition=self._partition(table),
            count=table.integer("count", 1, minimum=1),
            acks=-1 if acks in ("all", -1) else acks,
            timeout_s=table.number("timeout_s", 5.0, minimum=0.1),
            expect=table.text("expect", "ok", choices=("ok", "info", "fail", "any")),
        )

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
        return {"nodes": members, "partition": self._partition(table)}

    def _wait_offline(self, table: Table) -> dict[str, object]:
        return {"partition": self._index(table, "offline")}

    def _wait_in_sync(self, table: Table) -> dict[str, object]:
        return {"partition": self._index(table, "in_sync")}

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

    def _wait_log_end(self, table: Table) -> dict[str, object]:
        """A replica's log end offset, as its own progress events tell it, is at least `log_end`."""
        return {
            "node": self._node(table, "node"),
            "at_least": table.integer("log_end", minimum=0),
            "partition": self._partition(table),
        }

    def _partition(self, table: Table) -> int:
        return self._index(table, "partition", 0)

    def _index(self, table: Table, key: str, default: int | None = None) -> int:
        index = table.integer(key, minimum=0) if default is None else table.integer(key, default, minimum=0)
        if index >= self._partitions:
            table.refuse(f"{key}: the topic has {self._partitions} partitions, counted from 0", key)
        return index

    def _node(self, table: Table, key: str) -> str:
        return self._known(table, key, table.text(key))

    def _known(self, table: Table, key: str, name: object) -> str:
        """`name`, once it is sure that it will mean a node when its step runs."""
        if not isinstance(name, str):
            table.refuse(f"{key}: {name!r} is not a node's name", key)
        if name in self._names or name == "controller":
            return name
        if match := re.fullmatch(r"n(\d+)", name):
            if not 1 <= int(match[1]) <= self._nodes:
                table.refuse(f"{key}: there is no {name}; the nodes are n1 to n{self._nodes}", key)
            return name
        if match := re.fullmatch(r"(?:leader|follower):(\d+)", name):
            if int(match[1]) >= self._partitions:
                table.refuse(f"{key}: {name}: the topic has {self._partitions} partitions, counted from 0", key)
            return name
        named = f"; named so far: {', '.join(sorted(self._names))}" if self._names else ""
        raise table.error(
            f'{key}: {name!r} is no node; use n1 to n{self._nodes}, "leader:0", "follower:0", "controller", or a name '
            f"that an earlier step gave with as{named}",
            key,
        )
