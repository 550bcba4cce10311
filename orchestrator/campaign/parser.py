"""Reads a campaign from its TOML file and checks every value before anything starts; `validation` checks the whole.

An error names the file, the line and the key (`InputError`).

The parser places each complaint at its table and key.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from analysis.checker_registry import CLASSES as ANOMALIES
from analysis.core.consistency_models import PROHIBITED, STRICT_SERIALIZABLE
from analysis.evidence.run_toml import SIMULATION, Checks
from analysis.history_checker import load_checker
from history.damage import Damage
from history.foreign.kinds import MODEL_NAMES, PROMISE_NAMES, TRANSACTION_NAMES
from history.own_classes import OwnClassError
from history.regular_files import read_text
from installation.counted import counted
from nemeses import KINDS, ParameterError, ScheduleError, plan_schedule
from nemeses.own_kind import OwnKind, own_kind
from nemeses.registry import AnyKind
from orchestrator.campaign import model
from orchestrator.campaign.expect_table import read_expect
from orchestrator.campaign.load_targets import has_weak_steps, most_of
from orchestrator.campaign.profiles import PROFILES
from orchestrator.campaign.steps import (
    CONFIGURE,
    CONTROLLER,
    FORMS,
    JOIN,
    ElectStep,
    ProduceStep,
    Step,
    StepParser,
    WaitStep,
)
from orchestrator.campaign.swarm import as_text, faults_of, is_own_broker, replicas_of, suitable_profiles
from orchestrator.campaign.systems import client_nodes, roles_of, system_of
from orchestrator.campaign.workload_parser import model_of, read_cell_options, read_client, read_workload, with_share
from systems import InputError, Settings, System, load_system, merge
from systems.declared_tables import read, read_key, read_keys, shapes
from systems.description import FILE_NAME as DESCRIPTION
from systems.description import Draws
from systems.description import read as read_description
from systems.registry import known as known_systems
from systems.toml_tables import Table, TomlSource, place_of_key, suggestion
from workloads.command_client import PLACES
from workloads.kind import SCRIPT_STEPS, Workload
from workloads.kinds import KINDS as WORKLOADS
from workloads.settings import OwnClient

# ---- Checks that the parts of a campaign fit each other and its system. Pure: on a `Campaign`, without its file.


@dataclass(frozen=True)
class Complaint:
    """`table`: the top-level table that it is about, and `key` a key in it. `step`: the number of the step of
    [nemesis] that it is about instead, from 1."""

    table: str
    message: str
    key: str | None = None
    step: int | None = None


def node_complaints(campaign: model.Campaign) -> Iterator[Complaint]:
    """What the system refuses in the settings of each node of each cell."""
    for cell in campaign.cells:
        system, settings = system_of(campaign, cell), merge(campaign.settings, cell.settings)
        try:
            roles = roles_of(campaign, system)
        except InputError as error:
            yield Complaint("system", str(error))
            continue
        wrong_roles = set[str]()  # an error of all nodes of a role is reported once
        for name, role in zip(campaign.topology.names, roles, strict=True):
            given = settings.get(role, Settings()).of(name)
            wrong = system.check_node(role, given, f"{name} in cell {cell.name}")
            if wrong is not None and role not in wrong_roles:
                wrong_roles.add(role)
                yield Complaint(role, wrong)


def workload_complaints(campaign: model.Campaign, system: System, brings_client: bool) -> Iterator[Complaint]:
    """What of the workload and the nemesis the system does not support. `brings_client`: [client] of the campaign
    names a class or a program."""
    yield from _workload(campaign, system, brings_client)
    if campaign.client.client_command:
        yield from _program(campaign)
    yield from _awaited_events(campaign, system)
    yield from _aims(campaign, system)
    for step in campaign.nemesis.steps:
        yield from (Complaint("nemesis", f"{step.title}: {message}") for message in _step(step, system))


def _workload(campaign: model.Campaign, system: System, brings_client: bool) -> Iterator[Complaint]:
    kind = campaign.workload.kind
    # Kinds with Kafka's libraries serve every system that "log" does; a user-defined client defines its own protocol.
    takes = system.description.workloads
    if kind not in takes and not (brings_client if WORKLOADS[kind].own_client else "log" in takes):
        message = f"kind: {system.name} cannot be tested with {campaign.workload.named!r}; it takes: {', '.join(takes)}"
        remedy = "; or name a client in [client] client_class" if campaign.workload.source else ""
        yield Complaint("workload", message + remedy, "kind")
    if campaign.workload.topic_settings and not system.controls_topics:
        message = f"topic_settings: {system.name} creates topics without settings; leave them out"
        yield Complaint("workload", message, "topic_settings")
    serving = client_nodes(campaign, system)
    for number in {number for row in campaign.workload.assignment or () for number in row} - set(serving):
        nodes = ", ".join(f"n{each}" for each in serving)
        message = f"assignment: n{number} stores no data; nodes that do: {nodes}"
        yield Complaint("workload", message, "assignment")
    if WORKLOADS[kind].partitioned and campaign.workload.replication_factor > len(serving):
        message = (
            f"replication_factor: {campaign.workload.replication_factor} replicas need as many nodes that store "
            f"data, and there are {len(serving)}"
        )
        yield Complaint("workload", message, "replication_factor")


def _program(campaign: model.Campaign) -> Iterator[Complaint]:
    """A client that is a program supports the load: each of its own changes is a start."""
    for step in campaign.nemesis.steps:
        if isinstance(step, ProduceStep):
            message = "do: a client that is a program does not produce on command; bring a class, or leave the step out"
            yield Complaint("nemesis", message, "do", step.number)
    key = "partitions" if WORKLOADS[campaign.workload.kind].partitioned else "keys"
    count = len(WORKLOADS[campaign.workload.kind].places(campaign.workload.load))
    if count > PLACES:
        message = (
            f"{key}: {count} are more than {PLACES}, the most that a client which is a program can write to at the "
            "end; take fewer, or bring a class"
        )
        yield Complaint("workload", message, key)


def _awaited_events(campaign: model.Campaign, system: System) -> Iterator[Complaint]:
    """An event that no node ever traces: the step would wait until its deadline."""
    known = system.trace_events
    for step in campaign.nemesis.steps:
        if not isinstance(step, WaitStep) or step.condition != "event" or known is None:
            continue
        event, where = str(step.arguments["event"]), step.arguments["where"]
        assert isinstance(where, Mapping)
        if event not in known:
            message = f"event: {event!r} is not traced; {suggestion(event, known)}"
            yield Complaint("nemesis", message, "event", step.number)
            continue
        for key in where:
            if key not in known[event]:
                message = f"where: {event!r} has no field {key!r}; {suggestion(key, known[event])}"
                yield Complaint("nemesis", message, "where", step.number)


def _aims(campaign: model.Campaign, system: System) -> Iterator[Complaint]:
    """Faults that are aimed at a leader, if the leader cannot be observed: they would hit an arbitrary node."""
    aimed = [kind for kind in campaign.nemesis.faults if campaign.nemesis.known_kinds[kind].aim == "leader"]
    if aimed and not system.has_controller and not system.has_partitions:
        message = (
            f"faults: {aimed[0]!r} is aimed at a leader, which is unobservable in {system.name}; leave it out, or give "
            "the system a class whose observer sees it (has_controller or has_partitions)"
        )
        yield Complaint("nemesis", message, "faults")


def _step(step: Step, system: System) -> Iterator[str]:
    """Why a step is impossible with the system."""
    condition = getattr(step, "condition", None)
    if condition == "event" and not system.description.promises.events:
        yield f"{system.name} writes no trace events to wait for"
    if condition == "log_end" and not system.description.promises.events:
        yield (
            f"nodes of {system.name} do not report their log end; wait for in_sync, or for checkpoint, which is read "
            "from a node's disk"
        )
    if (step.do in (CONFIGURE, JOIN) or condition == "offset") and not system.controls_topics:
        yield f"{system.name} has no topics that can be changed or asked"
    if isinstance(step, ElectStep):
        yield from _election(step, system)
    if (condition == CONTROLLER or CONTROLLER in step.nodes) and not system.has_controller:
        yield f"{system.name} has no controller that can be observed; name a node, such as n1"
    of_partition = condition in ("leader", "isr", "offline", "in_sync") or any(":" in name for name in step.nodes)
    if of_partition and not system.has_partitions:
        yield f"{system.name} has no partitions that can be observed; name a node, such as n1"


def _election(step: ElectStep, system: System) -> Iterator[str]:
    what = "cluster" if step.partition is None else "partition"
    if what in system.elects:
        return
    if system.elects:
        known = " or ".join(f"a {each}" for each in sorted(system.elects))
        yield f"of {system.name} a leader can be chosen for {known}; add partition = 0"
    else:
        yield f"the leader of {system.name} cannot be chosen from outside"


def minimum_complaints(campaign: model.Campaign) -> Iterator[Complaint]:
    """A minimum that no run can reach: every run would be unknown."""
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
            yield Complaint("checks", message, key)


_NODE = re.compile(r"n[0-9]+")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
MODELS: Final = (*MODEL_NAMES, *PROMISE_NAMES, *TRANSACTION_NAMES)
"""The models that judge workloads of the user's own."""
CHECKS_WORDS: Final = {"model": MODELS, "consistency_model": tuple(PROHIBITED)}
"""The values of keys in [checks]."""
_TAKEN: Final = KINDS.keys() | FORMS.keys()


