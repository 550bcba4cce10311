"""The facts behind an anomaly's cause: removed records, leaders, log ends, ended processes, faults.

They come from the nodes' events and the journal, on the clock of the run's page. Facts are about one partition, or
about the nodes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final

from analysis.evidence.run_directory import moment
from history.journal.service_events import STOOD_STILL, STOPPED, service_exits
from history.journal.timeline import DOWN, FaultSpan, RunClock, fault_spans

NumberedEvents = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]
METADATA_TOPIC: Final = "__cluster_metadata"
_DISK_FAULTS: Final = {"disk-wipe": "lost its disk", "old-disk": "got an earlier copy of its disk"}
_RULES: Final = {
    "high-watermark": "to its high watermark",
    "epoch": "by leader epochs",
    "none": "because its log is empty",
    "leader-start": "to its leader's log start",
}


@dataclass(frozen=True)
class Removal:
    """A node removed the records at offsets `start` to `end` - 1 of a partition; `text` describes it."""

    at_s: float
    node: str
    start: int
    end: float
    text: str


@dataclass(frozen=True)
class Lead:
    """A node took itself for the leader of a partition, until it knew better or its process ended."""

    start_s: float
    node: str
    epoch: int
    end_s: float = math.inf


@dataclass(frozen=True)
class Fact:
    """Any other fact about a node, for people: `number` is a log end, for a fact about one, else -1."""

    at_s: float
    node: str
    text: str
    number: int = -1


@dataclass(frozen=True)
class PartitionFacts:
    """What the nodes recorded about one partition, in order of time."""

    name: str
    removals: tuple[Removal, ...] = ()
    leads: tuple[Lead, ...] = ()
    log_ends: tuple[Fact, ...] = ()
    in_sync: tuple[Fact, ...] = ()
    segments: tuple[Fact, ...] = ()
    deletions: tuple[Fact, ...] = ()
    log_starts: tuple[Fact, ...] = ()
    watermarks: tuple[Fact, ...] = ()

    def until(self, at_s: float) -> "PartitionFacts":
        """The facts up to a time: a leader that led then has no end."""
        earlier = {
            member.name: tuple(fact for fact in getattr(self, member.name) if fact.at_s <= at_s)
            for member in fields(self)
            if member.name not in ("name", "leads")
        }
        leads = (lead for lead in self.leads if lead.start_s <= at_s)
        open_ended = tuple(replace(lead, end_s=math.inf) if lead.end_s > at_s else lead for lead in leads)
        return PartitionFacts(self.name, leads=open_ended, **earlier)


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run.

    `ends`: the ends of processes in the journal, as time and node. `stops`: ends and suspensions of processes that the
    run did not cause. `votes`: votes and epochs of the quorum. `endpoints`: the node of each `host:port`.
    """

    clock: RunClock = field(default_factory=RunClock)
    events: NumberedEvents = field(default_factory=dict)
    faults: tuple[FaultSpan, ...] = ()
    ends: tuple[tuple[float, str], ...] = ()
    stops: tuple[Fact, ...] = ()
    votes: tuple[Fact, ...] = ()
    endpoints: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_recorded(self) -> bool:
        """Whether any node recorded protocol events."""
        return any(self.events.values())

    def of_partition(self, topic: str, partition: int) -> PartitionFacts:
        """The facts of one partition; empty for a register."""
        removals, log_ends, in_sync, segments = list[Removal](), list[Fact](), list[Fact](), list[Fact]()
        deletions, log_starts, watermarks = list[Fact](), list[Fact](), list[Fact]()
        name = f"{topic}-{partition}"
        for node, at_s, event in self._ordered:
            kind = event["event"]
            if (event.get("topic"), event.get("partition")) != (topic, partition):
                continue
            if kind == "replica_progress":
                log_ends.append(Fact(at_s, node, "", _number(event, "log_end_offset")))
                watermarks.append(Fact(at_s, node, "", _number(event, "high_watermark")))
            elif kind == "remote_segment":
                segments.append(Fact(at_s, node, segment_text(event), _number(event, "base_offset")))
            elif kind == "records_deleted":
                reached = _number(event, "low_watermark")
                deletions.append(Fact(at_s, node, f"answered DeleteRecords of {name} with {reached}", reached))
            elif kind == "log_start_moved":
                log_starts.append(Fact(at_s, node, "", _number(event, "log_start_offset")))
            elif removal := _removal(node, at_s, event, name, log_ends):
                removals.append(removal)
            if isinstance(event.get("isr"), list):
                members = ", ".join(f"n{number}" for number in event["isr"])
                in_sync.append(Fact(at_s, node, f"the in-sync set of {name} is [{members}]", len(event["isr"])))
        removals += self._lost_disks(name)
        in_order = sorted(removals, key=lambda removal: removal.at_s)
        return PartitionFacts(
            name,
            tuple(in_order),
            tuple(self.leads.get(name, ())),
            tuple(log_ends),
            tuple(in_sync),
            tuple(segments),
            tuple(deletions),
            tuple(log_starts),
            tuple(watermarks),
        )

    def declared(self, sentence: str) -> Iterator[Fact]:
        """What nodes declared about the remote segments whose id the sentence has."""
        for node, at_s, event in self._ordered:
            if event["event"] == "remote_segment" and event.get("id") and str(event["id"]) in sentence:
                yield Fact(at_s, node, segment_text(event), _number(event, "base_offset"))

    def partitions_of(self, topic: str) -> list[PartitionFacts]:
        """The facts of all partitions of a topic that nodes recorded."""
        numbers = {event.get("partition") for _, _, event in self._ordered if event.get("topic") == topic}
        return [
            self.of_partition(topic, number)
            for number in sorted(partition for partition in numbers if type(partition) is int)
        ]

    def _lost_disks(self, name: str) -> Iterator[Removal]:
        for fault in self.faults:
            if loss := _DISK_FAULTS.get(fault.kind):
                for node in fault.targets:
                    text = f"{node} {loss} at {seconds(fault.start_s)} (fault {fault.id}), with its records of {name}"
                    yield Removal(fault.start_s, node, 0, math.inf, text)

    @cached_property
    def leads(self) -> dict[str, list[Lead]]:
        """By `topic-partition`: the nodes that took themselves for its leader, in order of their starts."""
        leads: dict[str, list[Lead]] = {}
        current: dict[tuple[str, str], int] = {}  # position of the lead of a node in a partition

        def end(node: str, partition_name: str, at_s: float) -> None:
            if (position := current.pop((node, partition_name), None)) is not None:
                leads[partition_name][position] = replace(leads[partition_name][position], end_s=at_s)

        for node, at_s, event in self._ordered:
            if event["event"] in ("broker_started", "broker_stopped"):
                for partition_name in [
                    partition_name for leader_node, partition_name in current if leader_node == node
                ]:
                    end(node, partition_name, at_s)
            elif event["event"] in ("partition_role", "quorum_role"):
                is_quorum = event["event"] == "quorum_role"
                partition_name = (
                    f"{METADATA_TOPIC}-0" if is_quorum else f"{event.get('topic')}-{event.get('partition')}"
                )
                end(node, partition_name, at_s)
                if event.get("role") == "leader":
                    current[node, partition_name] = len(leads.setdefault(partition_name, []))
                    leads[partition_name].append(
                        Lead(at_s, node, _number(event, "epoch" if is_quorum else "leader_epoch"))
                    )
        return leads

    @cached_property
    def _ordered(self) -> list[tuple[str, float, Mapping[str, Any]]]:
        """The events of all nodes and the ends of their processes by time; a node's stay in the order of its file."""
        rows = [
            (node, self.clock.of_wall(moment(event)), event)
            for node, numbered in self.events.items()
            for _, event in numbered
        ]
        rows += [(node, at_s, {"event": "broker_stopped"}) for at_s, node in self.ends]
        return sorted(rows, key=lambda row: row[1])


