"""Do the answered operations of an administrator keep their effects?

The reference: the outcomes of its operations. A successful answer is a promise. An operation without an answer may have
an effect or not, and also later, so each possible effect is accepted. What brokers and leaders said when the cluster
was whole again (`cluster_seen`) must agree with that:

- a topic that was created exists, with as many partitions as it was given, and one that was deleted does not;
- a setting has the value that was set last, also in brokers that have read a snapshot;
- a partition has exactly the replicas that it was given last;
- a record of a side topic that was acknowledged is there, unless it was deleted, and a deleted one is not. If the topic
  once had a retention, records may be absent below the start of the log, but not those that are younger;
- of a compacted topic the latest record of each key is there, also one without a value;
- a deleted group has no committed offset, and another one has its last one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.remote_store import keeps_committed
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.fault_looks import FaultGroup
from history.journal.writer import ADMINISTERED, CLIENT, CLUSTER_SEEN
from installation.counted import counted

Line = Mapping[str, Any]
ADMINISTRATOR: Final = "administrator"
"""The role of the client that reports operations, in the journal and at the start of its name."""
FINAL: Final = "final"
UNKNOWN_OFFSET: Final = -1
INF: Final = float("inf")
ANSWER_MS: Final = 5_000
"""How long a write may take from its timestamp to its answer, and how much the clocks of nodes may differ."""
MOST_BYTES: Final = 1_000_000
"""More than a side topic's partition has in a run."""
ANSWERED: Final = Promise("ADM", "the answered operations of an administrator have their effects")
UNDONE: Final = AnomalyKind(
    "administration-undone",
    ANSWERED,
    "An operation on a topic, a setting, replicas or a group was answered, and a broker finally knows nothing of it.",
)
LOST: Final = AnomalyKind(
    "side-record-lost",
    ANSWERED,
    "A record of an administrator's topic was acknowledged and is finally absent, or a deletion of records is undone.",
)
NOT_SEEN: Final = Reason("administration-unseen", "Not every broker said at the end what an administrator had done.")


@dataclass
class _Topic:
    """The possible states of a topic. `settings`: the possible values by key."""

    exists: set[bool] = field(default_factory=lambda: {True})
    counts: set[int] = field(default_factory=set)
    settings: dict[str, set[str]] = field(default_factory=dict)
    late: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Values of settings that may be set at any time."""


@dataclass
class ExpectedCluster:
    """What follows from the operations of an administrator, in their order. `records`: the acknowledged values by place
    (`side-1-0`) and offset; `deleted`: by place the answered start; `requested`: the highest requested one."""

    topics: dict[str, _Topic] = field(default_factory=dict)
    replicas: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    groups: dict[str, set[int]] = field(default_factory=dict)
    records: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    deleted: dict[str, int] = field(default_factory=dict)
    written: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By place and offset: when it was acknowledged, in ns of the run's clock."""
    latest: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """By place and key in a compacted topic: the offset of the latest record; None once a write is uncertain, which may
    come at any later time."""
    expiry_ms: dict[str, float] = field(default_factory=dict)
    """By topic with a retention, the age that no record reached before it could expire."""
    requested: dict[str, int] = field(default_factory=dict)

    def apply(self, line: Line) -> None:
        """The next operation."""
        arguments, target, is_certain = line["arguments"], line["target"], line["outcome"] == "ok"
        if line["outcome"] == "fail":
            if line["operation"] == "create":
                self.topics[target] = _Topic(exists={False})
            return
        topic = self.topics.setdefault(target, _Topic())
        if (expiry_ms := _expiry_ms(arguments.get("settings", {}))) < INF:
            self.expiry_ms[target] = min(expiry_ms, self.expiry_ms.get(target, INF))
        match line["operation"]:
            case "create":
                topic.exists = {True} if is_certain else {True, False}
                topic.counts = {arguments["partitions"]}
                topic.settings = {key: {value} for key, value in arguments["settings"].items()}
            case "delete":
                topic.exists = {False} if is_certain else {True, False}
            case "grow":
                topic.counts = {arguments["partitions"]} | (set() if is_certain else topic.counts)
            case "configure" | "raise-floor":
                for key, value in arguments["settings"].items():
                    if is_certain:
                        topic.settings[key] = {value} | topic.late[key]
                    else:
                        topic.late[key].add(value)
                        if key in topic.settings:
                            topic.settings[key].add(value)
            case "reassign" if is_certain:
                self.replicas[target, arguments["partition"]] = arguments["replicas"]
            case "reassign":
                self.replicas.pop((target, arguments["partition"]), None)
            case "write":
                self._written(_place(line), line, is_certain=is_certain)
            case "delete-records":
                self.requested[_place(line)] = max(self.requested.get(_place(line), 0), arguments["offset"])
                if is_certain:
                    self.deleted[_place(line)] = max(self.deleted.get(_place(line), 0), arguments["start"])
            case "commit":
                self.groups[target] = {arguments["offset"]} | (set() if is_certain else {-1})
            case "delete-group":
                self.groups[target] = {-1} | (set() if is_certain else self.groups[target])

    def _written(self, place: str, line: Line, *, is_certain: bool) -> None:
        """Records were sent. In a compacted topic the last one of a key replaces all earlier ones."""
        new = dict(enumerate(line["arguments"]["values"], line["arguments"]["offset"]))
        if key := line["arguments"].get("key", ""):
            earlier = self.latest.get((place, key), UNKNOWN_OFFSET)
            self.records[place].pop(UNKNOWN_OFFSET if earlier is None else earlier, None)
            self.latest[place, key] = max(new) if is_certain and earlier is not None else None
            new = {offset: value for offset, value in new.items() if offset == self.latest[place, key]}
        if is_certain:
            self.records[place] |= new
            self.written[place] |= dict.fromkeys(new, int(line["t"]))