def load(path: Path) -> model.Campaign:
    """Read and check a campaign. Raises `InputError`."""
    return parse(TomlSource.read(path), path)


def parse(source: TomlSource, path: Path) -> model.Campaign:
    """As `load`. Reports all errors at once, without those that follow from a value that could not be read."""
    with source.telling_all():
        campaign = _parse(source, path)
    assert campaign is not None  # otherwise `finish` raised
    return campaign


def _parse(source: TomlSource, path: Path) -> model.Campaign | None:
    root, attempt = source.root(), source.attempt
    head = attempt(lambda: model.CampaignKeys(**read_keys(root, model.CampaignKeys)), None)
    seeds = attempt(lambda: read_seeds(root.table("seeds")), model.Seeds())
    tables = {key: root.table(key) for key in ("topology", "system", "workload", "nemesis", "checks", "client")}
    topology = attempt(lambda: _topology(tables["topology"]), None)
    if topology is None:
        return None
    tested = attempt(lambda: _system(tables["system"], path, topology), None)
    workload = attempt(lambda: read_workload(tables["workload"], topology, path.parent), None)
    nemesis = (
        None
        if workload is None
        else attempt(lambda: _nemesis(tables["nemesis"], topology, workload, path.parent), None)
    )
    if tested is None or workload is None:
        return None
    attempt(lambda: _require_system(tables, workload), None)
    under_test, system = tested
    settings = attempt(lambda: _role_settings(root, system, topology), dict[str, Settings]())
    checks = None if nemesis is None else attempt(lambda: _checks(tables["checks"], nemesis, system), None)
    if checks is not None and not checks.use and not checks.model:
        checks = replace(checks, model=model_of(workload))
    if checks is not None and checks.model in TRANSACTION_NAMES and not checks.consistency_model:
        checks = replace(checks, consistency_model=STRICT_SERIALIZABLE)
    own = None if checks is None else attempt(lambda: _own_checkers(tables["checks"], checks, path.parent), None)
    cells = _cells(root, under_test, topology, workload, seeds, own and own[1])
    client = attempt(lambda: read_client(tables["client"], workload.kind, path.parent, system), None)
    swarm = attempt(lambda: _swarm(root, under_test, system, settings, topology, workload, nemesis, checks), None)
    root.done()
    rehearsed = attempt(lambda: _rehearsed(tables, workload, client, checks), workload)
    if source.complained or head is None or nemesis is None or checks is None or client is None or own is None:
        return None
    campaign = model.Campaign(
        name=head.name,
        description=head.description,
        topology=topology,
        system=under_test,
        settings=settings,
        workload=rehearsed,
        nemesis=nemesis,
        checks=checks,
        seeds=seeds,
        cells=cells,
        path=path,
        text=source.text,
        client=client,
        swarm=swarm,
        draws={} if swarm is None else draws_of(system),
        checkers=own[0],
    )
    smallest = (
        campaign if swarm is None else dataclasses.replace(campaign, topology=replace(topology, nodes=swarm.nodes[0]))
    )
    for complaint in _complaints(root, campaign if is_own_broker(under_test) else smallest, system):
        source.complain(_place_of(root, complaint).error(complaint.message, complaint.key))
    return campaign


