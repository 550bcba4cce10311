"""Decides which earlier dumps a run must have: the journal says which nodes were dumped before the heal.

Before a run heals its cluster it dumps the files of each node that has power, in the worlds that can read them while
the service runs. The journal names those nodes. D7 compares such a dump with the files collected at the end. A missing
or emptied dump, or one of another node, would hide a changed prefix, so it is a doubt. Data that a fault may have
destroyed before the dump (`history.damage`) need not be in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from history.damage import Damage, suffered
from history.journal.timeline import HEALED, INVOKED, fault_spans
from history.journal.writer import ADMINISTERED, ASSIGNMENT, JOINED, REASSIGN, REASSIGNED, TOPIC_READY

DUMPED: Final = "dumped"
UNDUMPED: Final = "undumped"
REACHING: Final = ("process", "namespaces", "simulation")
"""The worlds that can read the files of a node that has power while its service runs."""
LOST: Final = frozenset({Damage.DISK, Damage.NEWER_STATE, Damage.SYNCED})
"""Faults after which a node's files may lack what they held before."""
SHORTENED: Final = frozenset({Damage.UNSYNCED})
"""Faults after which a log may end before the high watermark that its node had written."""

DELAYING: Final = frozenset({Damage.PROGRESS, Damage.SPEED, Damage.MEMORY})
"""Faults during which a node may not write its high watermarks."""
ALL_PARTITIONS: Final = -1

SLACK_S: Final = 1.0
"""How much later than its interval a node may write its high watermarks."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Demanded:
    """The earlier dumps that the journal names.

    `nodes`: nodes that must have a dump. `at`: when the first dump was started, CLOCK_MONOTONIC ns; -1 without dumps.
    `lost`: nodes whose dumps must exist but may be incomplete; `shortened`: nodes whose logs may have lost their ends.
    `doubts`: why this is not known, as sentences. `failed`: the run could not dump all nodes. `unmarked`: the replicas,
    as (node, partition), whose high watermark may not have been written by then; `ALL_PARTITIONS` stands for each.
    """

    nodes: tuple[str, ...] = ()
    at: int = -1
    lost: frozenset[str] = frozenset()
    shortened: frozenset[str] = frozenset()
    doubts: tuple[str, ...] = ()
    failed: bool = False
    unmarked: frozenset[tuple[str, int]] = frozenset()
    moved: frozenset[int] = frozenset()
    """Partitions that an administrator gave other replicas. A node need not have had one at the time of its dump."""

    def marked(self, node: str, partition: int) -> bool:
        """Whether the node must have written the high watermark of its replica of this partition before the dump."""
        return partition not in self.moved and self.unmarked.isdisjoint({(node, partition), (node, ALL_PARTITIONS)})


def demanded(journal: Sequence[Line], nodes: Sequence[str], world: str, mark_interval_s: float = 0.0) -> Demanded:
    """The earlier dumps that a journal names. `nodes`: the nodes of the plan. `world`: where they ran.
    `mark_interval_s`: the longest time between two writes of a node's high watermarks."""
    lines = [line for line in journal if DUMPED in line]
    dumped = tuple(dict.fromkeys(node for line in lines for node in line[DUMPED]))
    return Demanded(
        nodes=dumped,
        at=_started_at(journal, lines[0]["t"]) if dumped else -1,
        unmarked=frozenset(_unmarked(journal, nodes, lines[0]["t"], mark_interval_s)) if dumped else frozenset(),
        lost=frozenset(node for node in nodes if suffered(journal, node, LOST)),
        shortened=frozenset(node for node in nodes if suffered(journal, node, SHORTENED)),
        doubts=tuple(_doubts(journal, lines, nodes, world)),
        failed=any(UNDUMPED in line for line in lines),
        moved=frozenset(
            line["arguments"]["partition"]
            for line in journal
            if line["event"] == ADMINISTERED and line["operation"] == REASSIGN
        ),
    )


