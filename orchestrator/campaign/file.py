"""Reads a campaign strictly from its TOML file.

Every value is checked before anything starts; a complaint names the file, the line and the key (`InputError`).
"""

from __future__ import annotations

import re
from dataclasses import fields as dataclass_fields
from pathlib import Path

from analysis.core.anomalies import CLASSES as ANOMALIES
from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.mutants import MUTANTS
from nemeses.fault import KINDS
from nemeses.generate import ScheduleError, plan_schedule
from orchestrator.campaign.model import (
    FILESYSTEMS,
    MAX_NODES,
    NODE_ROOTS,
    UPPER_BOUNDS,
    VERDICTS,
    WORLDS,
    BrokerSettings,
    Campaign,
    Cell,
    Checks,
    Expect,
    Nemesis,
    Seeds,
    Topology,
    Workload,
)
from orchestrator.campaign.steps import StepParser
from orchestrator.campaign.workload_table import read_client, read_workload
from systems.toml_tables import Source, Table, suggestion
from workloads.kind import SCRIPT_STEPS
from workloads.kinds import KINDS as WORKLOADS

# Broker keys, with the least value of those that are whole numbers (None: any; absent from the dict: a text).
_INTEGER_KEYS: dict[str, int | None] = {
    f.metadata["key"]: f.metadata["minimum"]
    for f in dataclass_fields(BrokerConfig)
    if "key" in f.metadata and isinstance(f.default, int)
}
_BROKER_KEYS = frozenset(f.metadata["key"] for f in dataclass_fields(BrokerConfig) if "key" in f.metadata)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NOT_A_NAME = "latest"  # the store's link to the last run


def load(path: Path) -> Campaign:
    """Read and check a campaign. Raises `InputError`."""
    return parse(Source.read(path), path)


def parse(source: Source, path: Path) -> Campaign:
    root = source.root()
    name = root.text("name")
    if _NAME.fullmatch(name) is None:
        root.refuse(f"name: {name!r} cannot name a directory; use small letters, digits, '.', '_' and '-'", "name")
    if name == _NOT_A_NAME:
        root.refuse(f"name: {name!r} is what the store calls the last run; choose another one", "name")
    topology = _topology(root.table("topology"))
    workload = read_workload(root.table("workload"), topology)
    nemesis = _nemesis(root.table("nemesis"), topology, workload)
    campaign = Campaign(
        name=name,
        description=root.text("description", ""),
        topology=topology,
        broker=_broker(root.table("broker"), topology),
        workload=workload,
        nemesis=nemesis,
        checks=_checks(root.table("checks"), nemesis),
        seeds=_seeds(root.table("seeds")),
        cells=_cells(root, topology),
        path=path,
        text=source.text,
        client=read_client(root.table("client"), workload.kind, path.parent),
    )
    root.done()
    _check_brokers(root.table("broker"), campaign)
    return campaign


def _check_brokers(table: Table, campaign: Campaign) -> None:
    """Have the broker itself look at what each node of each cell would be given: some keys make sense only together."""
    for cell in campaign.cells:
        settings = campaign.broker.merged(cell.broker)
        for name in campaign.topology.names:
            address = {"node.id": "1", "listeners": "n:1", "quorum.voters": "1@n:1", "log.dir": "log"}
            try:
                BrokerConfig.from_properties(address | settings.of(name), f"{name} in cell {cell.name}")
            except StartupError as error:
                table.refuse(str(error))


def _topology(table: Table) -> Topology:
    nodes = table.integer("nodes", Topology.nodes, minimum=1)
    if nodes > MAX_NODES:
        table.refuse(f"nodes: {nodes} is more than {MAX_NODES}, the most that a world holds", "nodes")
    world = table.text("world", Topology.world, choices=WORLDS)
    filesystem = table.text("filesystem", Topology.filesystem, choices=FILESYSTEMS)
    inventory = table.text("inventory", "") or None
    if inventory is not None and world != "inventory":
        table.refuse(f'inventory: only world = "inventory" has one, and it is {world!r}', "inventory")
    node_root = table.text("node_root", Topology.node_root, choices=NODE_ROOTS)
    if node_root != Topology.node_root and world != "namespaces":
        table.refuse(f'node_root: only world = "namespaces" has a choice, and it is {world!r}', "node_root")
    table.done()
    return Topology(nodes, world, filesystem, inventory, node_root)


def _broker(table: Table, topology: Topology) -> BrokerSettings:
    common, per_node = {}, {}
    for key, value in table.data.items():
        if not isinstance(value, dict):
            common[key] = _property(table, key)
            continue
        if key not in topology.names:
            dotted = _dotted(key, value)
            if dotted in _BROKER_KEYS:
                table.refuse(f'{dotted}: to TOML, dots make tables; put the key in quotes: "{dotted}" = ...', key)
            table.refuse(f"there is no node {key}; the nodes are n1 to n{topology.nodes}", key)
        node = table.table(key)
        per_node[key] = {inner: _property(node, inner) for inner in node.data}
        node.done()
    table.done()
    return BrokerSettings(common, per_node)