def run_facts(journal: Iterable[Mapping[str, Any]], events: NumberedEvents, clock: RunClock) -> RunFacts:
    """The facts of a run's journal and events. `events`: by node, with the numbers of the lines."""
    lines = list(journal)
    faults = faults_made(lines, clock)
    exits = service_exits(lines)
    stops = [
        Fact(clock.of_monotonic(service_exit.t), service_exit.node, f"{service_exit.way} {service_exit.how}")
        for service_exit in exits
    ]
    ends = [
        (clock.of_monotonic(service_exit.t), service_exit.node)
        for service_exit in exits
        if service_exit.way != STOOD_STILL
    ]
    ends += [(clock.of_monotonic(line["t"]), line["node"]) for line in lines if line.get("what") == STOPPED]
    ends += [(span.start_s, node) for span in faults if span.process_state == DOWN for node in span.targets]
    votes = list[Fact]()
    for node, rows in events.items():
        for _, event in rows:
            at_s = clock.of_wall(moment(event))
            if event["event"] == "broker_failed":
                stops.append(Fact(at_s, node, f"failed: {event.get('reason')}"))
            elif text := _vote_text(event):
                votes.append(Fact(at_s, node, text, _number(event, "epoch")))
    return RunFacts(
        clock, events, tuple(faults), tuple(ends), _in_order(stops), _in_order(votes), nodes_of_endpoints(lines)
    )


