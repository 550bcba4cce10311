"""Reads a campaign from its TOML file and checks every value before anything starts; `validation` checks the whole.

An error names the file, the line and the key (`InputError`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from analysis.evidence.run_toml import LEAST_SHARE
from history.damage import Damage
from history.upper_bounds import UPPER_BOUNDS
from nemeses import KINDS, ScheduleError, plan_schedule
from orchestrator.campaign.expect_table import read_expect
from orchestrator.campaign.model import (
    FILESYSTEMS,
    MAX_NODES,
    MAX_RATE,
    MAX_SEED,
    NODE_ROOTS,
    SIMULATION,
    STRICT,
    Campaign,
    Cell,
    Checks,
    NemesisSettings,
    Seeds,
    Swarm,
    SystemUnderTest,
    Topology,
    Workload,
)
from orchestrator.campaign.steps import StepParser
from orchestrator.campaign.swarm import faults_of
from orchestrator.campaign.validation import Complaint, minimum_complaints, node_complaints, workload_complaints
from orchestrator.campaign.workload_parser import read_cell_options, read_client, read_workload
from orchestrator.world_kinds import NAMES
from systems import InputError, Settings, System, load_system
from systems.description import FILE_NAME as DESCRIPTION
from systems.description import read as read_description
from systems.toml_tables import LONGEST_S, Table, TomlSource
from workloads.kind import SCRIPT_STEPS
from workloads.kinds import KINDS as WORKLOADS

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NODE = re.compile(r"n[0-9]+")
MAX_SWARM, MAX_VOTERS = 7, 5  # the sizes at which replicated logs are run
LEAST_SWARM_S, MAX_SWARM_S = 5, 10_000  # less has no room for a fault; more has too many of the shortest
_NOT_A_NAME = "latest"  # the store's link to the last run


def load(path: Path) -> Campaign:
    """Read and check a campaign. Raises `InputError`."""
    return parse(TomlSource.read(path), path)


def parse(source: TomlSource, path: Path) -> Campaign:
    """As `load`. Reports all errors at once, without those that follow from a value that could not be read."""
    with source.telling_all():
        campaign = _parse(source, path)
    assert campaign is not None  # otherwise `finish` raised
    return campaign


def _parse(source: TomlSource, path: Path) -> Campaign | None:
    root, attempt = source.root(), source.attempt
    name = attempt(lambda: _campaign_name(root), "")
    description = root.text("description", "")
    seeds = attempt(lambda: read_seeds(root.table("seeds")), Seeds())
    tables = {key: root.table(key) for key in ("topology", "system", "workload", "nemesis", "checks", "client")}
    topology = attempt(lambda: _topology(tables["topology"]), None)
    if topology is None:
        return None
    read = attempt(lambda: _system(tables["system"], path, topology), None)
    workload = attempt(lambda: read_workload(tables["workload"], topology), None)
    nemesis = None if workload is None else attempt(lambda: _nemesis(tables["nemesis"], topology, workload), None)
    if read is None or workload is None:
        return None
    under_test, system = read
    settings = attempt(lambda: _role_settings(root, system, topology), dict[str, Settings]())
    checks = None if nemesis is None else attempt(lambda: _checks(tables["checks"], nemesis, system), None)
    cells = _cells(root, under_test, topology, workload)
    client = attempt(lambda: read_client(tables["client"], workload.kind, path.parent, system), None)
    swarm = attempt(lambda: _swarm(root, under_test, topology, nemesis, checks), None)
    root.done()
    if source.complained or nemesis is None or checks is None or client is None:
        return None
    campaign = Campaign(
        name=name,
        description=description,
        topology=topology,
        system=under_test,
        settings=settings,
        workload=workload,
        nemesis=nemesis,
        checks=checks,
        seeds=seeds,
        cells=cells,
        path=path,
        text=source.text,
        client=client,
        swarm=swarm,
    )
    for each in _complaints(root, campaign, system):
        source.complain(_place_of(root, each).error(each.message, each.key))
    return campaign


def _campaign_name(root: Table) -> str:
    name = root.text("name")
    if _NAME.fullmatch(name) is None:
        root.refuse(f"name: {name!r} cannot name a directory; use small letters, digits, '.', '_' and '-'", "name")
    if name == _NOT_A_NAME:
        root.refuse(f"name: {name!r} is the store's name for the last run; choose another one", "name")
    return name


def _complaints(root: Table, campaign: Campaign, system: System) -> Iterator[Complaint]:
    yield from node_complaints(campaign)
    brings_client = bool({"client_class", "client_command"} & root.table("client").data.keys())
    yield from workload_complaints(campaign, system, brings_client)
    yield from minimum_complaints(campaign)


def _place_of(root: Table, complaint: Complaint) -> Table:
    table = root.table(complaint.table)
    return table if complaint.step is None else table.tables("step")[complaint.step - 1]


def _topology(table: Table) -> Topology:
    # There is no default for an unreadable number of nodes: the rest of the campaign depends on it.
    nodes = table.integer("nodes", *(() if "nodes" in table else (Topology.nodes,)), minimum=1)
    if nodes > MAX_NODES:
        table.refuse(f"nodes: {nodes} is more than {MAX_NODES}, the most that a world holds", "nodes")
    world = table.text("world", Topology.world, choices=NAMES)
    filesystem = table.text("filesystem", Topology.filesystem, choices=(*FILESYSTEMS, STRICT))
    if filesystem == STRICT and world != SIMULATION:
        table.refuse(f'filesystem: only world = "simulation" has {STRICT!r}, and it is {world!r}', "filesystem")
    inventory = table.text("inventory", "") or None
    if inventory is not None and world != "inventory":
        table.refuse(f'inventory: only world = "inventory" has one, and it is {world!r}', "inventory")
    node_root = table.text("node_root", Topology.node_root, choices=NODE_ROOTS)
    if node_root != Topology.node_root and world != "namespaces":
        table.refuse(f'node_root: only world = "namespaces" has a choice, and it is {world!r}', "node_root")
    table.done()
    return Topology(nodes, world, filesystem, inventory, node_root)


def _system(table: Table, path: Path, topology: Topology) -> tuple[SystemUnderTest, System]:
    own = table.text("path", "")
    directory = path.parent / own if own else None
    if directory is not None and not (directory / DESCRIPTION).exists():
        table.refuse(f"path: {directory} has no {DESCRIPTION}; name the directory of a system's description", "path")
    name = table.text("name", "") or (_name_of(directory) if directory else SystemUnderTest.name)
    version = table.text("version", "") or None
    roles = table.table("roles")
    asked = {node: roles.text(node) for node in roles.data}
    roles.done()
    table.done()
    try:
        system = load_system(name, version=version, directory=directory)
        system.assign_roles(topology.nodes, asked)
    except InputError as error:
        table.refuse(str(error))
    return SystemUnderTest(name, version, directory, asked), system


def _name_of(directory: Path) -> str:
    return read_description(directory).name


def _role_settings(table: Table, system: System, topology: Topology) -> dict[str, Settings]:
    tables = {role: table.table(role) for role in system.description.roles}  # also roles that no node has
    return {role: _settings(each, system, role, topology) for role, each in tables.items() if role in table.data}


def _settings(table: Table, system: System, role: str, topology: Topology) -> Settings:
    common, per_node = {}, {}
    for key, value in table.data.items():
        if not isinstance(value, dict):
            common[key] = _setting(table, system, role, key)
            continue
        if key not in topology.names:
            dotted = _dotted(key, value)
            if _NODE.fullmatch(key) is None and system.check_setting(role, dotted, 1) is None:
                table.refuse(f'{dotted}: to TOML, dots make tables; put the key in quotes: "{dotted}" = ...', key)
            table.refuse(f"unknown node {key}; the nodes are n1 to n{topology.nodes}", key)
        node = table.table(key)
        per_node[key] = {inner: _setting(node, system, role, inner) for inner in node.data}
        node.done()
    table.done()
    return Settings(common, per_node)


def _dotted(key: str, value: object) -> str:
    """The key as written, when its dots were read as tables in tables."""
    while isinstance(value, dict) and value:
        inner, value = next(iter(value.items()))
        key = f"{key}.{inner}"
    return key


def _setting(table: Table, system: System, role: str, key: str) -> str:
    value = table.raw(key, None)
    if not isinstance(value, bool | int | float | str):
        table.refuse(f"{key}: {value!r} is neither a number, a text, true nor false", key)
    if isinstance(value, bool | float):
        value = str(value).lower()
    wrong = system.check_setting(role, key, value)
    if wrong is not None:
        table.refuse(wrong, key)
    return str(value)


def _nemesis(table: Table, topology: Topology, workload: Workload) -> NemesisSettings:
    kind = table.text("kind", "none", choices=("random", "steps", "none"))
    if kind == "none":
        table.done()
        return NemesisSettings()
    if kind == "steps":
        tables = table.tables("step")
        for step in tables:
            asked = step.data.get("do")
            if asked in SCRIPT_STEPS and asked not in WORKLOADS[workload.kind].steps:
                step.refuse(f'do: the clients of the workload "{workload.kind}" do not {asked} on command', "do")
        steps = StepParser(topology.nodes, workload.partitions).parse(tables)
        table.done()
        if not tables:
            table.refuse('kind "steps" needs at least one [[nemesis.step]]')
        return NemesisSettings("steps", steps=steps)
    default = NemesisSettings()
    nemesis = NemesisSettings(
        kind,
        faults=table.texts("faults", choices=KINDS),
        optional_faults=table.texts("optional_faults", (), choices=KINDS),
        interval_s=table.range("interval_s", default.interval_s),
        duration_s=table.range("duration_s", default.duration_s),
    )
    table.done()
    strange = [kind for kind in nemesis.optional_faults if kind not in nemesis.faults]
    if strange:
        table.refuse(
            f"optional_faults: {strange[0]!r} is not among faults; an optional fault must be in both", "optional_faults"
        )
    if not nemesis.faults:
        table.refuse('faults is empty; name at least one, or set kind = "none"', "faults")
    between = [kind for kind in nemesis.faults if KINDS[kind].takes == "groups"]
    if between and topology.nodes == 1:
        table.refuse(
            f"faults: {between[0]!r} affects pairs of nodes, and [topology] has only one; leave it out", "faults"
        )
    try:
        # Whether all fit into the load's duration does not depend on the seed.
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


def read_min_share(table: Table) -> float:
    """The share of the planned changes that a run needs, by [checks]; default: half of them."""
    share = table.number("min_share", LEAST_SHARE, minimum=0)
    if share > 1:
        message = f"min_share: {share:g} is larger than 1; it is a share of the planned writes, such as 0.25"
        table.source.complain(table.error(message, "min_share"))
    return share


def _swarm(
    root: Table, under_test: SystemUnderTest, topology: Topology, nemesis: NemesisSettings | None, checks: Checks | None
) -> Swarm | None:
    """The ranges that runs draw from; None if the campaign has no [swarm]."""
    table, default = root.table("swarm"), Swarm()
    if "swarm" not in root.data:
        return None
    swarm = Swarm(
        nodes=_whole(table, "nodes", default.nodes, MAX_SWARM),
        voters=_whole(table, "voters", default.voters, MAX_VOTERS),
        rate=table.range("rate", default.rate),
        duration_s=table.range("duration_s", default.duration_s),
    )
    table.done()
    if topology.world != SIMULATION or under_test != SystemUnderTest():
        root.refuse('swarm: only world = "simulation" can make drawn clusters; set that in [topology]', "swarm")
    if topology.nodes != swarm.nodes[1]:
        table.refuse(f"nodes: [topology] nodes is {topology.nodes}; set it to the most that is drawn", "nodes")
    if nemesis is not None and nemesis.kind != "random":
        table.refuse('swarm: faults are drawn from [nemesis] faults; set its kind = "random"')
    if swarm.rate[0] <= 0 or swarm.duration_s[0] < LEAST_SWARM_S:
        table.refuse(f"rate and duration_s: at least something, and {LEAST_SWARM_S} s", "rate")
    if swarm.rate[1] > MAX_RATE or swarm.duration_s[1] > MAX_SWARM_S:
        table.refuse(f"rate and duration_s: at most {MAX_RATE:g}, and {MAX_SWARM_S} s", "rate")
    least = swarm.nodes[0]
    if nemesis is not None and not faults_of(nemesis.faults, least, 1):
        root.table("nemesis").refuse(
            f"faults: a cluster of {least} with one replica per partition, which [swarm] may draw, can have none "
            "of these; add one that leaves its other nodes and its records alone, such as 'kill'",
            "faults",
        )
    if checks is not None and checks.required_faults:
        root.table("checks").refuse(
            "required_faults: each run of a [swarm] draws its faults, and few of them; leave it out, and check over "
            "all "
            "runs which faults happened",
            "required_faults",
        )
    return swarm


def _whole(table: Table, key: str, default: tuple[int, int], most: int) -> tuple[int, int]:
    low, high = table.range(key, default)
    if low != int(low) or high != int(high) or not 1 <= low <= high <= most:
        table.refuse(f"{key}: [{low:g}, {high:g}] is not a range of whole numbers from 1 to {most}", key)
    return int(low), int(high)


def _checks(table: Table, nemesis: NemesisSettings, system: System) -> Checks:
    default = Checks(upper_bound=system.description.promises.upper_bound)
    checks = Checks(
        upper_bound=table.text("upper_bound", default.upper_bound, choices=UPPER_BOUNDS),
        min_ok=table.integer_if_given("min_ok", minimum=0),
        min_queries=table.integer_if_given("min_queries", minimum=0),
        min_share=read_min_share(table),
        required_faults=table.texts("required_faults", (), choices=KINDS),
        converge_s=table.integer_if_given("converge_s", minimum=1, maximum=LONGEST_S),
        progress_s=table.integer_if_given("progress_s", minimum=1, maximum=LONGEST_S),
        min_remote_segments=table.integer_if_given("min_remote_segments", minimum=0),
    )
    table.done()
    never = [kind for kind in checks.required_faults if kind not in nemesis.possible_faults]
    if never:
        table.refuse(
            f"required_faults: {never[0]!r} can never happen: [nemesis] does not inject it; add it there, or "
            "leave it out here",
            "required_faults",
        )
    optional = [kind for kind in checks.required_faults if kind in nemesis.optional_faults]
    if optional:
        table.refuse(
            f"required_faults: {optional[0]!r} is optional in [nemesis]; a required fault cannot be optional; remove "
            "it from one of the two",
            "required_faults",
        )
    still = [kind for kind in sorted(nemesis.possible_faults) if Damage.ELAPSED_TIME in KINDS[kind].destroys]
    if checks.upper_bound == "strict" and still:
        table.refuse(
            f'upper_bound: "strict" cannot be claimed with {still[0]}: a leader whose clock stands still does not see '
            'its lease end, and continues to serve reads; set upper_bound = "session"',
            "upper_bound" if "upper_bound" in table else None,
        )
    return checks


def read_seeds(table: Table) -> Seeds:
    seeds = Seeds(table.integer("first", 1, minimum=0), table.integer("count", 1, minimum=1))
    table.done()
    if seeds.first + seeds.count > MAX_SEED:
        table.refuse(
            "first and count: seeds are whole numbers below 2^63 - 1", "count" if "count" in table else "first"
        )
    return seeds


def _cells(root: Table, under_test: SystemUnderTest, topology: Topology, workload: Workload) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for table in root.tables("cell"):
        cell = root.source.attempt(lambda this=table: _cell(this, under_test, topology, workload), None)  # type: ignore[misc]
        if cell is None:
            continue
        if cell.name in {other.name for other in cells}:
            root.source.complain(table.error(f"name: two cells are called {cell.name!r}", "name"))
        cells.append(cell)
    return tuple(cells) or (Cell(),)


def _cell(table: Table, under_test: SystemUnderTest, topology: Topology, workload: Workload) -> Cell:
    name = table.text("name")
    if _NAME.fullmatch(name) is None:
        table.refuse(f"name: {name!r} cannot name a directory", "name")
    version = table.text("version", "") or None
    try:
        system = load_system(under_test.name, version=version or under_test.version, directory=under_test.directory)
    except InputError as error:
        table.refuse(f"version: {error}", "version")
    if "mutants" in table and not system.mutants:
        table.refuse(f"mutants: {system.name} has no mutants; leave them out", "mutants")
    mutants = table.texts("mutants", (), choices=system.mutants.keys())
    settings = _role_settings(table, system, topology)
    options = read_cell_options(table.table("client"), workload.kind)
    is_tiered = workload.topic_settings.get("remote.storage.enable") == "true"
    expect = read_expect(table.table("expect"), WORKLOADS[workload.kind].judge, is_tiered=is_tiered)
    cell = Cell(name, mutants, settings, version, expect, options)
    table.done()
    return cell