def _require_system(tables: Mapping[str, Table], workload: Workload) -> None:
    """A workload of the user's own is not for the system that campaigns test unless they name another one."""
    if workload.source is not None and not tables["system"].data:
        tables["workload"].refuse(
            "kind: [system] is missing, and without it the run would test Brownout's own broker; name your "
            'system there (path = "DIRECTORY"), or name = "brownout"',
            "kind",
        )


def _rehearsed(
    tables: Mapping[str, Table], workload: Workload, client: OwnClient | None, checks: Checks | None
) -> Workload:
    """The workload; one of the user's own after a rehearsal."""
    if workload.source is None:
        for key in ("model", "initial", "allow", "prohibit", "consistency_model"):
            if checks is not None and getattr(checks, key):
                tables["checks"].refuse(f"{key}: the workload {workload.named!r} has its own rules; leave it out", key)
        return workload
    if checks is not None and not checks.use and not checks.model and "use" not in tables["checks"].data:
        tables["checks"].refuse(
            f"use is missing; name a checker, or a model, that judges the operations of {workload.named}"
        )
    if client is None or checks is None:
        return workload
    if checks.consistency_model and checks.model not in TRANSACTION_NAMES:
        tables["checks"].refuse(
            f"consistency_model: it is for transactions, the models {' and '.join(TRANSACTION_NAMES)}; leave it out",
            "consistency_model",
        )
    if key := next((key for key in ("initial", "allow", "prohibit") if getattr(checks, key)), ""):
        from analysis.core.workload_promises import failing_anomalies  # it loads Arrow
        from analysis.engines.own_model import initial_of

        if not checks.model:
            tables["checks"].refuse(f"{key}: it is for a model; name it in `model`", key)
        try:
            initial_of(checks.model, checks.initial)
            key = "allow" if checks.allow else "prohibit"
            failing_anomalies(checks.model, checks.allow, checks.prohibit)
        except ValueError as error:
            tables["checks"].refuse(f"{key}: {error}", key)
    return with_share(tables["workload"], workload, client, checks.model)