def _in_order(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple(sorted(facts, key=lambda fact: fact.at_s))


def faults_made(journal: Iterable[Mapping[str, Any]], clock: RunClock) -> list[FaultSpan]:
    """The faults that were not prevented, in order of their start."""
    return sorted(
        (span for span in fault_spans(journal, clock) if not span.is_prevented), key=lambda span: span.start_s
    )


def nodes_of_endpoints(journal: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """The node of each endpoint that clients were given; none for a run whose journal does not record them."""
    endpoints = (line["endpoints"] for line in journal if line["event"] == "note" and line.get("endpoints"))
    return {str(endpoint): str(node) for node, endpoint in next(endpoints, {}).items()}


def seconds(at_s: float) -> str:
    """A time of the run's clock, for people."""
    return f"{at_s:.3f} s" if at_s < 10 else f"{at_s:.2f} s"


def rule_words(event: Mapping[str, Any]) -> str:
    """The rule of a `truncated` event, in words."""
    rule = str(event.get("rule"))
    return _RULES.get(rule, f"by rule {rule}") + (", below its high watermark" if event.get("lossy") else "")


def segment_text(event: Mapping[str, Any]) -> str:
    """A `remote_segment` event in words."""
    state = str(event.get("state", "?")).lower().replace("_", " ")
    return f"remote segment {event.get('base_offset')} to {event.get('end_offset')}: {state}"


def _number(event: Mapping[str, Any], key: str) -> int:
    value = event.get(key)
    return value if type(value) is int else -1


def _removal(node: str, at_s: float, event: Mapping[str, Any], name: str, log_ends: Sequence[Fact]) -> Removal | None:
    """What an event removed from the node's log; None if it removed no record, or is no such event."""
    kind, at = event["event"], f"at {seconds(at_s)}"
    if kind == "truncated":
        end, start = _number(event, "from_offset"), _number(event, "to_offset")
        text = f"{node} truncated {name} from {end} to {start} {at} {rule_words(event)}"
        return Removal(at_s, node, start, end, text) if start < end else None
    if kind == "log_shortened":
        start = _number(event, "log_end_offset")
        end = max((fact.number for fact in log_ends if fact.node == node), default=-1)
        lost = _number(event, "lost_bytes")
        action = f"shortened {name} to {start}" if lost > 0 else f"found {name} only up to {start}"
        text = f"the recovery of {node} {action} {at}" + (f", by {lost} bytes" if lost > 0 else "")
        return Removal(at_s, node, start, max(end, start + 1), text)
    if kind == "bootstrapped":
        end = _number(event, "from_offset")
        text = f"{node} dropped its log of {name}, which ended at {end}, {at} and started again from remote storage"
        return Removal(at_s, node, 0, end, text) if end > 0 else None
    if kind in ("partition_set_aside", "partition_removed"):
        action = f"set the files of {name} aside" if kind == "partition_set_aside" else f"removed {name}"
        return Removal(at_s, node, 0, math.inf, f"{node} {action} {at}")
    return None


def _vote_text(event: Mapping[str, Any]) -> str:
    epoch = event.get("epoch")
    match event["event"]:
        case "quorum_vote":
            return f"voted for n{event.get('candidate')} in epoch {epoch}"
        case "quorum_role" if event.get("role") == "leader":
            return f"became leader of the metadata quorum in epoch {epoch}"
        case "quorum_restored":
            voted = _number(event, "voted")
            vote = f" and a vote for n{voted}" if voted >= 0 else " and no vote"
            return f"restarted with epoch {epoch}{vote} on its disk"
        case _:
            return ""


# ---- The segments of tiered partitions over time: local, local and remote, remote only, deleted.

MOST_SEGMENTS: Final = 60
"""Segments of one partition that have a row."""
STATES: Final = {
    "local": "local files only, upload started",
    "both": "local and remote",
    "remote": "remote only",
    "deleted": "deleted from remote storage",
}
"""The places of a segment's records, and what each means."""
_COPIED: Final = frozenset({"COPY_FINISHED", "COPY_SEGMENT_FINISHED"})
"""The state of a complete segment, as Brownout's broker and as Apache Kafka name it."""


@dataclass(frozen=True)
class SegmentLife:
    """One remote segment. Times in seconds since the start; infinite if it did not happen."""

    start: int
    end: int
    upload_s: float
    remote_s: float = math.inf
    local_until_s: float = math.inf
    deleted_s: float = math.inf

    def spans(self, end_s: float) -> list[tuple[str, float, float]]:
        """The states with their start and end, one after the other, up to the end of the run."""
        only_s = max(self.local_until_s, self.remote_s) if self.local_until_s < math.inf else math.inf
        starts = [("local", self.upload_s), ("both", self.remote_s), ("remote", only_s), ("deleted", self.deleted_s)]
        states = [(state, at_s) for state, at_s in starts if at_s < min(end_s, math.inf)]
        ends = [min((later for _, later in states[place + 1 :]), default=end_s) for place in range(len(states))]
        return [(state, at_s, stop) for (state, at_s), stop in zip(states, ends, strict=True) if at_s < stop]


@dataclass(frozen=True)
class PartitionSegments:
    """The segments of one partition, in order of their offsets. `left_out`: segments without a row."""

    name: str
    segments: tuple[SegmentLife, ...]
    left_out: int


def segments_of(events: NumberedEvents, clock: RunClock) -> tuple[PartitionSegments, ...]:
    """The segments of each partition with remote segments. A segment is remote only when no replica has it in its own
    files: the lowest local start of all replicas is past it."""
    lives: dict[tuple[str, int], dict[str, SegmentLife]] = {}
    local_starts: dict[tuple[str, int], dict[str, int]] = {}
    for at_s, node, event in _ordered(events, clock):
        place = str(event.get("topic")), int(event.get("partition", -1))
        if event["event"] == "remote_segment":
            states = lives.setdefault(place, {})
            id_ = str(event.get("id"))
            borders = int(event.get("base_offset", -1)), int(event.get("end_offset", -1))
            states[id_] = _after(states.get(id_, SegmentLife(*borders, at_s)), str(event.get("state")), at_s)
        elif event["event"] == "replica_starts" and type(event.get("local_start_offset")) is int:
            starts = local_starts.setdefault(place, {})
            starts[node] = event["local_start_offset"]
            lowest, states = min(starts.values()), lives.get(place, {})
            for id_, life in states.items():
                if life.end < lowest and life.local_until_s == math.inf:
                    states[id_] = replace(life, local_until_s=at_s)
    return tuple(
        PartitionSegments(f"{topic}-{number}", tuple(ordered[:MOST_SEGMENTS]), max(len(ordered) - MOST_SEGMENTS, 0))
        for (topic, number), states in sorted(lives.items())
        if (ordered := sorted(states.values(), key=lambda life: (life.start, life.upload_s)))
    )


def _after(life: SegmentLife, state: str, at_s: float) -> SegmentLife:
    """The segment after an event of the metadata; each state counts from its first event."""
    if state in _COPIED:
        return replace(life, remote_s=min(life.remote_s, at_s))
    if "DELETE" in state:
        return replace(life, deleted_s=min(life.deleted_s, at_s))
    return life


def _ordered(events: NumberedEvents, clock: RunClock) -> list[tuple[float, str, Mapping[str, Any]]]:
    rows = [
        (clock.of_wall(moment(event)), node, event)
        for node, numbered in events.items()
        for _, event in numbered
        if event["event"] in ("remote_segment", "replica_starts")
    ]
    return sorted(rows, key=lambda row: row[0])