def _expiry_ms(settings: Mapping[str, str]) -> float:
    """The age of a record, by the time of its answer, at which these settings of a topic may let it expire. Of a
    retention by size that is small enough to matter in a run: any."""
    ages_ms, sizes = settings.get("retention.ms", "-1"), settings.get("retention.bytes", "-1")
    if sizes != "-1" and int(sizes) < MOST_BYTES:
        return 0.0
    return INF if ages_ms == "-1" else max(0.0, int(ages_ms) - ANSWER_MS)


def _place(line: Line) -> str:
    return f"{line['target']}-{line['arguments']['partition']}"


def wrong_topics(expected: ExpectedCluster, look: Line) -> Iterator[tuple[str, str]]:
    """A topic or group, and how what brokers know of it contradicts the answers."""
    brokers = f"{'brokers' if len(look['nodes']) > 1 else 'broker'} {', '.join(map(str, look['nodes']))}"
    for name, topic in expected.topics.items():
        topic_state = look["topics"].get(name)
        if name in expected.groups:
            continue
        if (topic_state is not None) not in topic.exists:
            before, now = ("deleted", "exists") if topic_state else ("created", "does not exist")
            yield name, f"{before}, and by {brokers} it {now}"
        elif topic_state is not None:
            if topic.counts and len(topic_state["replicas"]) not in topic.counts:
                count = " or ".join(map(str, sorted(topic.counts)))
                yield name, f"given {count} partitions, and by {brokers} it has {len(topic_state['replicas'])}"
            for key, values in topic.settings.items():
                if (value := topic_state["settings"].get(key)) not in values:
                    yield name, f"{key} was set to {' or '.join(sorted(values))}, and is {value} by {brokers}"
    for (name, partition), replicas in expected.replicas.items():
        topic_state = look["topics"].get(name, {"replicas": []})["replicas"]
        if topic_state[partition : partition + 1] != [replicas]:
            now = topic_state[partition] if partition < len(topic_state) else "unknown"
            yield name, f"partition {partition} was given the replicas {replicas}, and by {brokers} they are {now}"
    for name, offset in look["groups"].items():
        if offset not in expected.groups.get(name, {offset}):
            possible = " or ".join(map(str, sorted(expected.groups[name])))
            yield name, f"its offset is {possible} by the answers (-1: deleted), and its coordinator says {offset}"