def _complaints(root: Table, campaign: model.Campaign, system: System) -> Iterator[Complaint]:
    yield from node_complaints(campaign)
    brings_client = bool({"client_class", "client_command"} & root.table("client").data.keys())
    yield from workload_complaints(campaign, system, brings_client)
    yield from minimum_complaints(campaign)


def _place_of(root: Table, complaint: Complaint) -> Table:
    table = root.table(complaint.table)
    return table if complaint.step is None else table.tables("step")[complaint.step - 1]


def _topology(table: Table) -> model.Topology:
    if "nodes" in table:  # the rest of the campaign depends on it, so an unreadable one ends the reading
        read_key(table, "nodes", shapes(model.Topology)["nodes"])
    topology = read(table, model.Topology)
    world, default = topology.world, model.Topology()
    if topology.filesystem == model.STRICT and world != SIMULATION:
        table.refuse(f'filesystem: only world = "{SIMULATION}" has {model.STRICT!r}, and it is {world!r}', "filesystem")
    if topology.inventory is not None and world != "inventory":
        table.refuse(f'inventory: only world = "inventory" has one, and it is {world!r}', "inventory")
    if topology.node_root != default.node_root and world != "namespaces":
        table.refuse(f'node_root: only world = "namespaces" has a choice, and it is {world!r}', "node_root")
    return topology


