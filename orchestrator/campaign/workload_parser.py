"""Reads the clients' part of a campaign: `[workload]`, with the keys of its kind, and `[client]`."""

from __future__ import annotations

import shutil
from pathlib import Path

from history.topic_folders import is_topic
from orchestrator.campaign.free_settings import read_settings
from orchestrator.campaign.model import (
    MAX_PARTITIONS,
    MAX_RATE,
    PLACEMENTS,
    TOPIC_CREATIONS,
    Topology,
    Workload,
)
from systems import InputError, System
from systems.description import FILE_NAME, ClientDescription
from systems.toml_tables import Table, place_of_key
from workloads.api import Client
from workloads.kind import WorkloadKind
from workloads.kinds import KINDS
from workloads.settings import OwnClient
from workloads.user_module import ClientClassError, load_class

_LONGEST_TOPIC = 200  # file and directory names contain it and a suffix


def read_workload(table: Table, topology: Topology) -> Workload:
    """Raises `InputError`."""
    default = Workload()
    kind = KINDS[table.text("kind", default.kind, choices=KINDS)]
    workload = Workload(
        kind=kind.name,
        rate=table.number("rate", default.rate, minimum=0.1, maximum=MAX_RATE),
        duration_s=table.seconds("duration_s", default.duration_s, minimum=0),
        operations=table.integer("operations", default.operations, minimum=0),
        parameters=_parameters(table, kind),
        **_placed(table, topology) if kind.partitioned else {"topic": "", "partitions": 0},  # type: ignore[arg-type]
    )
    if problem := kind.problem(workload.parameters):
        table.refuse(problem)
    table.done()
    return workload


def read_client(table: Table, kind: str, beside: Path, system: System) -> OwnClient:
    """The user-defined client: the campaign's own, whose file is relative to the campaign's, else the one that the
    system's description names, with the campaign's timeout and options. Raises `InputError`."""
    _refuse_without_need(table, kind)
    if not KINDS[kind].own_client:
        return OwnClient()
    client_class = table.text("client_class", "")
    command = table.raw("client_command", [])
    if not isinstance(command, list) or not all(isinstance(each, str) for each in command):
        table.refuse('client_command: write a list of texts such as ["./client", "--verbose"]', "client_command")
    described = system.description.client
    base = OwnClient()
    if not client_class and not command and (described.class_name or described.command):
        base = _described(described, system.description.directory)
    elif bool(client_class) == bool(command):
        table.refuse(
            f'the workload "{kind}" needs a client: in [client] of {system.name}\'s description class = '
            '"parser.py:Class" or command = ["./program", ...], or here client_class or client_command'
        )
    client = OwnClient(
        client_class=_beside(table, client_class, beside) if client_class else base.client_class,
        client_command=tuple(_program(command, beside)) if command else base.client_command,
        command_directory=str(beside.resolve()) if command else base.command_directory,
        timeout_s=table.seconds("timeout_s", base.timeout_s, minimum=0.01),
        options={**base.options, **_options(table)},
    )
    table.done()
    return _checked(client, table, None if client_class or command else system.description.directory / FILE_NAME)


def _checked(client: OwnClient, table: Table, described_in: Path | None) -> OwnClient:
    """Load the class or find the program, so that errors are reported before anything is started."""
    key, problem = "class", None
    if ".py:" in client.client_class:
        try:
            load_class(client.client_class, Client)
        except ClientClassError as error:
            problem = str(error)
    elif client.client_command:
        key, problem = "command", _why_not_run(client.client_command[0])
    if problem and described_in:
        raise InputError(f"{place_of_key(described_in, 'client', key)}: [client] {key}: {problem}")
    if problem:
        table.refuse(problem if key == "class" else f"client_command: {problem}", f"client_{key}")
    return client


def _why_not_run(program: str) -> str | None:
    """Why this machine, on which clients run, cannot start a program; None if it can."""
    if shutil.which(program):
        return None
    if "/" not in program:
        return f"the program {program} is not in PATH; one beside this file is named ./{program}"
    if not Path(program).is_file():
        return f"the file {program} does not exist"
    return f"{program} is not executable; chmod +x {program}"


def read_cell_options(table: Table, kind: str) -> dict[str, str]:
    """A cell's options of the client, which override the campaign's. Raises `InputError`."""
    _refuse_without_need(table, kind)
    options = _options(table)
    table.done()
    return options


def _refuse_without_need(table: Table, kind: str) -> None:
    if table.data and not KINDS[kind].own_client:
        table.refuse(f'the workload "{kind}" has built-in clients; leave [client] out')


def _options(table: Table) -> dict[str, str]:
    options = table.table("options")
    return {key: options.text(key) for key in options.data}