def _dotted(key: str, value: object) -> str:
    """The key that stood in the file when its dots were taken for tables in tables."""
    while isinstance(value, dict) and value:
        inner, value = next(iter(value.items()))
        key = f"{key}.{inner}"
    return key


def _property(table: Table, key: str) -> str:
    value = table.raw(key, None)
    if key not in _BROKER_KEYS:
        table.refuse(f"unknown broker key {key!r}; {suggestion(key, _BROKER_KEYS)}", key)
    if isinstance(value, bool) or not isinstance(value, int | str):
        table.refuse(f"{key}: {value!r} is neither a whole number nor a text", key)
    if key in _INTEGER_KEYS:
        minimum = _INTEGER_KEYS[key]
        if not isinstance(value, int):
            table.refuse(f"{key}: {value!r} is not a whole number", key)
        if minimum is not None and value < minimum:
            table.refuse(f"{key}: {value} is smaller than {minimum}", key)
    return str(value)


def _nemesis(table: Table, topology: Topology, workload: Workload) -> Nemesis:
    kind = table.text("kind", "none", choices=("random", "steps", "none"))
    if kind == "none":
        table.done()
        return Nemesis()
    if kind == "steps":
        tables = table.tables("step")
        for step in tables:
            asked = step.data.get("do")
            if asked in SCRIPT_STEPS and asked not in WORKLOADS[workload.kind].steps:
                step.refuse(f'do: the clients of the workload "{workload.kind}" do not {asked} on command', "do")
        steps = StepParser(topology.nodes, workload.partitions).parse(tables)
        table.done()
        if not steps:
            table.refuse('kind "steps" needs at least one [[nemesis.step]]')
        return Nemesis("steps", steps=steps)
    default = Nemesis()
    nemesis = Nemesis(
        kind,
        faults=table.texts("faults", choices=KINDS),
        interval_s=table.range("interval_s", default.interval_s),
        duration_s=table.range("duration_s", default.duration_s),
    )
    table.done()
    if not nemesis.faults:
        table.refuse('faults is empty; name at least one, or set kind = "none"', "faults")
    try:
        # Whether all fit into the load's time does not depend on the seed.
        plan_schedule(
            0,
            [kind for kind in KINDS if kind in nemesis.faults],
            total_s=workload.duration_s,
            interval_s=nemesis.interval_s,
            duration_s=nemesis.duration_s,
        )
    except ScheduleError as error:
        table.refuse(f"faults: {error}", "faults")
    return nemesis


def _checks(table: Table, nemesis: Nemesis) -> Checks:
    default = Checks()
    checks = Checks(
        upper_bound=table.text("upper_bound", default.upper_bound, choices=UPPER_BOUNDS),
        min_ok=table.integer("min_ok", default.min_ok, minimum=0),
        required_faults=table.texts("required_faults", (), choices=KINDS),
    )
    table.done()
    never = [kind for kind in checks.required_faults if kind not in nemesis.inflicts]
    if never:
        table.refuse(
            f"required_faults: {never[0]!r} can never happen: [nemesis] does not inflict it; add it there, or "
            "leave it out here",
            "required_faults",
        )
    if checks.upper_bound == "strict" and "clock-freeze" in nemesis.inflicts:
        table.refuse(
            'upper_bound: "strict" cannot be claimed with clock-freeze: a leader whose clock stands still does not see '
            'its lease end, and goes on serving reads; set upper_bound = "session"',
            "upper_bound" if "upper_bound" in table else None,
        )
    return checks


def _seeds(table: Table) -> Seeds:
    seeds = Seeds(table.integer("first", 1, minimum=0), table.integer("count", 1, minimum=1))
    table.done()
    return seeds


def _cells(root: Table, topology: Topology) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for table in root.tables("cell"):
        name = table.text("name")
        if _NAME.fullmatch(name) is None:
            table.refuse(f"name: {name!r} cannot name a directory", "name")
        if name in {cell.name for cell in cells}:
            table.refuse(f"name: two cells are called {name!r}", "name")
        mutants = table.texts("mutants", (), choices=MUTANTS.keys())
        cells.append(Cell(name, mutants, _broker(table.table("broker"), topology), _expect(table.table("expect"))))
        table.done()
    return tuple(cells) or (Cell(),)


def _expect(table: Table) -> Expect:
    verdict = table.text("verdict", "pass", choices=VERDICTS)
    anomaly = table.text("anomaly", "") or None
    if anomaly is not None and anomaly not in ANOMALIES:
        table.refuse(f"anomaly: {anomaly!r} is not known; {suggestion(anomaly, ANOMALIES)}", "anomaly")
    if anomaly is not None and verdict != "fail":
        table.refuse(f'anomaly: only verdict = "fail" comes with an anomaly, and it is {verdict!r}', "anomaly")
    if verdict == "fail" and anomaly is None:
        table.refuse("anomaly is missing; a cell that must fail says how", "verdict")
    table.done()
    return Expect(verdict, anomaly)
