"""Collects what the page of a run shows. Each part is read on its own: a part that is damaged or absent is named in
`RunPage.missing`, and the others are shown."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from analysis.core.anomaly import Anomaly
from analysis.evidence.run_directory import numbered_events
from analysis.page.group_view import GroupView, group_view
from analysis.page.journal_story import EndedProcess, StepRecord, ended_processes, journal_items, steps_of
from analysis.page.node_story import Focus, event_items, leader_at, log_items
from analysis.page.run_clock import RunClock
from analysis.page.run_facts import nodes_of_endpoints
from analysis.page.segments import PartitionSegments, segments_of
from analysis.page.story import Story, StoryItem, StoryKind, story_of
from analysis.page.tested import Tested, tested
from analysis.page.timeline_parts import timeline_of
from analysis.page.witness_text import begins_at, ends_at, operation_text
from analysis.verdict import Verdict
from history import strict_json
from history.checksummed_lines import read_lines
from history.groups import read_groups
from history.journal import FILE_NAME
from history.journal_reader import read_journal
from history.regular_files import open_regular, read_bytes
from history.schemas import APPEND, CAS, MISMATCH, NAMES, WRITE

T = TypeVar("T")
NumberedEvents = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]
MOST_LOG_LINES: Final = 500_000
MOST_LANES: Final = 9
CLIENTS: Final = "clients"
_CHANGES: Final = frozenset(NAMES[f] for f in (APPEND, WRITE, CAS))


@dataclass
class RunPage:
    """`clock`: of all times on the page. `endpoints`: the node of each `host:port` that clients were given. `events`:
    by node, each with its line's number. `story`, `timeline`, `group`: None without data. `missing`: what the directory
    lacks, as sentences. `segments`: those of remote storage, by partition."""

    tested: Tested = field(default_factory=Tested)
    clock: RunClock = field(default_factory=RunClock)
    journal: Sequence[Mapping[str, Any]] = ()
    endpoints: Mapping[str, str] = field(default_factory=dict)
    events: NumberedEvents = field(default_factory=dict)
    steps: Sequence[StepRecord] = ()
    ended: Sequence[EndedProcess] = ()
    story: Story | None = None
    timeline: dict[str, Any] | None = None
    group: GroupView | None = None
    segments: Sequence[PartitionSegments] = ()
    missing: list[str] = field(default_factory=list)

    def part(self, what: str, make: Callable[[], T], otherwise: T) -> T:
        """The result of `make`. If it raises, `otherwise`, and the reason is in `missing`: the page is for people who
        look for a reason, so no damage may prevent it."""
        try:
            return make()
        except Exception as error:
            self.missing.append(f"{what}: {type(error).__name__}: {error}")
            return otherwise

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
        wall_ns = returned - self.clock.origin_ns + self.clock.wall_ns
        where = str(row["topic"]), int(row.get("partition", -1))
        return self.part("leaders", lambda: leader_at(self.events, *where, wall_ns), "")


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
    page.steps = page.part("the steps", lambda: steps_of(page.journal, page.clock), ())
    page.ended = page.part("ended processes", lambda: ended_processes(page.journal, page.clock), ())
    if verdict.anomalies or page.ended:
        page.story = page.part("the story", lambda: _story(run_dir, verdict, page, nodes), None)
    page.timeline = page.part(
        "the timeline",
        lambda: timeline_of(run_dir, page.journal, page.events, page.clock, is_analyzed=is_analyzed),
        None,
    )
    end_s = page.timeline["end_s"] if page.timeline else 0.0
    page.group = page.part("the consumer group", lambda: group_view(read_groups(run_dir), page.clock, end_s), None)
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
    there = {path.name for path in root.iterdir() if path.is_dir()} if root.is_dir() else set()
    return sorted(
        there | {*page.tested.nodes} | {str(line["node"]) for line in page.journal if line["event"] == "node"}
    )


def _absent(run_dir: Path, verdict: Verdict, page: RunPage, nodes: Sequence[str]) -> Iterator[str]:
    left_out = run_dir / "plots" / "left_out.json"
    if left_out.is_file():
        yield from map(str, page.part("plots/left_out.json", lambda: strict_json.decode(read_bytes(left_out)), []))
    if not (run_dir / "plots").is_dir() and page.timeline is None:
        yield "no plots: brownout analyze on this run draws them"
    if not nodes:
        yield "no node's files were collected"
    if bare := [node for node in nodes if (run_dir / "nodes" / node).is_dir() and not page.events.get(node)]:
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
    about = next((each for each in anomalies if each.partition >= 0), None)
    focus = Focus(*((about.topic, about.partition) if about else ("", -1)), lambda number: _name(number, nodes))
    items = list(journal_items(page.journal, page.clock))
    moments: list[float] = []
    for item in _operations(anomalies, about, page):
        items.append(item)
        moments.append(item.at_s)
    if not moments:
        moments = [each.at_s for each in page.ended]
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
    seen: set[tuple[Any, ...]] = set()
    where = about or (anomalies[0] if anomalies else None)
    for anomaly in anomalies:
        if where is None or (anomaly.topic, anomaly.partition) != (where.topic, where.partition):
            continue
        for row in anomaly.witness:
            invoked, returned = begins_at(row), ends_at(row)
            key = (row.get("client"), row.get("op"), invoked, row.get("value"))
            if invoked is None or key in seen:
                continue
            seen.add(key)
            yield _operation(row, invoked, returned, page)


def _operation(row: Mapping[str, Any], invoked: int, returned: int | None, page: RunPage) -> StoryItem:
    """The item of an operation. An append's records went from the clients to the node that answered, those of a read
    the other way."""
    at_s = page.clock.of_monotonic(invoked if returned is None else returned)
    took = "never returned" if returned is None else f"took {(returned - invoked) / 1e6:.1f} ms"
    node = page.answered_by(row) if row.get("type") == "ok" or row.get("error") == MISMATCH else ""
    said = f"{took}, answered by {node}" if node else took
    text = f"{row.get('client', '?')}: {operation_text(row)} ({said})"
    ends = (CLIENTS, node) if row.get("op") in _CHANGES else (node, CLIENTS)
    sender, receiver = ends if node else ("", "")
    file = _record_of(row)
    return StoryItem(at_s, CLIENTS, StoryKind.OPERATION, text, file, 0, 0, sender=sender, receiver=receiver)


def _record_of(row: Mapping[str, Any]) -> str:
    """The file in which the client recorded the operation."""
    suffix = "registers" if "key" in row else "arrows"
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
