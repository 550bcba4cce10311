"""Collects what the page of a run shows. Each part is read on its own: a part that is damaged or absent is named in
`RunPage.missing`, and the others are shown."""

import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from analysis.core.anomaly import Anomaly
from analysis.evidence.offset_history import assignments, held_partitions
from analysis.evidence.run_directory import numbered_events
from analysis.evidence.run_toml import KAFKA_FORMAT
from analysis.page.run_facts import (
    Lead,
    NumberedEvents,
    PartitionSegments,
    RunFacts,
    nodes_of_endpoints,
    run_facts,
    segments_of,
)
from analysis.page.story import (
    EndedProcess,
    Focus,
    StepRecord,
    Story,
    StoryItem,
    StoryKind,
    ended_processes,
    event_items,
    journal_items,
    log_items,
    steps_of,
    story_of,
)
from analysis.page.timeline_parts import timeline_of
from analysis.page.witness_text import begins_at, ends_at, operation_text
from analysis.verdict import Verdict
from history import strict_json, strict_toml
from history.checksummed_lines import read_lines
from history.journal.reader import read_journal
from history.journal.service_events import ELECTION
from history.journal.timeline import RunClock
from history.journal.writer import FILE_NAME
from history.record.offset_record import COMMIT, DELIVER, FETCH, GROUPS, OffsetOperation, OffsetRecord, read_offsets
from history.record.schemas import CHANGES, INF, MISMATCH, NAMES
from history.regular_files import open_regular, read_bytes, read_text
from history.time_scale import ORDINARY
from installation.sanitize import brief, plain

# ---- What a run tested, for its page: the system with its version, its settings, the cluster, the load, the
# campaign.

_LOAD: Final = (
    "kind", "topic", "partitions", "keys", "producers", "consumers", "rate", "duration_s", "operations", "record_bytes",
    "idempotent", "compression", "group", "members",
)  # fmt: skip
_LABELS: Final = {"duration_s": "duration", "record_bytes": "record size"}
_UNITS: Final = {"duration_s": " s", "rate": " / s", "record_bytes": " bytes"}
_LOG_START: Final = 1 << 20
_CONFIG_VALUES: Final = re.compile(r"Config values: *\n(?P<lines>(?:[ \t]+[\w.]+ = [^\n]*\n)+)")
_CLUSTER: Final = ("nodes", "filesystem", "replication_factor")