def _described(client: ClientDescription, directory: Path) -> OwnClient:
    default = OwnClient()
    file_name, _, class_name = (client.class_name or "").rpartition(":")
    return OwnClient(
        client_class=f"{(directory / file_name).resolve()}:{class_name}" if client.class_name else "",
        client_command=tuple(_program(list(client.command), directory)) if client.command else (),
        command_directory=str(directory.resolve()) if client.command else "",
        timeout_s=client.timeout_s or default.timeout_s,
        options=client.options,
    )


def _beside(table: Table, client_class: str, directory: Path) -> str:
    where, colon, name = client_class.rpartition(":")
    if not (where and colon and name.isidentifier()):
        table.refuse(
            f'client_class: {client_class!r} is not of the form "parser.py:Class" or "module:Class"', "client_class"
        )
    if not where.endswith(".py"):
        return client_class
    file = (directory / where).resolve()
    if not file.is_file():
        table.refuse(f"client_class: the file {file} does not exist", "client_class")
    return f"{file}:{name}"


def _program(command: list[str], directory: Path) -> list[str]:
    """A program named with a directory is relative to the campaign; without one it is looked up in PATH."""
    program = command[0]
    return [str((directory / program).resolve()) if "/" in program else program, *command[1:]]


def _parameters(table: Table, kind: WorkloadKind) -> dict[str, int | float | str]:
    values: dict[str, int | float | str] = {}
    for each in kind.parameters:
        if isinstance(each.default, bool):
            values[each.key] = table.boolean(each.key, each.default)
        elif isinstance(each.default, int):
            least, most = int(each.minimum), None if each.maximum is None else int(each.maximum)
            values[each.key] = table.integer(each.key, each.default, minimum=least, maximum=most)
        elif isinstance(each.default, str):
            values[each.key] = table.text(each.key, each.default, choices=each.choices)
        else:
            values[each.key] = table.number(each.key, each.default, minimum=each.minimum, maximum=each.maximum)
    return values


def _placed(table: Table, topology: Topology) -> dict[str, object]:
    """The keys of a kind whose data is in the partitions of a topic."""
    default = Workload()
    assignment = _assignment(table, topology)
    topic = table.text("topic", default.topic)
    partitions = table.integer(
        "partitions", len(assignment) if assignment else default.partitions, minimum=1, maximum=MAX_PARTITIONS
    )
    factor = table.integer(
        "replication_factor",
        len(assignment[0]) if assignment else min(default.replication_factor, topology.nodes),
        minimum=1,
    )
    placement = table.text("placement", default.placement, choices=PLACEMENTS)
    if not is_topic(topic) or len(topic) > _LONGEST_TOPIC:
        table.refuse(
            f"topic: {topic!r} is not a topic's name; use 1 to {_LONGEST_TOPIC} of the characters a-z, A-Z, 0-9, '.', "
            "'_' and '-', and neither '.' nor '..'",
            "topic",
        )
    if assignment and "placement" in table:
        table.refuse("placement: an assignment already says where the replicas are; leave one of them out", "placement")
    if placement == "off-controller" and factor >= topology.nodes:
        table.refuse(
            f"replication_factor: {factor} replicas and the controller need "
            f"{factor + 1} nodes, and [topology] has {topology.nodes}",
            "replication_factor" if "replication_factor" in table else "placement",
        )
    if factor > topology.nodes:
        table.refuse(
            f"replication_factor: {factor} replicas need as many nodes, and [topology] has {topology.nodes}",
            "replication_factor",
        )
    if assignment and (len(assignment), len(assignment[0])) != (partitions, factor):
        table.refuse("assignment: its size contradicts partitions or replication_factor; leave those out", "assignment")
    return {
        "topic": topic,
        "partitions": partitions,
        "replication_factor": factor,
        "assignment": assignment,
        "placement": placement,
        "topic_creation": table.text("topic_creation", default.topic_creation, choices=TOPIC_CREATIONS),
        "topic_settings": read_settings(table, "topic_settings"),
    }


def _assignment(table: Table, topology: Topology) -> tuple[tuple[int, ...], ...] | None:
    rows = table.raw("assignment", None)
    if rows is None:
        return None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        table.refuse("assignment: write one list of node numbers per partition, such as [[1, 2], [2, 3]]", "assignment")
    for row in rows:
        for node in row:
            if isinstance(node, bool) or not isinstance(node, int) or not 1 <= node <= topology.nodes:
                table.refuse(f"assignment: {node!r} is not a node; the nodes are 1 to {topology.nodes}", "assignment")
        if len(set(row)) != len(row):
            table.refuse(f"assignment: {row} names a node twice", "assignment")
        if len(row) != len(rows[0]):
            table.refuse("assignment: every partition needs the same number of replicas", "assignment")
    return tuple(tuple(row) for row in rows)
