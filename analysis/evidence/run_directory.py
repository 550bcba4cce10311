"""Reads a run's directory: its description (`run.toml`) and the nodes' protocol events."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict, replace

from analysis.evidence import run_toml
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


class RunDescription(run_toml.RunToml, frozen=True, kw_only=True):
    """The content of `run.toml`, and what follows from it: one cell with one seed."""

    name: str
    """The name of the run's directory; `run` is its name when the run was made."""
    defects: tuple[str, ...] = ()
    """What run.toml lacks or contradicts, as sentences; a run with defects proves nothing."""

    @property
    def has_replica_files(self) -> bool:
        """Whether its replicas' files have a reader."""
        return self.replicas.format == run_toml.KAFKA_FORMAT

    @property
    def records(self) -> str:
        """The form of records, one of `history.RECORD_FORMS`; empty if unknown."""
        return "" if self.replicas.format == run_toml.NO_FORMAT else self.replicas.records

    @property
    def setting_layers(self) -> tuple[Mapping[str, str], ...]:
        """The services' settings, a table for each role, one for each node with settings of its own, one for the topic,
        and one for what the script changes."""
        return (*run_toml.layers(self.settings), *filter(None, (self.workload.topic_settings, settings_in(self.steps))))

    @property
    def node_settings(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of each node."""
        return {node: run_toml.settings_of(self.settings, role, node) for node, role in self.system.roles.items()}

    @property
    def node_names(self) -> tuple[str, ...]:
        """In the order of the nodes' numbers, which start at 1."""
        return tuple(self.system.roles)

    @property
    def assignment(self) -> tuple[tuple[int, ...], ...] | None:
        """Each partition's replicas by node number, the preferred leader first; None if it was decided only when the
        topic was created (then the journal has it), or without partitions."""
        workload = self.workload
        partitioned = bool(workload.topic or workload.partitions)
        return workload.assignment if partitioned and workload.placement != run_toml.SETTLED_LATE else None

    @property
    def planned_load_s(self) -> float:
        """How long the load lasts at least; 0 if a script decides that."""
        return 0.0 if self.nemesis.kind == run_toml.STEPS else self.workload.duration_s

    @property
    def planned_faults(self) -> tuple[str, ...]:
        """The kinds of a random schedule or of a given one; each one occurs."""
        return self.nemesis.faults if self.nemesis.kind in (run_toml.RANDOM, run_toml.SCHEDULE) else ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of a script."""
        return self.nemesis.steps if self.nemesis.kind == run_toml.STEPS else ()

    @property
    def traced_settings(self) -> dict[str, Any]:
        """The settings of the workload that leave traces in the files, without those that its kind does not have."""
        workload = self.workload
        settings: dict[str, Any] = {"idempotent": workload.idempotent, "compression": workload.compression}
        settings |= {"batch_records": workload.batch_records}
        return {name: value for name, value in settings.items() if value not in (None, "", 0) or value is False}


def describe(run_dir: Path) -> RunDescription:
    """Read `run.toml`. Raises `RunDirectoryError` when it is missing or is not strict TOML; all other errors in it are
    in the description's `defects`."""
    path = run_dir / "run.toml"
    try:
        content, defects = run_toml.read(strict_toml.decode(read_text(path)))
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{run_dir} is not a run: it has no run.toml; runs are in store/<campaign>/<run>"
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path}: {error}") from error
    description = RunDescription(name=run_dir.name, **asdict(content))
    return replace(
        description,
        campaign=content.campaign or run_dir.parent.name,
        defects=(*defects, *_contradictions(description)),
    )


def _contradictions(description: RunDescription) -> Iterator[str]:
    """Contradictions within the description."""
    names = description.node_names
    if names and description.topology.nodes != len(names):
        yield f"run.toml: [topology] nodes is {description.topology.nodes}, but [system.roles] has {len(names)}"
    if description.workload.judge == "log" and not description.workload.partitions:
        yield "run.toml: the workload is on a log, but [workload] names no partitions"
    if description.workload.topic and not is_topic(description.workload.topic):
        yield f"run.toml: [workload] topic is {description.workload.topic!r}, which is not a valid name of a topic"
    for name in names:
        if "/" in name or name in ("", ".", ".."):
            yield f"run.toml: [system.roles] has {name!r}: a node's name is that of its directory in nodes/"
    if len(set(description.plan.clients)) != len(description.plan.clients) or not description.plan.clients:
        yield "run.toml: [plan] clients needs at least one name, and each once"
    assignment = description.assignment
    if assignment is None:
        return
    count = description.workload.partitions
    if len(assignment) != count:
        yield f"run.toml: [workload] partitions is {count}, but assignment has {len(assignment)}"
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
