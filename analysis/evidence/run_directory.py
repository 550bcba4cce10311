"""Reads a run's directory: its description (`run.toml`) and the nodes' protocol events."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from analysis.evidence.run_toml import (
    KAFKA_FORMAT,
    NO_FORMAT,
    RANDOM,
    SCHEDULE,
    SETTLED_LATE,
    STEPS,
    Requirements,
    WorkloadTable,
    layers,
    read,
    settings_of,
)
from analysis.verdict import Expectation
from history import strict_json, strict_toml
from history.regular_files import read_bytes, read_text
from history.topic_folders import is_topic
from installation.sanitize import plain

SHARE_DIGITS: Final = 3
"""Decimal places of the achieved share in a verdict's statistics."""
_CONFIGURES: Final = re.compile(r"\(configure [^:]+: (.*?)\)")
_CONFIGURES_TOPIC: Final = re.compile(r"\((configure the topic: .*?)\)")


class RunDirectoryError(Exception):
    """A directory that is not a run, or whose description cannot be read; the message names the file and the remedy."""


@dataclass(frozen=True)
class RunDescription:
    """What `run.toml` says about the run: one cell with one seed.

    `run`: the name of the run's directory; `id`: its name when the run was made. `kind`: the workload's, empty if
    unknown. `judge`: what the clients' operations act on; it selects the checker. `time_scale`: how much slower than
    others the world was; every time bound is multiplied by it. `replica_format`: of the nodes' files,
    `KAFKA_FORMAT` or `NO_FORMAT`; `sequences`: one of `FIRST_SEQUENCES`. `records`: the form of records, one of
    `history.RECORD_FORMS`, empty if unknown; `record_bytes`: the size of each, 0 if unknown. `settings`: the services'
    settings, a table for each role, one for each node with settings of its own, one for the topic, and one for what the
    script changes; `topic_settings`: that of the topic; `node_settings`: those of each node. `traced_settings`: those
    of the workload that leave traces in the files. `configuration`: for each node with configuration files, their lines
    as glob patterns, by the file's name below `nodes/<node>/`. `node_names`: in the order of their numbers, which start
    at 1; `roles`: by node name. `topic`: empty if the data is in no topic.
    `partitions`: the topic's number of partitions. `keys`: the number of registers, 0 without registers.
    `own_parameters`: those of a workload of the user's own. `assignment`: each partition's replicas by node number, the
    preferred leader first; None if it was decided only when the topic was created (then the journal has it), or without
    partitions. `clients`: those that every run of the plan starts. `planned_changes`, `planned_queries`: the number of
    operations that the load issues at full rate. `planned_load_s`: how long it lasts at least; 0 if a script decides
    that. `deletes_every_s`: the mean time between two deletions of records by a producer, 0 without any.
    `planned_faults`: the kinds of a random schedule; each one occurs; `steps`: those of a script. `checkers`: by file,
    the texts of the campaign's own checkers. `profile`, `timeouts_s`: drawn from the seed, else empty. `defects`: what
    run.toml lacks or contradicts, as sentences; a run with defects proves nothing.
    """

    run: str
    id: str
    campaign: str
    cell: str
    seed: int
    world: str
    time_scale: float
    nodes: int
    mutants: tuple[str, ...]
    expected: Expectation
    requirements: Requirements
    limits: tuple[str, ...]
    replay: str
    versions: Mapping[str, str]
    kind: str
    judge: str
    replica_format: str
    sequences: str
    records: str
    record_bytes: int
    settings: tuple[Mapping[str, str], ...]
    topic_settings: Mapping[str, str]
    traced_settings: Mapping[str, Any]
    node_settings: Mapping[str, Mapping[str, str]]
    configuration: Mapping[str, Mapping[str, tuple[str, ...]]]
    metadata_format: str
    metadata_traced: bool
    node_names: tuple[str, ...]
    roles: Mapping[str, str]
    topic: str
    partitions: int
    assignment: tuple[tuple[int, ...], ...] | None
    keys: int
    own_parameters: Mapping[str, Any]
    clients: tuple[str, ...]
    planned_changes: int
    planned_queries: int
    planned_load_s: float
    deletes_every_s: float
    planned_faults: tuple[str, ...]
    steps: tuple[str, ...]
    checkers: Mapping[str, str]
    defects: tuple[str, ...]
    profile: str = ""
    timeouts_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_replica_files(self) -> bool:
        """Whether its replicas' files have a reader."""
        return self.replica_format == KAFKA_FORMAT


