"""Reads the clients' part of a campaign: `[workload]`, with the keys of its kind, and `[client]`."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from analysis.evidence.run_toml import OWN_CLASS
from history.own_classes import OwnClassError
from history.regular_files import read_text
from orchestrator.campaign.model import ClientKeys, Topology
from systems import InputError, System
from systems.declared_tables import read, read_keys, read_optional
from systems.description import FILE_NAME, ClientDescription
from systems.toml_tables import Table, place_of_key
from workloads import objects
from workloads.api import Client
from workloads.kind import OWN, SHARED_KEYS, LoadKeys, Workload, WorkloadSource
from workloads.kinds import KINDS
from workloads.kinds.own import PARAMETERS, SHARE
from workloads.loaded_workload import LoadedWorkload
from workloads.objects import OBJECTS
from workloads.settings import OwnClient
from workloads.user_module import ClientClassError, load_class

WORKLOAD_WORDS: Final = {"kind": (KINDS.keys() | OBJECTS.keys()) - {OWN}}
_OBJECTS_FILE: Final = Path(objects.__file__)
_OWN_CLASS: Final = re.compile(OWN_CLASS)


def read_workload(table: Table, topology: Topology, beside: Path) -> Workload:
    """`beside`: the directory of the campaign's file. Raises `InputError`."""
    named = table.data.get("kind")
    if isinstance(named, str) and _OWN_CLASS.fullmatch(named):
        return _own_workload(table, named, beside / named.rpartition(":")[0])
    word = read_keys(table, LoadKeys, WORKLOAD_WORDS, only={"kind"})["kind"]
    if word in OBJECTS:
        return _own_workload(table, f"{_OBJECTS_FILE.name}:{OBJECTS[word][0].__name__}", _OBJECTS_FILE)
    kind = KINDS[word]
    parameters = {each.key: read_optional(table, each.key, each.shape, each.default) for each in kind.parameters}
    if kind.partitioned:
        workload = replace(_placed(table, topology), parameters=parameters)
    else:
        workload = Workload(**read_keys(table, LoadKeys, WORKLOAD_WORDS), topic="", partitions=0, parameters=parameters)
    if problem := kind.problem(workload.parameters):
        table.refuse(problem)
    table.done()
    return workload


def model_of(workload: Workload) -> str:
    """The model that judges a workload on objects; empty for any other one."""
    if workload.source is None or workload.source.path != _OBJECTS_FILE:
        return ""
    return next(model for class_, model in OBJECTS.values() if workload.source.use.endswith(f":{class_.__name__}"))


def _own_workload(table: Table, use: str, path: Path) -> Workload:
    """A workload whose class is in a file. The share of queries in it is known when its client is (`with_share`)."""
    try:
        text = read_text(path)
        loaded = LoadedWorkload.of_text(use, text)
    except OSError as error:
        table.refuse(f"kind: {path}: {error.strerror or error}; name a file relative to the campaign's", "kind")
    except ValueError as error:
        table.refuse(f"kind: {path}: {error}; save it as UTF-8", "kind")
    except OwnClassError as error:
        table.refuse(f"kind: {error}", "kind")
    kind = KINDS[OWN]
    if taken := sorted(set(loaded.keys) & (SHARED_KEYS | {parameter.key for parameter in kind.parameters})):
        table.refuse(f"kind: {use} declares {taken[0]!r}, a key of every such workload; choose another name", "kind")
    of_kind = {each.key: read_optional(table, each.key, each.shape, each.default) for each in kind.parameters}
    own_keys = {key: table.raw(key, None) for key in loaded.keys}
    own_keys = {key: value for key, value in own_keys.items() if key in table}
    for key, value in own_keys.items():
        try:
            loaded.parameters({key: value})
        except ValueError as error:
            table.refuse(str(error), key)
    parameters = {**of_kind, PARAMETERS: loaded.parameters(own_keys)}
    keys = read_keys(table, LoadKeys, only=LoadKeys.__struct_fields__[1:])
    table.raw("kind", None)
    table.done()
    source = WorkloadSource(use, path, text)
    return Workload(**keys, kind=OWN, topic="", partitions=0, parameters=parameters, source=source)