def _system(table: Table, path: Path, topology: model.Topology) -> tuple[model.SystemUnderTest, System]:
    given = read(table, model.SystemKeys)
    directory = None if given.path is None else path.parent / given.path
    if directory is not None and not (directory / DESCRIPTION).exists():
        table.refuse(f"path: {directory} has no {DESCRIPTION}; name the directory of a system's description", "path")
    name, version = given.name, given.version
    if name is None:
        name = read_description(directory).name if directory else model.SystemUnderTest.name
    try:
        system = load_system(name, version=version, directory=directory)
    except InputError as error:
        table.refuse(str(error), "name" if directory is None and name not in known_systems() else "version")
    try:
        system.assign_roles(topology.nodes, given.roles)
    except InputError as error:
        table.refuse(str(error))
    return model.SystemUnderTest(name, version, directory, given.roles), system


def _role_settings(table: Table, system: System, topology: model.Topology) -> dict[str, Settings]:
    tables = {role: table.table(role) for role in system.description.roles}  # also roles that no node has
    return {role: _settings(entry, system, role, topology) for role, entry in tables.items() if role in table.data}


def _settings(table: Table, system: System, role: str, topology: model.Topology) -> Settings:
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


def _nemesis(table: Table, topology: model.Topology, workload: Workload, directory: Path) -> model.NemesisSettings:
    kind = table.text("kind", "none", choices=model.NEMESES)
    if kind == "none":
        table.done()
        return model.NemesisSettings()
    kinds = read_keys(table, model.OwnFaultKinds)["kinds"]
    own_kinds = _own_kinds(table, kinds, topology, directory)
    known = {**KINDS, **own_kinds}
    if kind == "steps":
        tables = table.tables("step")
        for step in tables:
            asked = step.data.get("do")
            if asked in SCRIPT_STEPS and asked not in WORKLOADS[workload.kind].steps:
                step.refuse(f'do: the clients of the workload "{workload.kind}" do not {asked} on command', "do")
        steps = StepParser(topology.nodes, workload.partitions, own_kinds).parse(tables)
        table.done()
        if not tables:
            table.refuse('kind "steps" needs at least one [[nemesis.step]]')
        return model.NemesisSettings(kind="steps", steps=steps, kinds=kinds, own_kinds=own_kinds)
    if kind == "schedule":
        overlap = read_keys(table, model.ScheduledFaults)["overlap"]
        moments = _moments(table, topology, known)
        faults = tuple(dict.fromkeys(moment.fault for moment in moments))
        return model.NemesisSettings(
            kind=kind, faults=faults, moments=moments, overlap=overlap, kinds=kinds, own_kinds=own_kinds
        )
    keys = read_keys(table, model.RandomFaults, {"faults": known, "optional_faults": known})
    nemesis = model.NemesisSettings(kind=kind, own_kinds=own_kinds, **keys)
    table.done()
    strange = [kind for kind in nemesis.optional_faults if kind not in nemesis.faults]
    if strange:
        table.refuse(
            f"optional_faults: {strange[0]!r} is not among faults; an optional fault must be in both", "optional_faults"
        )
    between = [kind for kind in nemesis.faults if known[kind].takes == "groups"]
    if between and topology.nodes == 1:
        table.refuse(
            f"faults: {between[0]!r} affects pairs of nodes, and [topology] has only one; leave it out", "faults"
        )
    try:
        # Whether all fit into the load's duration does not depend on the seed.
        plan_schedule(
            0,
            [kind for kind in known if kind in nemesis.faults],
            total_s=workload.duration_s,
            interval_s=nemesis.interval_s,
            duration_s=nemesis.duration_s,
            known=known,
        )
    except ScheduleError as error:
        table.refuse(f"faults: {error}", "faults")
    return nemesis