@dataclass(frozen=True)
class Tested:
    """`system`: its title and version. `description`: the campaign's. `cluster`, `load`: key and value. `settings`: the
    table (a role, a node of it, or the topic), key, value, in the order of the file. `node_files`: the configuration
    files of each node, by `node/file`, as lines with `*` for parts that differ from run to run. `defaults`: all
    settings of the system with the values that apply where the campaign sets nothing, as role, key, value. `logged`:
    the settings that a node's program wrote to its log, as node, key, value. `cells`: the keys that differ between
    the campaign's cells, with the value in this cell and those in the others. `nodes`, `judge`: by run.toml.
    `has_replicas`: whether the files of its replicas have a reader."""

    system: str = ""
    description: str = ""
    started: str = ""
    cluster: tuple[tuple[str, str], ...] = ()
    load: tuple[tuple[str, str], ...] = ()
    cells: tuple[tuple[str, str, str], ...] = ()
    settings: tuple[tuple[str, str, str], ...] = ()
    node_files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    defaults: tuple[tuple[str, str, str], ...] = ()
    logged: tuple[tuple[str, str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    judge: str = ""
    has_replicas: bool = False


def tested(run_dir: Path) -> Tested:
    """From run.toml and campaign.toml. Raises `OSError` and `ValueError` for a run.toml that cannot be read; a
    campaign.toml that cannot be read has no description."""
    content = strict_toml.decode(read_text(run_dir / "run.toml"))
    system, workload = _table(content, "system"), _table(content, "workload")
    name = str(system.get("title") or system.get("name") or "")
    version = str(system.get("version") or "")
    if not version and system.get("name") == "brownout":
        version = str(_table(content, "versions").get("brownout", ""))
    return Tested(
        system=f"{name} {version or '(version not recorded)'}" if name else "",
        description=_description(run_dir / "campaign.toml"),
        started=str(content.get("started", "")),
        cluster=(*_pairs(_table(content, "topology"), _CLUSTER), *_roles(system), *_slower(content)),
        load=(
            *_pairs(workload, (*_LOAD, *sorted(workload.keys() - {*_LOAD, "clients", "judge"}))),
            *_clients(_table(content, "plan")),
        ),
        cells=tuple(_cells(run_dir / "campaign.toml", str(content.get("cell", "")))),
        settings=(
            *_settings("", _table(content, "settings")),
            *(("topic", key, strict_toml.written(value)) for key, value in _table(workload, "topic_settings").items()),
            *(("workload", key, strict_toml.written(value)) for key, value in _table(workload, "own").items()),
        ),
        node_files=tuple(_node_files(_table(content, "configuration"))),
        defaults=tuple(_settings("", _table(content, "defaults"))),
        logged=tuple(_logged(run_dir)),
        nodes=tuple(map(str, _table(system, "roles"))),
        judge=str(workload.get("judge", "")),
        has_replicas=_table(content, "replicas").get("format") == KAFKA_FORMAT,
    )


def _logged(run_dir: Path) -> Iterator[tuple[str, str, str]]:
    """The first block `...Config values:` of the first node's log that has one: Apache Kafka writes all its settings,
    defaults included, when it starts."""
    for log in sorted(run_dir.glob("nodes/*/service.log")):
        try:
            with open_regular(log) as file:
                start = file.read(_LOG_START).decode(errors="replace")
        except OSError:
            continue
        if block := _CONFIG_VALUES.search(start):
            for line in block["lines"].splitlines():
                key, _, value = line.strip().partition(" = ")
                yield log.parent.name, key, value
            return


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _pairs(table: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key in keys:
        if key in table and not isinstance(table[key], dict) and (key, table[key]) != ("operations", 0):
            yield _LABELS.get(key, key.replace("_", " ")), plain(table[key]) + _UNITS.get(key, "")


def _slower(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The time scale of a world that is slower than the machine of the orchestrator."""
    if (scale := content.get("time_scale", ORDINARY)) != ORDINARY:
        yield "time scale", f"{scale}: the times in the settings are multiplied by it"


def _roles(system: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    by_role: dict[str, list[str]] = {}
    for node, role in _table(system, "roles").items():
        by_role.setdefault(str(role), []).append(node)
    for role, nodes in by_role.items():
        yield role, ", ".join(nodes)


def _settings(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings(f"{prefix} {key}".strip(), value)
        else:
            yield prefix, key, strict_toml.written(value)


def _node_files(configuration: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node, files in configuration.items():
        for file, lines in files.items() if isinstance(files, dict) else ():
            yield f"{node}/{file}", tuple(str(line) for line in lines if isinstance(lines, list) and line)


def _clients(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    names = plan.get("clients")
    if isinstance(names, list):
        yield "clients", f"{len(names)} ({brief(plain(names), 200)})"


def _cells(path: Path, cell: str) -> Iterator[tuple[str, str, str]]:
    """The keys that differ between the campaign's cells: each with its value in this cell, and in the others."""
    try:
        tables = strict_toml.decode(read_text(path)).get("cell", [])
    except (OSError, ValueError):
        return
    cells = {str(table.get("name", "")): dict(_flat("", table)) for table in tables if isinstance(table, dict)}
    keys = dict.fromkeys(key for values in cells.values() for key in values if key != "name")
    for key in keys:
        values = {name: values.get(key, "as the campaign") for name, values in cells.items()}
        if cell in cells and len(set(values.values())) > 1:
            remainder = [f"{name}: {value}" for name, value in values.items() if name != cell]
            yield key, values[cell], "; ".join(remainder)


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a table and of the tables in it, with dots, and their values."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", strict_toml.written(value)


def _description(path: Path) -> str:
    try:
        description = strict_toml.decode(read_text(path)).get("description", "")
    except (OSError, ValueError):
        return ""
    return description if isinstance(description, str) else ""


# ---- What a run's page shows about its consumer group: partitions held by members, commits, and lag over time.

MOST_POINTS: Final = 120
MOST_PARTITIONS: Final = 64
WIDTH, HEIGHT = 240, 36
"""Size of a lag plot in its own units."""


@dataclass(frozen=True)
class MemberHolding:
    """A member's time with a partition, in seconds since the start."""

    member: str
    partition: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class PartitionCommits:
    """A partition of the group: the number of acknowledged commits, the last committed and the last delivered offset
    (-1: none), the largest lag in records, and the lag over time as points of an SVG polyline."""

    partition: int
    commits: int
    unanswered: int
    committed: int
    delivered: int
    largest_lag: int
    points: str


@dataclass(frozen=True)
class GroupView:
    """`assignments`: how often a member was given partitions. `left_out`: partitions without a row."""

    members: tuple[str, ...]
    assignments: int
    holdings: tuple[MemberHolding, ...]
    partitions: tuple[PartitionCommits, ...]
    left_out: int


def group_view(group: OffsetRecord, clock: RunClock, end_s: float) -> GroupView | None:
    """The view of a group; None if no member recorded anything."""
    if not group.clients:
        return None
    holdings = (
        MemberHolding(
            holding.member,
            holding.partition,
            clock.of_monotonic(holding.since),
            end_s if holding.until >= INF else clock.of_monotonic(holding.until),
        )
        for holding in held_partitions(group)
    )
    numbers = sorted({operation.partition for f in (COMMIT, FETCH, DELIVER) for operation in group.of(f)})
    return GroupView(
        members=group.clients,
        assignments=assignments(group),
        holdings=tuple(sorted(holdings, key=lambda holding: (holding.member, holding.start_s, holding.partition))),
        partitions=tuple(_partition(number, group, clock, end_s) for number in numbers[:MOST_PARTITIONS]),
        left_out=max(len(numbers) - MOST_PARTITIONS, 0),
    )


def _partition(number: int, group: OffsetRecord, clock: RunClock, end_s: float) -> PartitionCommits:
    commits = [commit for commit in group.of(COMMIT) if commit.partition == number]
    deliveries = [delivery for delivery in group.of(DELIVER) if delivery.partition == number]
    lags = lag_over_time(
        [(delivery.ret, delivery.offset + 1) for delivery in deliveries],
        [answer for answer in commits if answer.acknowledged],
    )
    acknowledged = [answer for answer in commits if answer.acknowledged]
    return PartitionCommits(
        partition=number,
        commits=len(acknowledged),
        unanswered=len(commits) - len(acknowledged),
        committed=max((answer.offset for answer in acknowledged), default=-1),
        delivered=max((delivery.offset for delivery in deliveries), default=-1),
        largest_lag=max((lag for _, lag in lags), default=0),
        points=_points([(clock.of_monotonic(at), lag) for at, lag in lags], end_s),
    )


def lag_over_time(delivered: Sequence[tuple[int, int]], commits: Sequence[OffsetOperation]) -> list[tuple[int, int]]:
    """After each delivery and each acknowledged commit: the number of records between the highest delivered offset and
    the highest committed offset. Times in ns."""
    changes = [(at, end, 0) for at, end in delivered] + [(commit.ret, 0, commit.offset) for commit in commits]
    lags: list[tuple[int, int]] = []
    end = committed = 0
    for at, end_offset, offset in sorted(changes):
        end, committed = max(end, end_offset), max(committed, offset)
        lags.append((at, max(end - committed, 0)))
    return lags


def _points(lags: Sequence[tuple[float, int]], end_s: float) -> str:
    """The largest lag of each part of the run as points `x,y`, from left to right."""
    highest = max((lag for _, lag in lags), default=0) or 1
    parts: dict[int, int] = {}
    for at_s, lag in lags:
        part = min(max(int(at_s / max(end_s, 1e-3) * MOST_POINTS), 0), MOST_POINTS)
        parts[part] = max(parts.get(part, 0), lag)
    room = HEIGHT - 4
    scaled = ((part / MOST_POINTS * WIDTH, 2 + room - lag / highest * room) for part, lag in sorted(parts.items()))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in scaled)


T = TypeVar("T")
MOST_LOG_LINES: Final = 500_000
MOST_LANES: Final = 9
CLIENTS: Final = "clients"
_CHANGES: Final = frozenset(NAMES[f] for f in CHANGES)


@dataclass
class RunPage:
    """`clock`: of all times on the page. `endpoints`: the node of each `host:port` that clients were given. `events`:
    by node, each with its line's number. `facts`: leaders, faults and ends of processes. `story`, `timeline`, `group`:
    None without data. `missing`: what the directory lacks, as sentences. `segments`: those of remote storage, by
    partition."""

    tested: Tested = field(default_factory=Tested)
    clock: RunClock = field(default_factory=RunClock)
    journal: Sequence[Mapping[str, Any]] = ()
    endpoints: Mapping[str, str] = field(default_factory=dict)
    events: NumberedEvents = field(default_factory=dict)
    facts: RunFacts = field(default_factory=RunFacts)
    steps: Sequence[StepRecord] = ()
    ended: Sequence[EndedProcess] = ()
    story: Story | None = None
    timeline: dict[str, Any] | None = None
    group: GroupView | None = None
    segments: Sequence[PartitionSegments] = ()
    missing: list[str] = field(default_factory=list)

    def part(self, subject: str, make: Callable[[], T], otherwise: T) -> T:
        """The result of `make`. If it raises, `otherwise`, and the reason is in `missing`: the page is for people who
        look for a reason, so no damage may prevent it."""
        try:
            return make()
        except Exception as error:
            self.missing.append(f"{subject}: {type(error).__name__}: {error}")
            return otherwise

    @property
    def has_replicas(self) -> bool:
        """Whether the page has the elections and logs of replicas: their files have a reader, or they recorded them."""
        return self.tested.has_replicas or self.facts.is_recorded

    @property
    def has_leaders(self) -> bool:
        """Whether a lane of the story can be a leader: by protocol events, or by lines of a log that name it."""
        return self.has_replicas or any(line.get("name") == ELECTION for line in self.journal)

    @property
    def place(self) -> str:
        """What an operation is about."""
        return {"log": "partition", "register": "key", "own": "function"}.get(self.tested.judge, "partition or key")

    def node_at(self, endpoint: object) -> str:
        """The node with this endpoint, or the endpoint if the run's journal names no such node."""
        return self.endpoints.get(str(endpoint), str(endpoint))

    def answered_by(self, row: Mapping[str, Any]) -> str:
        """The node that led the partition when the operation of a log returned: it answered. For an operation of a
        register, the node that the client asked. Empty if unknown."""
        if row.get("endpoint"):
            return self.node_at(row["endpoint"])
        returned = ends_at(row)
        if returned is None or not row.get("topic") or "node" in row or "key" in row:
            return ""
        partition_name = f"{row['topic']}-{row.get('partition', -1)}"
        leads: Mapping[str, Sequence[Lead]] = self.part("leaders", lambda: self.facts.leads, {})
        partition_leads = leads.get(partition_name, ())
        earlier_leads = [
            (lead.start_s, lead.node) for lead in partition_leads if lead.start_s <= self.clock.of_monotonic(returned)
        ]
        return max(earlier_leads, default=(0.0, ""))[1]


def gather(run_dir: Path, verdict: Verdict, *, is_analyzed: bool) -> RunPage:
    """Everything on the page that is not in the verdict. `is_analyzed`: the run's tables are those of its evidence."""
    page = RunPage()
    page.tested = page.part("what was tested (run.toml)", lambda: tested(run_dir), page.tested)
    page.journal = page.part("the journal", lambda: _journal(run_dir, page), ())
    page.endpoints = page.part("the nodes' endpoints", lambda: nodes_of_endpoints(page.journal), page.endpoints)
    page.clock = page.part("the clock", lambda: RunClock.of_journal(page.journal), page.clock)
    nodes = _nodes(run_dir, page)
    page.events = {
        node: page.part(f"the events of {node}", lambda n=node: list(numbered_events(run_dir, n)), [])  # type: ignore[misc]
        for node in nodes
    }
    page.facts = page.part(
        "the facts", lambda: run_facts(page.journal, page.events, page.clock), RunFacts(page.clock, page.events)
    )
    page.steps = page.part("the steps", lambda: steps_of(page.journal, page.clock), ())
    page.ended = page.part("ended processes", lambda: ended_processes(page.journal, page.clock), ())
    if verdict.anomalies or page.ended:
        page.story = page.part("the story", lambda: _story(run_dir, verdict, page, nodes), None)
    page.timeline = page.part(
        "the timeline",
        lambda: timeline_of(run_dir, page.journal, page.facts, is_analyzed=is_analyzed),
        None,
    )
    end_s = page.timeline["end_s"] if page.timeline else 0.0
    page.group = page.part(
        "the consumer group", lambda: group_view(read_offsets(run_dir, GROUPS), page.clock, end_s), None
    )
    page.segments = page.part("the segments of remote storage", lambda: segments_of(page.events, page.clock), ())
    page.missing += _absent(run_dir, verdict, page, nodes)
    return page


def _journal(run_dir: Path, page: RunPage) -> Sequence[Mapping[str, Any]]:
    path = run_dir / "history" / FILE_NAME
    if not path.exists():
        page.missing.append(f"history/{FILE_NAME} is missing: no steps, no faults' times, no clock")
        return ()
    read = read_journal(path)
    page.missing += [f"the journal: {defect}" for defect in read.defects[:3]]
    if read.is_torn:
        page.missing.append("the journal: its last line is torn")
    numbers = {_identity(content): at for at, content in reversed(read_lines(path).contents)}
    return [{**line, "n": numbers.get(_identity(line), 0)} for line in read.lines]


def _identity(line: Mapping[str, Any]) -> str:
    """What distinguishes a journal line from the others of its file; the reader drops the lines' numbers."""
    return repr([line.get(key) for key in ("t", "event", "id", "text", "node", "client", "what", "name")])


def _nodes(run_dir: Path, page: RunPage) -> list[str]:
    """The nodes of run.toml and of the journal, and those with files, sorted."""
    root = run_dir / "nodes"
    names = {path.name for path in root.iterdir() if path.is_dir()} if root.is_dir() else set()
    return sorted(
        names | {*page.tested.nodes} | {str(line["node"]) for line in page.journal if line["event"] == "node"}
    )


def _absent(run_dir: Path, verdict: Verdict, page: RunPage, nodes: Sequence[str]) -> Iterator[str]:
    left_out = run_dir / "plots" / "left_out.json"
    if left_out.is_file():
        yield from map(str, page.part("plots/left_out.json", lambda: strict_json.decode(read_bytes(left_out)), []))
    if not (run_dir / "plots").is_dir() and page.timeline is None:
        yield "no plots: brownout analyze on this run draws them"
    if not nodes:
        yield "no node's files were collected"
    bare = [node for node in nodes if (run_dir / "nodes" / node).is_dir() and not page.events.get(node)]
    if bare and page.has_replicas:
        yield f"{', '.join(bare)} recorded no protocol events: no elections, epochs and truncations of them"
    for node in nodes:
        if not (run_dir / "nodes" / node).is_dir():
            yield f"the files of {node} were not collected"
    if page.journal and not any(line.get("name") == "done" for line in page.journal if line["event"] == "phase"):
        yield "the run did not reach its end: the journal has no phase `done`"
    if not verdict.finished:
        yield "the analysis did not finish"


def _story(run_dir: Path, verdict: Verdict, page: RunPage, nodes: Sequence[str]) -> Story | None:
    anomalies = verdict.anomalies
    about = next((anomaly for anomaly in anomalies if anomaly.partition >= 0), None)
    focus = Focus(*((about.topic, about.partition) if about else ("", -1)), lambda number: _name(number, nodes))
    items = list(journal_items(page.journal, page.clock))
    moments: list[float] = []
    for item in _operations(anomalies, about, page):
        items.append(item)
        moments.append(item.at_s)
    if not moments:
        moments = [anomaly.at_s for anomaly in page.ended]
    for node in nodes:
        items += event_items(node, page.events.get(node, ()), page.clock, focus)
        items += page.part(f"the log of {node}", lambda n=node: list(_log(run_dir, n, page)), [])  # type: ignore[misc]
    return story_of(items, lanes=(CLIENTS, *nodes[:MOST_LANES]), moments=moments) if items else None


def _name(number: int, nodes: Sequence[str]) -> str:
    """A node's name by its number; nodes are numbered from 1 and named with their number."""
    named = f"n{number}"
    return named if named in nodes or number < 0 else next((n for n in nodes if n.endswith(str(number))), named)


def _operations(anomalies: Sequence[Anomaly], about: Anomaly | None, page: RunPage) -> Iterator[StoryItem]:
    """The operations of all witnesses about the same partition or register, each once."""
    places: set[tuple[Any, ...]] = set()
    subject = about or (anomalies[0] if anomalies else None)
    for anomaly in anomalies:
        if subject is None or (anomaly.topic, anomaly.partition) != (subject.topic, subject.partition):
            continue
        for row in anomaly.witness:
            invoked, returned = begins_at(row), ends_at(row)
            key = (row.get("client"), row.get("op"), invoked, row.get("value"))
            if invoked is None or key in places:
                continue
            places.add(key)
            yield _operation(row, invoked, returned, page)


def _operation(row: Mapping[str, Any], invoked: int, returned: int | None, page: RunPage) -> StoryItem:
    """The item of an operation. An append's records went from the clients to the node that answered, those of a read
    the other way."""
    at_s = page.clock.of_monotonic(invoked if returned is None else returned)
    took = "never returned" if returned is None else f"took {(returned - invoked) / 1e6:.1f} ms"
    node = page.answered_by(row) if row.get("type") == "ok" or row.get("error") == MISMATCH else ""
    answer = f"{took}, answered by {node}" if node else took
    text = f"{row.get('client', '?')}: {operation_text(row)} ({answer})"
    ends = (CLIENTS, node) if row.get("op") in _CHANGES else (node, CLIENTS)
    sender, receiver = ends if node else ("", "")
    file = _record_of(row)
    return StoryItem(at_s, CLIENTS, StoryKind.OPERATION, text, file, 0, 0, sender=sender, receiver=receiver)


def _record_of(row: Mapping[str, Any]) -> str:
    """The file in which the client recorded the operation."""
    suffix = "calls" if "argument" in row else "registers" if "key" in row else "arrows"
    return f"history/operations/{row.get('client', '?')}-{row.get('session', 1)}.{suffix}"


def _log(run_dir: Path, node: str, page: RunPage) -> Iterator[StoryItem]:
    """The lines of a node's log that have a time. A log without one is named in `page.missing`."""
    path = run_dir / "nodes" / node / "service.log"
    if not path.exists():
        return
    with open_regular(path) as raw:
        lines = (line.decode(errors="replace") for line in _lines(raw))
        first = next(items := log_items(node, enumerate(itertools.islice(lines, MOST_LOG_LINES), 1), page.clock), None)
        if first is not None:
            yield from (first, *items)
        elif path.stat().st_size:
            page.missing.append(f"the log of {node}: no line of nodes/{node}/service.log starts with a time")


def _lines(raw: io.FileIO) -> Iterator[bytes]:
    with io.BufferedReader(raw) as buffered:
        while line := buffered.readline(1 << 16):
            yield line