def describe(run_dir: Path) -> RunDescription:
    """Read `run.toml`. Raises `RunDirectoryError` when it is missing or is not strict TOML; all other errors in it are
    in the description's `defects`."""
    path = run_dir / "run.toml"
    try:
        content, defects = read(strict_toml.decode(read_text(path)))
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{run_dir} is not a run: it has no run.toml; runs are in store/<campaign>/<run>"
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path}: {error}") from error
    workload, nemesis, roles = content.workload, content.nemesis, content.system.roles
    partitioned = bool(workload.topic or workload.partitions)
    steps = nemesis.steps if nemesis.kind == STEPS else ()
    description = RunDescription(
        run=run_dir.name,
        id=content.run,
        campaign=content.campaign or run_dir.parent.name,
        cell=content.cell,
        seed=content.seed,
        world=content.world,
        time_scale=content.time_scale,
        nodes=content.topology.nodes,
        mutants=content.mutants,
        expected=content.expect,
        requirements=content.checks,
        limits=content.limits,
        replay=content.replay,
        versions=content.versions,
        kind=workload.kind,
        judge=workload.judge,
        replica_format=content.replicas.format,
        sequences=content.replicas.sequences,
        records="" if content.replicas.format == NO_FORMAT else content.replicas.records,
        record_bytes=workload.record_bytes,
        settings=(*layers(content.settings), *filter(None, (workload.topic_settings, settings_in(steps)))),
        topic_settings=workload.topic_settings,
        traced_settings=_traced(workload),
        node_settings={node: settings_of(content.settings, role, node) for node, role in roles.items()},
        configuration=content.configuration,
        metadata_format=content.metadata.format,
        metadata_traced=content.metadata.traced,
        node_names=tuple(roles),
        roles=roles,
        topic=workload.topic,
        partitions=workload.partitions,
        assignment=workload.assignment if partitioned and workload.placement != SETTLED_LATE else None,
        keys=workload.keys,
        own_parameters=workload.own,
        clients=content.plan.clients,
        planned_changes=content.plan.changes,
        planned_queries=content.plan.queries,
        planned_load_s=0.0 if nemesis.kind == STEPS else workload.duration_s,
        deletes_every_s=workload.deletes_every_s,
        planned_faults=nemesis.faults if nemesis.kind in (RANDOM, SCHEDULE) else (),
        steps=steps,
        checkers=content.checkers,
        defects=defects,
        profile=content.profile,
        timeouts_s=content.timeouts_s,
    )
    return replace(description, defects=(*defects, *_contradictions(description)))


def _contradictions(description: RunDescription) -> Iterator[str]:
    """Contradictions within the description."""
    names = description.node_names
    if names and description.nodes != len(names):
        yield f"run.toml: [topology] nodes is {description.nodes}, but [system.roles] has {len(names)}"
    if description.judge == "log" and not description.partitions:
        yield "run.toml: the workload is on a log, but [workload] names no partitions"
    if description.topic and not is_topic(description.topic):
        yield f"run.toml: [workload] topic is {description.topic!r}, which is not a valid name of a topic"
    for name in names:
        if "/" in name or name in ("", ".", ".."):
            yield f"run.toml: [system.roles] has {name!r}: a node's name is that of its directory in nodes/"
    if len(set(description.clients)) != len(description.clients) or not description.clients:
        yield "run.toml: [plan] clients needs at least one name, and each once"
    assignment = description.assignment
    if assignment is None:
        return
    if len(assignment) != description.partitions:
        yield f"run.toml: [workload] partitions is {description.partitions}, but assignment has {len(assignment)}"
    for partition, ids in enumerate(assignment):
        if not ids or len(set(ids)) != len(ids) or not set(ids) <= set(range(1, len(names) + 1)):
            yield f"run.toml: partition {partition} is assigned to {plain(ids)}: nodes 1 .. {len(names)}, each once"


def node_names(run_dir: Path) -> list[str]:
    """The nodes whose files were collected, sorted."""
    root = run_dir / "nodes"
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def settings_in(steps: Iterable[str]) -> dict[str, str]:
    """The settings that steps of a script change, as the steps describe themselves: `configure the topic: a=1, b=2`."""
    changed = [match[1] for step in steps if (match := _CONFIGURES.search(step))]
    return dict(pair.split("=", 1) for changes in changed for pair in changes.split(", ") if "=" in pair)


def topic_settings_in(steps: Iterable[str]) -> dict[str, str]:
    """Those of `settings_in` that are changed for the topic."""
    return settings_in(f"({match[1]})" for step in steps if (match := _CONFIGURES_TOPIC.search(step)))


def _traced(workload: WorkloadTable) -> dict[str, Any]:
    """The settings of the workload that leave traces in the files, without those that its kind does not have."""
    settings: dict[str, Any] = {"idempotent": workload.idempotent, "compression": workload.compression}
    settings |= {"batch_records": workload.batch_records}
    return {name: value for name, value in settings.items() if value not in (None, "", 0) or value is False}


def moment(event: Mapping[str, Any]) -> int:
    """When an event happened, ns. An event that an observer stamped has the observer's time, because a node's clock may
    have been set wrong by a fault."""
    return int(event.get("seen", event["wall"]))


NodeEvents = Mapping[str, Sequence[Mapping[str, Any]]]
"""The result of `node_events` by node."""


def events_by_node(run_dir: Path) -> NodeEvents:
    """The protocol events of each node whose files were collected."""
    return {node: node_events(run_dir, node) for node in node_names(run_dir)}


def node_events(run_dir: Path, node: str) -> list[dict[str, Any]]:
    """A node's protocol events in order; see `numbered_events`."""
    return [event for _, event in numbered_events(run_dir, node)]


def numbered_events(run_dir: Path, node: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """A node's protocol events in order, each with the number of its line, from 1. A torn last line (the node was
    killed while writing), an unreadable file and a line that fits no table are left out: these events are for display
    only. `traces` checks them as evidence."""
    try:
        data = read_bytes(run_dir / "nodes" / node / "events.jsonl")
    except OSError:
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            event = strict_json.decode(line)
        except ValueError:
            continue
        if isinstance(event, dict) and _can_be_shown(event):
            yield number, event | {"on": node}


def _can_be_shown(event: Mapping[str, Any]) -> bool:
    """Whether the fields that all events share have the right types and fit into the columns of a table."""
    return (
        _is_text(event.get("event"))
        and fits(event.get("wall"))
        and fits(event.get("seen", 0))
        and (event.get("topic") is None or _is_text(event["topic"]))
        and (event.get("partition") is None or fits(event["partition"], bits=32))
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()  # JSON accepts half a surrogate pair, UTF-8 does not


def fits(value: Any, *, bits: int = 64) -> bool:
    """Whether a value is a number that fits into this number of bits."""
    return type(value) is int and abs(value) < 1 << (bits - 1)