def _moments(table: Table, topology: model.Topology, known: Mapping[str, AnyKind]) -> tuple[model.ScheduledFault, ...]:
    """The faults of a schedule. Raises `InputError`."""
    tables = table.tables("fault")
    moments = [
        table.source.attempt(lambda this=fault: _moment(this, topology, known), None)  # type: ignore[misc]
        for fault in tables
    ]
    table.done()
    if not tables:
        table.refuse('kind "schedule" needs at least one [[nemesis.fault]]')
    return tuple(filter(None, moments))


def _moment(table: Table, topology: model.Topology, known: Mapping[str, AnyKind]) -> model.ScheduledFault:
    moment = read(table, model.ScheduledFault, {"fault": known, "nodes": topology.names})
    kind = known[moment.fault]
    if kind.takes == "groups" and topology.nodes == 1:
        table.refuse(f"fault: {moment.fault!r} affects pairs of nodes, and [topology] has only one", "fault")
    words = {parameter.name for parameter in kind.parameters}
    try:
        if strange := sorted(moment.parameters.keys() - words):
            raise ParameterError(strange[0], suggestion(strange[0], words))
        kind.check(moment.parameters)
    except ParameterError as error:
        table.refuse(f"parameters: {error}", "parameters")
    return moment


def _swarm(
    root: Table,
    under_test: model.SystemUnderTest,
    system: System,
    settings: Mapping[str, Settings],
    topology: model.Topology,
    workload: Workload,
    nemesis: model.NemesisSettings | None,
    checks: Checks | None,
) -> model.Swarm | None:
    """The ranges that runs draw from; None if the campaign has no [swarm]."""
    table = root.table("swarm")
    if "swarm" not in root.data:
        return None
    is_own = is_own_broker(under_test)
    swarm = read(table, model.Swarm)
    _check_draws(root, system)
    for role, draws in draws_of(system).items():
        for name, key in draws.timeouts.items():
            given = settings.get(role, Settings()).common.get(key, "1")
            if not _NUMBER.fullmatch(given):
                message = f"{key}: {given!r} is not a number, and [swarm] draws faults as long as {name}; leave it out"
                root.table(role).refuse(message, key)
    if not is_own and "voters" in table:
        table.refuse(
            f"voters: nodes of {system.name} have the roles that its description states; leave it out", "voters"
        )
    if under_test.roles and swarm.nodes[0] != swarm.nodes[1]:
        table.refuse("nodes: [system.roles] names nodes, so their number cannot be drawn; write it twice", "nodes")
    try:
        system.assign_roles(swarm.nodes[0], under_test.roles)
    except InputError as error:
        table.refuse(f"nodes: {error}; draw more", "nodes")
    if topology.nodes != swarm.nodes[1]:
        table.refuse(f"nodes: [topology] nodes is {topology.nodes}; set it to the most that is drawn", "nodes")
    if nemesis is not None and nemesis.kind != "random":
        table.refuse('swarm: faults are drawn from [nemesis] faults; set its kind = "random"')
    fewest_nodes = swarm.nodes[0]
    replicas = 1 if is_own else replicas_of(workload, fewest_nodes)
    if nemesis is not None and not faults_of(nemesis.faults, fewest_nodes, replicas):
        copies = "one replica per partition" if replicas == 1 else f"{replicas} replicas"
        root.table("nemesis").refuse(
            f"faults: a cluster of {fewest_nodes} with {copies}, which [swarm] may draw, can have none "
            "of these; add one that leaves its other nodes and its records alone, such as 'kill'",
            "faults",
        )
    if nemesis is not None and not suitable_profiles(swarm, nemesis.faults, workload.kind, is_own=is_own):
        table.refuse(
            "profiles: none of these suits the ranges, the faults and the workload; add 'anything', which always does",
            "profiles",
        )
    if checks is not None and checks.required_faults:
        root.table("checks").refuse(
            "required_faults: each run of a [swarm] draws its faults, and few of them; leave it out, and check over "
            "all "
            "runs which faults happened",
            "required_faults",
        )
    return swarm