def _doubts(journal: Sequence[Line], lines: Sequence[Line], nodes: Sequence[str], world: str) -> Iterator[str]:
    if not any(line["event"] == "heal_all" for line in journal):
        return
    if len(lines) != 1:
        yield f"the journal says {len(lines)} times, not once, which nodes have an earlier dump"
        return
    dumped = lines[0][DUMPED]
    for node in sorted(set(dumped) - set(nodes)):
        yield f"the journal has an earlier dump of {node}, which is not in the plan"
    if world in REACHING and UNDUMPED in lines[0]:
        yield f"an earlier dump is missing, though the {world} world reaches the files of nodes: {lines[0][UNDUMPED]}"
    elif world in REACHING:
        off = _without_power(journal, lines[0]["t"])
        for node in nodes:
            if node not in dumped and node not in off:
                yield f"the journal has no earlier dump of {node}, which had power"


def _unmarked(
    journal: Sequence[Line], nodes: Sequence[str], dumped_at: int, mark_interval_s: float
) -> Iterator[tuple[str, int]]:
    """The replicas whose high watermark may not have been written: between the creation of the replica and the dump,
    no interval passed without a delaying fault on the node."""
    interval = (mark_interval_s + SLACK_S) * 1e9
    created = _created_at(journal)
    added = _added(journal, nodes)
    for node in nodes:
        if _longest_free_time(journal, node, created, dumped_at) <= interval:
            yield node, ALL_PARTITIONS
        for partition, at in added.get(node, {}).items():
            if _longest_free_time(journal, node, at, dumped_at) <= interval:
                yield node, partition


def _longest_free_time(journal: Sequence[Line], node: str, start: int, end: int) -> int:
    """The longest time in ns, between `start` and `end`, without a delaying fault on the node."""
    longest, free_since = 0, start
    for fault in fault_spans(journal):
        if fault.may_have_done(DELAYING, node):
            longest = max(longest, min(fault.at(INVOKED, end), end) - free_since)
            free_since = max(free_since, fault.at(HEALED, end))
    return max(longest, end - free_since)


def _created_at(journal: Sequence[Line]) -> int:
    """When the topic had been created, according to the journal: after its assignment, and with a load in progress,
    after the note that it is ready."""
    return max((int(line["t"]) for line in journal if line["event"] == ASSIGNMENT or _says_ready(line)), default=0)


def _added(journal: Sequence[Line], nodes: Sequence[str]) -> dict[str, dict[int, int]]:
    """The replicas that were added after the creation of the topic: for each node and partition, the time at which the
    cluster accepted the replica, or at which it was in sync if it joined."""
    replicas: dict[int, frozenset[str]] = {}
    added: dict[str, dict[int, int]] = {}
    for line in journal:
        if line["event"] == ASSIGNMENT:
            replicas = {partition: _names(ids, nodes) for partition, ids in enumerate(line.get("replicas", ()))}
        elif line["event"] == REASSIGNED:
            members = _names(line["replicas"], nodes)
            for node in members - replicas.get(line["partition"], frozenset()):
                added.setdefault(node, {})[line["partition"]] = line["t"]
            replicas[line["partition"]] = members
        elif line["event"] == JOINED:
            added.setdefault(line["node"], {})[line["partition"]] = line["t"]
    return added


def _names(ids: Sequence[int], nodes: Sequence[str]) -> frozenset[str]:
    """The names of nodes by their numbers, which count from 1."""
    return frozenset(nodes[number - 1] for number in ids if 0 < number <= len(nodes))


def _says_ready(line: Line) -> bool:
    return bool(line["event"] == "note" and line.get("text") == TOPIC_READY)


def _started_at(journal: Sequence[Line], recorded_at: int) -> int:
    """When the dumps were started. The load continues while they are made, and the journal names them when all are
    complete. What was acknowledged in between need not be in them."""
    starts = (int(line["t"]) for line in journal if line["event"] == "phase" and line.get("name") == "heal")
    return max((at for at in starts if at <= recorded_at), default=recorded_at)


def _without_power(journal: Sequence[Line], at: int) -> set[str]:
    """The nodes that may have been off: a fault that destroys unsynced data had started and was not healed."""
    return {
        node
        for fault in fault_spans(journal)
        for node in fault.targets
        if fault.may_have_done(SHORTENED, node) and fault.at(INVOKED, at) <= at < fault.at(HEALED, at + 1)
    }