def wrong_records(expected: ExpectedCluster, look: Line) -> Iterator[tuple[str, str]]:
    """A side topic's partition, and how its log contradicts the answers."""
    for place, (start, pairs) in look["records"].items():
        if start < expected.deleted.get(place, 0):
            yield place, f"records below {expected.deleted[place]} were deleted, and the log starts at {start}"
        expiry_ms = expected.expiry_ms.get(place.rpartition("-")[0], INF)
        young = [
            offset
            for offset, at in expected.written.get(place, {}).items()
            if expected.requested.get(place, 0) <= offset < start and look["t"] - at < expiry_ms * 1e6
        ]
        if expiry_ms < INF:
            if young:
                yield place, f"the log starts at {start}, and the record at offset {young[0]} is too young to expire"
        elif start > expected.requested.get(place, 0):
            yield (
                place,
                f"the log starts at {start}, and no client deleted records from {expected.requested.get(place, 0)} on",
            )
        stored = dict(map(tuple, pairs))
        lost = {
            at: value
            for at, value in expected.records.get(place, {}).items()
            if at >= start and stored.get(at) != value
        }
        if lost:
            at = min(lost)
            yield (
                place,
                f"{counted(len(lost), 'acknowledged record')} absent, the first at offset {at} with the value "
                f"{lost[at]}; there is {stored.get(at, 'nothing')}",
            )


def expected_by(journal: Iterable[Line]) -> ExpectedCluster:
    """What follows from the operations in a journal."""
    expected = ExpectedCluster()
    for line in journal:
        if line["event"] == ADMINISTERED:
            expected.apply(line)
    return expected


def check(run: CheckedRun) -> Outcome:
    """Compare the answers with what the brokers knew at the end."""
    journal = run.history.journal
    if not any(line["event"] == CLIENT and line["role"] == ADMINISTRATOR for line in journal):
        return Outcome(NOT_APPLICABLE, "the cluster had no administrator")
    operations = [line for line in journal if line["event"] == ADMINISTERED]
    expected, looks = expected_by(journal), [line for line in journal if line["event"] == CLUSTER_SEEN]
    if any(fault.group == FaultGroup.CLOCK for fault in run.history.faults):
        expected.expiry_ms = dict.fromkeys(expected.expiry_ms, 0.0)  # a record is as old as a broker's clock says
    effective = sum(line["outcome"] == "ok" for line in operations)
    detail = f"{effective} of {counted(len(operations), 'operation')} answered"
    if FINAL not in run.history.phase_names:
        return Outcome(UNKNOWN, detail, doubts=NOT_SEEN.say(["the run has no final phase, in which brokers are asked"]))
    anomalies = [_anomaly(UNDONE, *contradiction) for look in looks for contradiction in wrong_topics(expected, look)]
    lost = [_anomaly(LOST, *contradiction) for look in looks for contradiction in wrong_records(expected, look)]
    doubts = NOT_SEEN.say(_unseen(run, expected, looks))
    if keeps_committed(run, run.plan.nodes):
        anomalies += lost
    else:
        doubts += NOT_SEEN.say(
            f"{anomaly.sentence}; an unclean election or damage to a disk may explain it" for anomaly in lost
        )
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", tuple(anomalies), doubts)
    if doubts:
        return Outcome(UNKNOWN, detail, doubts=doubts)
    return Outcome(PASS, f"{detail}: every broker finally knows their effects")


def _unseen(run: CheckedRun, expected: ExpectedCluster, looks: Sequence[Line]) -> Iterator[str]:
    """What no broker was asked about, or did not answer."""
    answered = {node for look in looks for node in look["nodes"]}
    if silent := [number for number in range(1, len(run.plan.nodes) + 1) if number not in answered]:
        yield f"brokers that did not answer at the end: {', '.join(map(str, silent))}"
    places = {place for look in looks for place in look["records"]}
    existing = {name for look in looks for name in look["topics"]}
    unread = [place for place in expected.records if place not in places and place.rpartition("-")[0] in existing]
    yield from (f"the records of {place} were not read" for place in unread)
    groups = {name for look in looks for name in look["groups"]}
    yield from (f"the offset of the group {name} was not read" for name in expected.groups if name not in groups)


def _anomaly(kind: AnomalyKind, name: str, problem: str) -> Anomaly:
    return Anomaly(kind.name, "", -1, f"{name}: {problem}", ({"target": name, "problem": problem},))


CHECKER: Final = Checker(
    "administration",
    "Do the answered operations of an administrator keep their effects?",
    23,
    (UNDONE, LOST),
    check,
    (NOT_SEEN,),
    may_rest=lambda description: not any(name.startswith(f"{ADMINISTRATOR}-") for name in description.plan.clients),
    reads="|".join((PLAN, JOURNAL)),
)
