"""Computes the states that a run visited, from its nodes' traces; an exploration is guided by them.

An abstract state describes one partition at one time, independent of node names: for each replica whether it runs, its
role, how its leader epoch compares with the highest, whether the leader counts it as in sync, and how its log end
compares with the leader's; the roles of the metadata quorum's voters; the kinds of fault in force.

`SOMETIMES` has what some runs of a campaign should meet, as a whole and not at one moment: a mechanism that no run uses
is not tested.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from analysis.evidence.meetings import DURING, POWERLESS, conditions
from analysis.evidence.run_directory import moment, node_events, node_names
from history import strict_json
from history.journal.timeline import (
    CONFIRMED,
    DOWN,
    HEALED,
    INVOKED,
    PROCESS_STATES,
    SUSPENDED,
    FaultSpan,
    RunClock,
    fault_spans,
)
from history.journal.writer import ADMINISTERED, REASSIGN
from history.journal.writer import FILE_NAME as JOURNAL
from history.regular_files import read_text
from nemeses.kind import node_facts
from nemeses.kinds.crash_point import FILES, CrashAtOperation
from orchestrator.worlds.simulation.files import ORACLES

Partition = tuple[str, int]

_ALL: Final[Partition] = ("", -1)


class ReplicaAbstraction(NamedTuple):
    """One replica in an abstract state. `runs`: `up`, `still` (suspended) or `down`; `role`: `leader`, `follower` or
    `-`; `epoch` and `log`: `<`, `=` or `>`, compared with the highest epoch and with the leader's log end."""

    runs: str
    role: str
    epoch: str
    in_sync: bool
    log: str

    def __str__(self) -> str:
        return f"{self.runs}/{self.role}{self.epoch}{'i' if self.in_sync else 'o'}{self.log}"


@dataclass(frozen=True)
class ClusterAbstraction:
    """An abstract state; equal texts are equal states."""

    replicas: tuple[ReplicaAbstraction, ...]
    voters: tuple[str, ...]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((*map(str, self.replicas), "|", *self.voters, "|", *self.faults))


def _last_of_isr(state: ClusterAbstraction) -> ReplicaAbstraction | None:
    """The only member of the ISR; None if there are more or none."""
    members = [replica for replica in state.replicas if replica.in_sync]
    return members[0] if len(members) == 1 else None


def _leads_alone(state: ClusterAbstraction) -> bool:
    last = _last_of_isr(state)
    return last is not None and last.role == "leader"


def _last_is_away(state: ClusterAbstraction) -> bool:
    last = _last_of_isr(state)
    return last is not None and last.runs != "up" and any(replica.runs == "up" for replica in state.replicas)


class Visit(NamedTuple):
    """The time at which a run reached a state, in seconds since the start of its load; -1 before that. `partition`:
    whose state it is; `nodes`: the node of each of its replicas."""

    at_s: float
    state: ClusterAbstraction
    partition: Partition
    nodes: tuple[str, ...]


class Stay(NamedTuple):
    """A visit of a constellation: its start, in seconds since the start of the load, its duration in seconds, and the
    node in each role."""

    at_s: float
    lasts_s: float
    parts: dict[str, list[str]]


DEEP: Final[Mapping[str, Callable[[ClusterAbstraction], bool]]] = {
    "two leaders": lambda it: sum(r.role == "leader" and r.runs != "down" for r in it.replicas) > 1,
    "a leader alone in its ISR": _leads_alone,
    "a leader alone in its ISR while a partition is in force": lambda it: (
        _leads_alone(it) and any(kind.startswith("partition") for kind in it.faults)
    ),
    "a leader alone in its ISR behind another replica": lambda it: (
        _leads_alone(it) and any(replica.log == ">" for replica in it.replicas)
    ),
    "the last ISR member does not run while another replica does": _last_is_away,
    "a follower ahead of its leader": lambda it: any(r.role == "follower" and r.log == ">" for r in it.replicas),
    "an ISR member that does not run": lambda it: any(r.in_sync and r.runs == "down" for r in it.replicas),
    "two faults at once": lambda it: len(it.faults) > 1,
}
"""Deep states: many bugs are only reachable from them."""


