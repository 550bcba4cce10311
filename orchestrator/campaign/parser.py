"""Reads a campaign from its TOML file and checks every value before anything starts.

An error names the file, the line and the key (`InputError`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from analysis.evidence.run_directory import LEAST_SHARE
from history.damage import Damage
from history.upper_bounds import UPPER_BOUNDS
from nemeses import KINDS, ScheduleError, plan_schedule
from orchestrator.campaign.expect_table import read_expect
from orchestrator.campaign.load_targets import has_weak_steps, most_of
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
from orchestrator.campaign.steps import CONFIGURE, CONTROLLER, ELECT, JOIN, ProduceStep, Step, StepParser, WaitStep
from orchestrator.campaign.swarm import faults_of
from orchestrator.campaign.systems import client_nodes, roles_of, system_of
from orchestrator.campaign.workload_parser import read_cell_options, read_client, read_workload
from orchestrator.world_kinds import NAMES
from systems import InputError, Settings, System, load_system, merge
from systems.description import read as read_description
from systems.toml_tables import Table, TomlSource, suggestion
from workloads.command_client import PLACES
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
    _check_nodes(root, campaign)
    _check_workload(root, campaign, system)
    _check_minima(root.table("checks"), campaign)
    return campaign


def _campaign_name(root: Table) -> str:
    name = root.text("name")
    if _NAME.fullmatch(name) is None:
        root.refuse(f"name: {name!r} cannot name a directory; use small letters, digits, '.', '_' and '-'", "name")
    if name == _NOT_A_NAME:
        root.refuse(f"name: {name!r} is the store's name for the last run; choose another one", "name")
    return name


def _check_nodes(root: Table, campaign: Campaign) -> None:
    """Have the system check the settings of each node of each cell."""
    for cell in campaign.cells:
        system, settings = system_of(campaign, cell), merge(campaign.settings, cell.settings)
        try:
            roles = roles_of(campaign, system)
        except InputError as error:
            root.source.complain(root.table("system").error(str(error)))
            continue
        wrong_roles = set[str]()  # an error of all nodes of a role is reported once
        for name, role in zip(campaign.topology.names, roles, strict=True):
            given = settings.get(role, Settings()).of(name)
            wrong = system.check_node(role, given, f"{name} in cell {cell.name}")
            if wrong is not None and role not in wrong_roles:
                wrong_roles.add(role)
                root.source.complain(root.table(role).error(wrong))


def _check_workload(root: Table, campaign: Campaign, system: System) -> None:
    """Check that the system supports the workload."""
    kind = campaign.workload.kind
    # Kinds with Kafka's libraries serve every system that "log" does; a user-defined client defines its own protocol.
    takes = system.description.workloads
    with_client = bool({"client_class", "client_command"} & root.table("client").data.keys())
    if kind not in takes and not (with_client if WORKLOADS[kind].own_client else "log" in takes):
        root.table("workload").refuse(
            f"kind: {system.name} cannot be tested with {kind!r}; it takes: {', '.join(takes)}", "kind"
        )
    if campaign.workload.topic_settings and not system.controls_topics:
        root.table("workload").refuse(
            f"topic_settings: {system.name} creates topics without settings; leave them out", "topic_settings"
        )
    serving = client_nodes(campaign, system)
    for number in {number for row in campaign.workload.assignment or () for number in row} - set(serving):
        root.table("workload").refuse(
            f"assignment: n{number} stores no data; nodes that do: {', '.join(f'n{each}' for each in serving)}",
            "assignment",
        )
    if WORKLOADS[kind].partitioned and campaign.workload.replication_factor > len(serving):
        root.table("workload").refuse(
            f"replication_factor: {campaign.workload.replication_factor} replicas need as many nodes that store "
            f"data, and there are {len(serving)}",
            "replication_factor",
        )
    if campaign.client.client_command:
        _check_program(root, campaign)
    if not system.description.promises.events:
        for step in campaign.nemesis.steps:
            condition = getattr(step, "condition", None)
            if condition == "event":
                root.table("nemesis").refuse(f"{step.title}: {system.name} writes no trace events to wait for")
            if condition == "log_end":
                root.table("nemesis").refuse(
                    f"{step.title}: nodes of {system.name} do not report their log end; wait for in_sync, or for "
                    "checkpoint, which is read from a node's disk"
                )
    _check_awaited_events(root, campaign, system)
    _check_aims(root.table("nemesis"), campaign, system)
    for step in campaign.nemesis.steps:
        condition = getattr(step, "condition", None)
        needs_control = step.do in (CONFIGURE, JOIN) or condition == "offset"
        if needs_control and not system.controls_topics:
            root.table("nemesis").refuse(f"{step.title}: {system.name} has no topics that can be changed or asked")
        if step.do == ELECT:
            _check_election(root.table("nemesis"), step, system)
        if (condition == CONTROLLER or CONTROLLER in step.nodes) and not system.has_controller:
            root.table("nemesis").refuse(
                f"{step.title}: {system.name} has no controller that can be observed; name a node, such as n1"
            )
        of_partition = condition in ("leader", "isr", "offline", "in_sync") or any(":" in name for name in step.nodes)
        if of_partition and not system.has_partitions:
            root.table("nemesis").refuse(
                f"{step.title}: {system.name} has no partitions that can be observed; name a node, such as n1"
            )


def _check_aims(table: Table, campaign: Campaign, system: System) -> None:
    """Reject faults that are aimed at a leader if the leader cannot be observed: they would hit an arbitrary node."""
    if system.has_controller or system.has_partitions:
        return
    aimed = [kind for kind in campaign.nemesis.faults if KINDS[kind].aim == "leader"]
    if aimed:
        table.refuse(
            f"faults: {aimed[0]!r} is aimed at a leader, which is unobservable in {system.name}; leave it out, or "
            "give "
            "the system a class whose observer sees it (has_controller or has_partitions)",
            "faults",
        )


def _check_program(root: Table, campaign: Campaign) -> None:
    """Check that a client that is a program supports the load: each of its own changes is a start."""
    table, tables = root.table("workload"), root.table("nemesis").tables("step")
    for step in campaign.nemesis.steps:
        if isinstance(step, ProduceStep):
            message = "do: a client that is a program does not produce on command; bring a class, or leave the step out"
            root.source.complain(tables[step.number - 1].error(message, "do"))
    key = "partitions" if WORKLOADS[campaign.workload.kind].partitioned else "keys"
    count = len(WORKLOADS[campaign.workload.kind].places(campaign.workload.load))
    if count > PLACES:
        table.refuse(
            f"{key}: {count} are more than {PLACES}, the most that a client which is a program can write to at the "
            "end; take fewer, or bring a class",
            key,
        )


def _check_election(table: Table, step: Step, system: System) -> None:
    what = "partition" if "partition" in getattr(step, "parameters", {}) else "cluster"
    if what in system.elects:
        return
    if system.elects:
        known = " or ".join(f"a {each}" for each in sorted(system.elects))
        table.refuse(f"{step.title}: of {system.name} a leader can be chosen for {known}; add partition = 0")
    table.refuse(f"{step.title}: the leader of {system.name} cannot be chosen from outside")


def _check_minima(table: Table, campaign: Campaign) -> None:
    """Reject a minimum that no run can reach: every run would be unknown."""
    most = most_of(campaign)
    if most is None:
        return
    weak = "; appends with acks = 0 or 1 do not count: no rule protects them" if has_weak_steps(campaign) else ""
    for key, asked, possible in (
        ("min_ok", campaign.checks.min_ok, most.changes),
        ("min_queries", campaign.checks.min_queries, most.queries),
    ):
        if asked is not None and asked > possible:
            message = (
                f"{key}: {asked} can never be reached: rate and duration_s of [workload] give {possible} at most; ask "
                f"for less, or raise those{weak if key == 'min_ok' else ''}"
            )
            table.source.complain(table.error(message, key))


def _check_awaited_events(root: Table, campaign: Campaign, system: System) -> None:
    """Reject an event that no node ever traces: the step would wait until its deadline."""
    tables, known = root.table("nemesis").tables("step"), system.trace_events
    for step in campaign.nemesis.steps:
        if not isinstance(step, WaitStep) or step.condition != "event" or known is None:
            continue
        event, where = str(step.arguments["event"]), step.arguments["where"]
        assert isinstance(where, Mapping)
        table = tables[step.number - 1]
        if event not in known:
            root.source.complain(table.error(f"event: {event!r} is not traced; {suggestion(event, known)}", "event"))
            continue
        for key in where:
            if key not in known[event]:
                hint = suggestion(key, known[event])
                root.source.complain(table.error(f"where: {event!r} has no field {key!r}; {hint}", "where"))


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
            table.refuse(f"there is no node {key}; the nodes are n1 to n{topology.nodes}", key)
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
        converge_s=table.integer_if_given("converge_s", minimum=1),
        progress_s=table.integer_if_given("progress_s", minimum=1),
    )
    table.done()
    never = [kind for kind in checks.required_faults if kind not in nemesis.inflicts]
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
    still = [kind for kind in sorted(nemesis.inflicts) if Damage.ELAPSED_TIME in KINDS[kind].destroys]
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
    expect = read_expect(table.table("expect"), WORKLOADS[workload.kind].judge)
    cell = Cell(name, mutants, settings, version, expect, options)
    table.done()
    return cell