def draws_of(system: System) -> dict[str, Draws]:
    """By role, what a system declares for [swarm]."""
    return {name: role.draws for name, role in system.description.roles.items() if role.draws.ranges}


def _check_draws(root: Table, system: System) -> None:
    """Raises `InputError` for a system that declares no ranges or time-outs, and for ranges of unknown settings and
    profiles."""
    path, draws = system.description.directory / DESCRIPTION, draws_of(system)
    if not draws or not any(declared.timeouts for declared in draws.values()):
        lacking = "timeouts" if draws else "ranges"
        root.refuse(
            f"swarm: {path} declares no {lacking} of settings to draw from; add [roles.ROLE.draws.{lacking}] to it, or "
            "leave [swarm] out",
            "swarm",
        )
    for role, declared in draws.items():
        profiles = [(("profiles", name), inner) for name, inner in declared.profiles.items()]
        for place, inner in ((("ranges",), declared.ranges), (("knobs",), declared.knobs), *profiles):
            keys = ("roles", role, "draws", *place)
            if place[1:] and place[1] not in PROFILES:
                message = f"[{'.'.join(keys)}] {place[1]!r} is not a profile; {suggestion(place[1], PROFILES)}"
                raise InputError(f"{place_of_key(path, *keys)}: {message}")
            for key, bounds in inner.items():
                texts = (as_text(bound, bounds) for bound in bounds)
                values = [int(text) if text.isdecimal() else text for text in texts]
                if problem := next(filter(None, (system.check_setting(role, key, value) for value in values)), None):
                    raise InputError(f"{place_of_key(path, *keys, key)}: [{'.'.join(keys)}] {problem}")


def _checks(table: Table, nemesis: model.NemesisSettings, system: System) -> Checks:
    checks = read(table, Checks, CHECKS_WORDS | {"required_faults": nemesis.known_kinds})
    if checks.upper_bound is None:
        checks = replace(checks, upper_bound=system.description.promises.upper_bound)
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
    still = [
        kind for kind in sorted(nemesis.possible_faults) if Damage.ELAPSED_TIME in nemesis.known_kinds[kind].destroys
    ]
    if checks.upper_bound == "strict" and still:
        table.refuse(
            f'upper_bound: "strict" cannot be claimed with {still[0]}: a leader whose clock stands still does not see '
            'its lease end, and continues to serve reads; set upper_bound = "session"',
            "upper_bound" if "upper_bound" in table else None,
        )
    return checks


def _own_checkers(table: Table, checks: Checks, directory: Path) -> tuple[dict[str, str], set[str]]:
    """The texts of the campaign's own checkers by file, and the anomalies that these and its model can find. Raises
    `InputError` for a checker that cannot be loaded."""
    texts, anomalies = dict[str, str](), set[str]()
    if checks.model:
        from analysis.core.object_judgement import anomalies_of  # it loads Arrow

        anomalies.update(anomalies_of(checks.model, checks.consistency_model))
    for use in checks.use:
        file = use.rpartition(":")[0]
        texts[file] = _own_text(table, "use", directory / file)
        try:
            declared = load_checker(use, texts[file]).anomalies
        except OwnClassError as error:
            table.refuse(f"use: {error}", "use")
        if built_in := sorted(declared.keys() & ANOMALIES.keys()):
            table.refuse(f"use: {use} declares {built_in[0]!r}, an anomaly of Brownout; choose another name", "use")
        anomalies.update(declared)
    return texts, anomalies