def with_share(table: Table, workload: Workload, client: OwnClient, model: str) -> Workload:
    """A workload of the user's own, with the share of queries in its first operations. `model`: that judges it, may be
    empty. Raises `InputError` for a mistake in these, or a client that is not a class with a method for each
    function."""
    assert workload.source is not None
    if not client.client_class:
        table.refuse(f"kind: {workload.named} needs a client that is a class: client_class in [client]", "kind")
    try:
        loaded = LoadedWorkload.of_text(workload.source.use, workload.source.text)
        rehearsal = loaded.rehearse(workload.parameters[PARAMETERS], load_class(client.client_class, Client))
    except (OwnClassError, ClientClassError) as error:
        table.refuse(f"kind: {error}", "kind")
    if model:
        from analysis.engines.own_model import functions_of  # it loads Arrow

        functions = functions_of(model)
        if strange := sorted(set(rehearsal.functions) - set(functions)):
            known = ", ".join(functions)
            table.refuse(f"kind: {workload.named} draws {strange[0]!r}; the model {model!r} has only {known}", "kind")
    return replace(workload, parameters={**workload.parameters, SHARE: rehearsal.queries_share})


def read_client(table: Table, kind: str, beside: Path, system: System) -> OwnClient:
    """The user-defined client: the campaign's own, whose file is relative to the campaign's, else the one that the
    system's description names, with the campaign's timeout and options. Raises `InputError`."""
    _refuse_without_need(table, kind)
    if not KINDS[kind].own_client:
        return OwnClient()
    given = read(table, ClientKeys)
    client_class, command = given.client_class, given.client_command
    described = system.description.client
    base = OwnClient()
    if not client_class and not command and (described.class_name or described.command):
        base = _described(described, system.description.directory)
    elif ("client_class" in table) == ("client_command" in table):
        table.refuse(
            f'the workload "{kind}" needs a client: in [client] of {system.name}\'s description class = '
            '"parser.py:Class" or command = ["./program", ...], or here client_class or client_command'
        )
    client = OwnClient(
        client_class=_beside(table, client_class, beside) if client_class else base.client_class,
        client_command=tuple(_program(command, beside)) if command else base.client_command,
        command_directory=str(beside.resolve()) if command else base.command_directory,
        timeout_s=given.timeout_s or base.timeout_s,
        options={**base.options, **given.options},
    )
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
    options: dict[str, str] = read_keys(table, ClientKeys, only={"options"})["options"]
    table.done()
    return options


def _refuse_without_need(table: Table, kind: str) -> None:
    if table.data and not KINDS[kind].own_client:
        table.refuse(f'the workload "{kind}" has built-in clients; leave [client] out')


def _described(client: ClientDescription, directory: Path) -> OwnClient:
    default = OwnClient()
    file_name, _, class_name = (client.class_name or "").rpartition(":")
    return OwnClient(
        client_class=f"{(directory / file_name).resolve()}:{class_name}" if client.class_name else "",
        client_command=tuple(_program(client.command, directory)) if client.command else (),
        command_directory=str(directory.resolve()) if client.command else "",
        timeout_s=client.timeout_s or default.timeout_s,
        options=client.options,
    )


def _beside(table: Table, client_class: str, directory: Path) -> str:
    where, _, name = client_class.rpartition(":")
    if not where.endswith(".py"):
        return client_class
    file = (directory / where).resolve()
    if not file.is_file():
        table.refuse(f"client_class: the file {file} does not exist", "client_class")
    return f"{file}:{name}"


def _program(command: Sequence[str], directory: Path) -> list[str]:
    """A program named with a directory is relative to the campaign; without one it is looked up in PATH."""
    program = command[0]
    return [str((directory / program).resolve()) if "/" in program else program, *command[1:]]


def _placed(table: Table, topology: Topology) -> Workload:
    """The workload of a kind whose data is in the partitions of a topic, without the kind's own keys."""
    workload = Workload(**read_keys(table, Workload, WORKLOAD_WORDS))
    assignment = workload.assignment
    if assignment:
        _check_assignment(table, assignment, topology)
    if "partitions" not in table and assignment:
        workload = replace(workload, partitions=len(assignment))
    if "replication_factor" not in table:
        factor = len(assignment[0]) if assignment else min(workload.replication_factor, topology.nodes)
        workload = replace(workload, replication_factor=factor)
    factor = workload.replication_factor
    if assignment and "placement" in table:
        table.refuse("placement: an assignment already says where the replicas are; leave one of them out", "placement")
    if workload.placement == "off-controller" and factor >= topology.nodes:
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
    if assignment and (len(assignment), len(assignment[0])) != (workload.partitions, factor):
        table.refuse("assignment: its size contradicts partitions or replication_factor; leave those out", "assignment")
    return workload


def _check_assignment(table: Table, assignment: Sequence[Sequence[int]], topology: Topology) -> None:
    for row in assignment:
        for node in row:
            if node > topology.nodes:
                table.refuse(f"assignment: {node!r} is not a node; the nodes are 1 to {topology.nodes}", "assignment")
        if len(set(row)) != len(row):
            table.refuse(f"assignment: {list(row)} names a node twice", "assignment")
        if len(row) != len(assignment[0]):
            table.refuse("assignment: every partition needs the same number of replicas", "assignment")
