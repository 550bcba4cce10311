"""Checks that the parts of a campaign fit each other and its system. Pure: on a `Campaign`, without its file.

The parser places each complaint at its table and key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.campaign.load_targets import has_weak_steps, most_of
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.steps import (
    CONFIGURE,
    CONTROLLER,
    JOIN,
    ElectStep,
    ProduceStep,
    Step,
    WaitStep,
)
from orchestrator.campaign.systems import client_nodes, roles_of, system_of
from systems import InputError, Settings, System, merge
from systems.toml_tables import suggestion
from workloads.command_client import PLACES
from workloads.kinds import KINDS as WORKLOADS


@dataclass(frozen=True)
class Complaint:
    """`table`: the top-level table that it is about, and `key` a key in it. `step`: the number of the step of
    [nemesis] that it is about instead, from 1."""

    table: str
    message: str
    key: str | None = None
    step: int | None = None


def node_complaints(campaign: Campaign) -> Iterator[Complaint]:
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


def workload_complaints(campaign: Campaign, system: System, brings_client: bool) -> Iterator[Complaint]:
    """What of the workload and the nemesis the system does not support. `brings_client`: [client] of the campaign
    names a class or a program."""
    yield from _workload(campaign, system, brings_client)
    if campaign.client.client_command:
        yield from _program(campaign)
    yield from _awaited_events(campaign, system)
    yield from _aims(campaign, system)
    for step in campaign.nemesis.steps:
        yield from (Complaint("nemesis", f"{step.title}: {message}") for message in _step(step, system))


def _workload(campaign: Campaign, system: System, brings_client: bool) -> Iterator[Complaint]:
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


def _program(campaign: Campaign) -> Iterator[Complaint]:
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


def _awaited_events(campaign: Campaign, system: System) -> Iterator[Complaint]:
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


def _aims(campaign: Campaign, system: System) -> Iterator[Complaint]:
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


def minimum_complaints(campaign: Campaign) -> Iterator[Complaint]:
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