class Meetings(NamedTuple):
    """What a whole run met."""

    settings: Mapping[str, str]
    """Those that its brokers have in common."""
    kinds: frozenset[str]
    """Of its faults."""
    events: tuple[Mapping[str, Any], ...]
    """Of all nodes."""
    checks: Mapping[str, int]
    """The number of comparisons by oracle."""
    administered: tuple[Mapping[str, Any], ...] = ()
    """The operations of the administrator that took effect."""
    conditions: Mapping[str, int] = {}
    """The number of faults by condition, as of any system."""
    crashes: frozenset[str] = frozenset()
    """The files at an operation on which a service ended, or failed: those of the faults `crash-point`."""

    def has(self, name: str, **fields: object) -> bool:
        """Whether a node reported such an event, with these values."""
        pairs = {"event": name, **fields}.items()
        return any(pairs <= event.items() for event in self.named(name))

    def named(self, name: str) -> list[Mapping[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    def did(self, operation: str) -> bool:
        return any(line["operation"] == operation for line in self.administered)

    def crashed(self, files: str) -> bool:
        """Whether a crash point came at an operation on these files."""
        return files in self.crashes

    @property
    def power(self) -> bool:
        return not self.kinds.isdisjoint(("power-loss", "power-loss-all"))

    @property
    def crash(self) -> bool:
        return any(PROCESS_STATES.get(kind) == DOWN and kind != "stop" for kind in self.kinds)

    def number(self, key: str, default: int) -> int:
        return int(self.settings.get(key, default))


INTERNAL: Final = "__"
"""How the names of topics start that are not the workload's."""
OF_METADATA: Final = "K595-40"
"""The rule by which a voter truncates the metadata log."""
SOMETIMES: Final[Mapping[str, Callable[[Meetings], bool]]] = {
    "a fault longer than a session": lambda it: it.conditions.get("longer than session", 0) > 0,
    "a fault during another": lambda it: it.conditions.get(DURING, 0) > 0,
    "a majority without power": lambda it: it.conditions.get(POWERLESS, 0) > 0,
    "a session expired": lambda it: it.has("session_expired"),
    "power lost with three voters and min.insync.replicas of 2": lambda it: (
        it.power and it.number("quorum.voters", 3) >= 3 and it.number("min.insync.replicas", 1) >= 2
    ),
    "power lost while records were not flushed": lambda it: (
        it.power and it.number("log.flush.interval.messages", 0) != 1
    ),
    "a crash after a recovery point": lambda it: it.crash and it.checks.get("recovery-point-ahead", 0) > 0,
    "a crash after a recovery point, without flushes": lambda it: (
        it.number("log.flush.interval.messages", 0) != 1 and it.crash and it.checks.get("recovery-point-ahead", 0) > 0
    ),
    "a start that shortened a log": lambda it: it.has("log_shortened"),
    "a follower that removed records": lambda it: any(
        event["from_offset"] > event["to_offset"] and event["rule"] != OF_METADATA for event in it.named("truncated")
    ),
    "a voter that removed records": lambda it: any(
        event["from_offset"] > event["to_offset"] and event["rule"] == OF_METADATA for event in it.named("truncated")
    ),
    "five leader epochs of a partition": lambda it: any(
        event["leader_epoch"] >= 5 for event in it.named("partition_role")
    ),
    "three leaders of the quorum": lambda it: (
        len({event["epoch"] for event in it.named("quorum_role") if event["role"] == "leader"}) >= 3
    ),
    "a snapshot of the metadata": lambda it: it.has("quorum_snapshot"),
    "a disk replaced": lambda it: "disk-wipe" in it.kinds,
    "a log set aside": lambda it: it.has("partition_set_aside"),
    "records deleted": lambda it: it.has("records_deleted"),
    "records expired": lambda it: (
        not it.has("records_deleted")
        and any(not event["topic"].startswith(INTERNAL) for event in it.named("log_start_moved"))
    ),
    "a topic created by an administrator": lambda it: it.did("create"),
    "a topic enlarged": lambda it: it.did("grow"),
    "a topic deleted": lambda it: it.did("delete"),
    "a setting of a topic changed": lambda it: it.did("configure"),
    "a partition given to an empty replica": lambda it: any(
        line["operation"] == REASSIGN and line["arguments"]["added"] for line in it.administered
    ),
    "a group deleted": lambda it: it.did("delete-group"),
    "a remote segment uploaded": lambda it: it.has("remote_segment", state="COPY_FINISHED"),
    "a start from remote storage": lambda it: it.has("bootstrapped"),
    "a coordinator that loaded records": lambda it: any(
        event["records"] > 0 for event in it.named("coordinator_loaded")
    ),
    "a log compacted": lambda it: it.has("log_compacted"),
    "a leader recovered before it served": lambda it: it.has("leader_recovered"),
    "an unclean election was possible, and a leader recovered": lambda it: (
        it.settings.get("unclean.leader.election.enable") == "true" and it.has("leader_recovered")
    ),
    "an object damaged at rest": lambda it: any(kind.startswith("object-") for kind in it.kinds),
    **{f"a crash at operations on {files}": partial(Meetings.crashed, files=files) for files in FILES},
}
"""What runs should meet: `explore` counts the runs that did."""


def met(run_dir: Path, settings: Mapping[str, str], timeouts_s: Mapping[str, float]) -> tuple[str, ...]:
    """The names of `SOMETIMES` that a run met. `settings`: the common ones of its brokers; `timeouts_s`: by name."""
    journal = [strict_json.decode(line) for line in read_text(run_dir / "history" / JOURNAL).splitlines()]
    made = [span for span in fault_spans(journal, RunClock.of_journal(journal)) if span.status == CONFIRMED]
    kinds = frozenset(line["kind"] for line in journal if line["event"] == "fault_invoked")
    try:
        checks = strict_json.decode(read_text(run_dir / "history" / ORACLES))["checks"]
    except (OSError, ValueError, KeyError):
        checks = {}  # the run broke off
    names = node_names(run_dir)
    events = tuple(event for name in names for event in node_events(run_dir, name))
    administered = tuple(line for line in journal if line["event"] == ADMINISTERED and line["outcome"] == "ok")
    meetings = Meetings(
        settings, kinds, events, checks, administered, conditions(made, timeouts_s, len(names)), _crashes(made)
    )
    return tuple(name for name, happened in SOMETIMES.items() if happened(meetings))


def _crashes(faults: Iterable[FaultSpan]) -> frozenset[str]:
    """The files of the crash points that came at one of their operations, and not at the end of their fault."""
    return frozenset(
        fault.line(INVOKED)["parameters"].get("files", FILES[0])
        for fault in faults
        if fault.kind == CrashAtOperation.name
        for facts in node_facts(fault.line(HEALED).get("evidence", {}).get("healed", {}).get("detail", {})).values()
        if facts.get("operation", "none") != "none"
    )


@dataclass
class _Node:
    """The state that one node reported, and the faults on it."""

    quorum: str = "-"
    quorum_epoch: int = -1
    roles: dict[Partition, tuple[str, int]] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)


@dataclass
class _Cluster:
    nodes: dict[str, _Node]
    faults: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    isr: dict[Partition, tuple[int, frozenset[str]]] = field(default_factory=dict)


def constellation(state: str) -> str:
    """A coarser form of an abstract state's text: which replicas run, lead, are in sync and are ahead of the leader.
    There are about a hundred constellations and thousands of states, so a rare constellation is significant."""
    return " ".join(sorted(map(_part, state.partition(" | ")[0].split())))


def _part(replica: str) -> str:
    """A replica's role in a constellation."""
    return replica[:-3] + replica[-2:-1] + replica[-1:].strip("<=?")


def stays(visits: Iterable[Visit]) -> dict[str, Stay]:
    """The longest stay under load in each constellation of a run, in the order of the first visits."""
    longest: dict[str, Stay] = {}
    current: dict[Partition, tuple[str, Stay]] = {}
    for at_s, state, partition, nodes in visits:
        if at_s < 0:
            continue
        name = constellation(str(state))
        if partition in current and current[partition][0] == name:
            continue
        _close(longest, current.get(partition), at_s)
        parts: dict[str, list[str]] = {}
        for replica, node in zip(state.replicas, nodes, strict=True):
            parts.setdefault(_part(str(replica)), []).append(node)
        current[partition] = name, Stay(round(at_s, 3), 0.0, parts)
        longest.setdefault(name, current[partition][1])
    return longest


def _close(longest: dict[str, Stay], stay: tuple[str, Stay] | None, at_s: float) -> None:
    """End the current stay; the end of the run also ends it."""
    if stay is not None and at_s - stay[1].at_s > longest[stay[0]].lasts_s:
        longest[stay[0]] = stay[1]._replace(lasts_s=round(at_s - stay[1].at_s, 3))


def visits(run_dir: Path, topic: str) -> Iterator[Visit]:
    """The state of a partition after each event about it; of all partitions after an event of the whole cluster."""
    names, began_ns = node_names(run_dir), 0
    cluster = _Cluster({name: _Node() for name in names})
    for at_ns, _, node, event in sorted(_happenings(run_dir, names), key=lambda happening: happening[:2]):
        if event["event"] == "phase":
            began_ns = at_ns
            continue
        touched = _of_journal(cluster, event) if node is None else _of_node(cluster, node, event)
        if touched is None:
            continue
        for key in sorted(cluster.isr) if touched == _ALL else [touched]:
            if key[0] == topic and key in cluster.isr:
                yield Visit((at_ns - began_ns) / 1e9 if began_ns else -1.0, *_abstract(cluster, key))


def _happenings(run_dir: Path, names: list[str]) -> Iterator[tuple[int, int, str | None, Mapping[str, Any]]]:
    """All events by wall clock, in nanoseconds; of simultaneous events, the run loop's come first."""
    order = 0
    for line in read_text(run_dir / "history" / JOURNAL).splitlines():
        entry = strict_json.decode(line)
        is_main = entry["event"] == "phase" and entry["name"] == "main"
        if is_main or entry["event"] in ("fault_injected", "fault_invoked", "fault_healed"):
            yield round(entry["wall"] * 1e9), (order := order + 1), None, entry
    for name in names:
        for event in node_events(run_dir, name):
            yield moment(event), (order := order + 1), name, event


def _of_journal(cluster: _Cluster, entry: Mapping[str, Any]) -> Partition | None:
    if entry["event"] == "fault_invoked":
        cluster.faults[entry["id"]] = entry["kind"], tuple(entry["targets"])
        return None  # it is about to be injected
    if entry["event"] == "fault_healed":
        cluster.faults.pop(entry["id"], None)
    return _ALL


def _of_node(cluster: _Cluster, name: str, event: Mapping[str, Any]) -> Partition | None:
    """Apply a node's event; returns the partition that it is about, `_ALL`, or None for no partition."""
    node = cluster.nodes[name]
    match event["event"]:
        case "broker_started":
            cluster.nodes[name] = _Node(ends=node.ends)
            return _ALL
        case "quorum_role":
            node.quorum, node.quorum_epoch = event["role"], event["epoch"]
            return _ALL
        case "partition_role":
            key = event["topic"], event["partition"]
            node.roles[key] = event["role"], event["leader_epoch"]
            _count_in_sync(cluster, key, event)
            return key
        case "isr_changed":
            key = event["topic"], event["partition"]
            _count_in_sync(cluster, key, event)
            return key
        case "replica_progress":
            key = event["topic"], event["partition"]
            node.ends[key] = event["log_end_offset"]
            return key
        case "truncated":
            key = event["topic"], event["partition"]
            node.ends[key] = event["to_offset"]
            return key
        case _:
            return None


def _count_in_sync(cluster: _Cluster, key: Partition, event: Mapping[str, Any]) -> None:
    """Use the in-sync set with the highest partition epoch that any node reported."""
    epoch = event["partition_epoch"]
    if epoch >= cluster.isr.get(key, (-1, frozenset()))[0]:
        cluster.isr[key] = epoch, frozenset(f"n{member}" for member in event["isr"])


def _abstract(cluster: _Cluster, key: Partition) -> tuple[ClusterAbstraction, Partition, tuple[str, ...]]:
    roles = {name: node.roles[key] for name, node in cluster.nodes.items() if key in node.roles}
    highest = max((epoch for _, epoch in roles.values()), default=-1)
    leader_end = max(
        (cluster.nodes[name].ends.get(key, 0) for name, claim in roles.items() if claim == ("leader", highest)),
        default=None,
    )
    _, in_sync = cluster.isr[key]
    replicas = []
    for name in {**roles, **dict.fromkeys(sorted(in_sync))}:
        role, epoch = roles.get(name, ("-", -1))
        end = cluster.nodes[name].ends.get(key, 0)
        against = "?" if leader_end is None else _compare(end, leader_end)
        replica = ReplicaAbstraction(_runs(cluster, name), role, _compare(epoch, highest), name in in_sync, against)
        replicas.append((replica, name))
    voters = [node for node in cluster.nodes.values() if node.quorum_epoch >= 0]
    newest = max((node.quorum_epoch for node in voters), default=-1)
    replicas.sort()
    state = ClusterAbstraction(
        tuple(replica for replica, _ in replicas),
        tuple(sorted(f"{node.quorum}{_compare(node.quorum_epoch, newest)}" for node in voters)),
        tuple(sorted(kind for kind, _ in cluster.faults.values())),
    )
    return state, key, tuple(name for _, name in replicas)


def _runs(cluster: _Cluster, name: str) -> str:
    states = {PROCESS_STATES.get(kind) for kind, targets in cluster.faults.values() if name in targets}
    return "down" if DOWN in states else "still" if SUSPENDED in states else "up"


def _compare(one: int, other: int) -> str:
    return "<" if one < other else ">" if one > other else "="