def _own_kinds(table: Table, kinds: Sequence[str], topology: model.Topology, directory: Path) -> dict[str, OwnKind]:
    """The campaign's own kinds of fault by name. Raises `InputError` for one that cannot be loaded."""
    if kinds and topology.world == SIMULATION:
        table.refuse(
            f"kinds: nodes of the {SIMULATION} world run no commands; use another world in [topology]", "kinds"
        )
    own_kinds = dict[str, OwnKind]()
    for number, use in enumerate(kinds):
        text = _own_text(table, "kinds", directory / use.rpartition(":")[0])
        try:
            kind = own_kind(use, text, number, _TAKEN | own_kinds.keys())
        except OwnClassError as error:
            table.refuse(f"kinds: {error}", "kinds")
        own_kinds[kind.name] = kind
    return own_kinds


def _own_text(table: Table, key: str, path: Path) -> str:
    """The text of a file that a key names. Raises `InputError`."""
    try:
        return read_text(path)
    except OSError as error:
        table.refuse(f"{key}: {path}: {error.strerror or error}; name a file relative to the campaign's", key)
    except ValueError as error:
        table.refuse(f"{key}: {path}: {error}; save it as UTF-8", key)


def read_seeds(table: Table) -> model.Seeds:
    seeds = read(table, model.Seeds)
    if seeds.first + seeds.count > model.MAX_SEED:
        table.refuse(
            "first and count: seeds are whole numbers below 2^63 - 1", "count" if "count" in table else "first"
        )
    return seeds


def _cells(
    root: Table,
    under_test: model.SystemUnderTest,
    topology: model.Topology,
    workload: Workload,
    seeds: model.Seeds,
    own_anomalies: Collection[str] | None,
) -> tuple[model.Cell, ...]:
    cells: list[model.Cell] = []
    for table in root.tables("cell"):
        cell = root.source.attempt(
            lambda this=table: _cell(this, under_test, topology, workload, own_anomalies),  # type: ignore[misc]
            None,
        )
        if cell is None:
            continue
        if cell.name in {other.name for other in cells}:
            root.source.complain(table.error(f"name: two cells are called {cell.name!r}", "name"))
        if (cell.expect.at_least or 0) > seeds.count:
            message = (
                f"at_least: the campaign has {counted(seeds.count, 'seed')}; raise [seeds] count, or lower at_least"
            )
            root.source.complain(table.table("expect").error(message, "at_least"))
        cells.append(cell)
    return tuple(cells) or (model.Cell(),)


def _cell(
    table: Table,
    under_test: model.SystemUnderTest,
    topology: model.Topology,
    workload: Workload,
    own_anomalies: Collection[str] | None,
) -> model.Cell:
    version = read_keys(table, model.CellKeys, only={"version"})["version"]
    try:
        system = load_system(under_test.name, version=version or under_test.version, directory=under_test.directory)
    except InputError as error:
        table.refuse(f"version: {error}", "version")
    if "mutants" in table and not system.mutants:
        table.refuse(f"mutants: {system.name} has no mutants; leave them out", "mutants")
    given = model.CellKeys(**read_keys(table, model.CellKeys, {"mutants": system.mutants}))
    settings = _role_settings(table, system, topology)
    options = read_cell_options(table.table("client"), workload.kind)
    is_tiered = workload.topic_settings.get("remote.storage.enable") == "true"
    judge = WORKLOADS[workload.kind].judge
    expect = read_expect(table.table("expect"), judge, is_tiered=is_tiered, own_anomalies=own_anomalies)
    cell = model.Cell(given.name, given.mutants, settings, version, expect, options)
    table.done()
    return cell
