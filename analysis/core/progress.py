"""Checks that partitions which no fault touches make progress while faults last.

Two rules, each applied only with positive evidence:

- P1 acknowledgements. At the time of an acknowledged append with acks = all the in-sync set had at least
  `min.insync.replicas` members. If from then on a majority of the nodes of each role stays untouched, and fewer
  replicas than that minimum are touched, then a member of that set is untouched, and the untouched replicas are enough
  to commit. While clients keep sending, the next acknowledgement arrives within the bound.
- P2 the in-sync set. A replica that is down or suspended by a confirmed fault for longer than the bound leaves the
  in-sync set, as reported by the untouched leader, while a majority of the nodes of each role is untouched.

A fault touches its targets and the nodes of its pairs, from its start until some time after its heal has ended. A fault
that destroys synced bytes or a disk touches its targets until the end of the run. Times are in ns, by the run's clock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from history.damage import OTHER_DISK, Damage
from history.journal.service_events import SERVICE_EXIT
from history.journal.timeline import CONFIRMED, HEALED, INJECTED, INVOKED, FaultSpan, fault_spans
from history.record.schemas import INF

Line = Mapping[str, Any]
Partition = tuple[str, int]
I64 = npt.NDArray[np.int64]
LASTING: Final = OTHER_DISK | {Damage.SYNCED}
HOLES: Final = 3
"""Clients keep sending if no pause between their attempts is longer than the bound divided by this."""


class Attempts(NamedTuple):
    """Some appends with acks = all to a partition, as columns of equal length. `ret` is INF if one never returned."""

    partition: Partition
    inv: I64
    ret: I64
    ok: npt.NDArray[np.bool_]


class Touch(NamedTuple):
    """A fault touches a node from `start` to `end`. `down_from`: the time at which the node was first seen down or
    suspended, or INF. `healed`: the time at which its heal had ended."""

    node: str
    start: int
    end: int
    down_from: int
    healed: int


@dataclass(frozen=True)
class ObservedCluster:
    """`roles` by node, `replicas` by partition, `least`: the number of in-sync replicas that a commit needs."""

    roles: Mapping[str, str]
    replicas: Mapping[tuple[str, int], Sequence[str]]
    least: int
    touches: Sequence[Touch]

    def untouched(self, start: int, end: int) -> set[str]:
        """The nodes that nothing touches between two times."""
        touched = {touch.node for touch in self.touches if touch.start < end and touch.end > start}
        return set(self.roles) - touched

    def has_majority(self, nodes: set[str]) -> bool:
        """Whether these are a majority of the nodes of each role."""
        return all(
            2 * sum(self.roles[node] == role for node in nodes) > list(self.roles.values()).count(role)
            for role in set(self.roles.values())
        )


class Gap(NamedTuple):
    """A partition without an acknowledged append from `since` to `until`, though clients sent from `asked` on."""

    partition: tuple[str, int]
    since: int
    asked: int
    until: int
    untouched: tuple[str, ...]


def touches_of(journal: Sequence[Line], settle_ns: int) -> list[Touch]:
    """The journal's faults as touches of nodes. A touch lasts for `settle_ns` after a heal."""
    exits = [line for line in journal if line.get("event") == SERVICE_EXIT]
    faults = [fault for fault in fault_spans(journal) if not fault.is_prevented]
    return [
        *(Touch(line["node"], line["t"], INF, INF, INF) for line in exits),
        *(touch for fault in faults for touch in _touches(fault, settle_ns)),
    ]


def _touches(fault: FaultSpan, settle_ns: int) -> Iterator[Touch]:
    invoked, healed = fault.line(INVOKED), fault.at(HEALED, INF)
    damage = set(invoked.get("may_destroy", ()))
    pairs = invoked["parameters"].get("pairs") or ()
    lasts = healed == INF or "may_destroy" not in invoked or not damage.isdisjoint(LASTING)
    end = INF if lasts else healed + settle_ns
    is_down = Damage.PROGRESS in damage and fault.line(INJECTED).get("status") == CONFIRMED
    for node in dict.fromkeys((*fault.targets, *(str(node) for pair in pairs for node in pair))):
        yield Touch(
            node, invoked["t"], end, fault.at(INJECTED, INF) if is_down and node in fault.targets else INF, healed
        )


def gaps(
    cluster: ObservedCluster, attempts: Callable[[], Iterable[Attempts]], ends: int, bound: int
) -> Iterator[Gap | None]:
    """P1: each time for which an acknowledgement was due, or None if it arrived. `attempts` is called for each pass
    over them. `ends`: when the load ended."""
    bound = min(bound, INF)  # of any size in a campaign; times in a table have 64 bits
    silences = _silences(attempts(), ends, bound)
    if not silences:
        return
    for part in attempts():
        for silence in silences.get(part.partition, ()):
            silence.find_asked(part)
    for part in attempts():
        for silence in silences.get(part.partition, ()):
            silence.cover(part, bound)
    for partition, partition_silences in sorted(silences.items()):
        replicas = set(cluster.replicas.get(partition, ()))
        for silence in partition_silences:
            if silence.asked + bound > ends or not silence.goes_on(bound):
                continue
            untouched = cluster.untouched(silence.since, silence.asked + bound)
            required = min(cluster.least, len(replicas))
            fine = len(replicas - untouched) < required <= len(replicas & untouched)
            if not replicas or not fine or not cluster.has_majority(untouched):
                continue
            late = silence.until - silence.asked > bound
            yield (
                Gap(partition, silence.since, silence.asked, silence.until, tuple(sorted(untouched))) if late else None
            )


def _silences(attempts: Iterable[Attempts], ends: int, bound: int) -> dict[Partition, list["_Silence"]]:
    """The times without an acknowledgement that are longer than the bound, by partition and in order.

    Two acknowledgements in one cell of this length are not further apart, so the first and the last of each cell are
    enough: memory does not grow with the number of attempts."""
    acknowledged: dict[Partition, dict[int, tuple[int, int]]] = {}
    for part in attempts:
        ret = np.sort(part.ret[part.ok])
        cell = ret // max(bound, 1)
        starts = np.flatnonzero(np.diff(cell, prepend=-1))
        of_cell = acknowledged.setdefault(part.partition, {})
        for at, end in pairwise([*starts.tolist(), len(ret)]):
            first, last = of_cell.get(int(cell[at]), (INF, -1))
            of_cell[int(cell[at])] = min(first, int(ret[at])), max(last, int(ret[end - 1]))
    silences: dict[Partition, list[_Silence]] = {}
    for partition, of_cell in acknowledged.items():
        spans = [span for _, span in sorted(of_cell.items())]
        for (_, since), (following, _) in pairwise([*spans, (INF, INF)]):
            if min(following, ends) - since > bound:
                silences.setdefault(partition, []).append(_Silence(since, min(following, ends)))
    return silences


@dataclass
class _Silence:
    """A time without an acknowledgement. `asked`: the time from which a client waits for one, INF without such a
    client. `starts`, `reaches`: the attempts from then on, those without a pause between them as one."""

    since: int
    until: int
    asked: int = INF
    starts: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    reaches: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def find_asked(self, part: Attempts) -> None:
        """Lower `asked` by these attempts."""
        if ((part.inv <= self.since) & (self.since < part.ret) & (part.ret < INF)).any():
            self.asked = self.since
        later = part.inv[part.inv > self.since]
        self.asked = min(self.asked, int(later.min(initial=INF)))

    def cover(self, part: Attempts, bound: int) -> None:
        """Add the attempts that were in progress within the bound after `asked`. An append of unknown outcome counts at
        its invocation, because the history lacks how long the client waited for it."""
        over = np.where(part.ret == INF, part.inv, part.ret)
        is_due = (part.inv <= self.asked + bound) & (over > self.asked)
        starts, reaches = np.append(self.starts, part.inv[is_due]), np.append(self.reaches, over[is_due])
        order = np.argsort(starts, kind="stable")
        starts, reaches = starts[order], np.maximum.accumulate(reaches[order])
        pauses = np.flatnonzero(starts[1:] - reaches[:-1] > bound // HOLES)
        self.starts = starts[np.append(0, pauses + 1)] if len(starts) else starts
        self.reaches = reaches[np.append(pauses, len(reaches) - 1)] if len(starts) else reaches

    def goes_on(self, bound: int) -> bool:
        """Whether attempts follow each other from `asked` until the bound, with pauses of at most bound / HOLES."""
        covered = self.asked
        for start, reach in zip(self.starts.tolist(), self.reaches.tolist(), strict=True):
            if start - covered > bound // HOLES:
                return False
            covered = max(covered, reach)
        return self.asked + bound - covered <= bound // HOLES


class Kept(NamedTuple):
    """A replica that was down from `since` to `until`, and the in-sync set in which `leader` kept it."""

    partition: tuple[str, int]
    node: str
    since: int
    until: int
    leader: str
    isr: tuple[int, ...]


class IsrReport(NamedTuple):
    """The in-sync set that a leader reported, at a time of the run's clock."""

    at: int
    node: str
    partition_epoch: int
    isr: tuple[int, ...]
    leads: bool


def kept(
    cluster: ObservedCluster, ids: Mapping[str, int], reports: Mapping[tuple[str, int], Sequence[IsrReport]], bound: int
) -> Iterator[Kept | None]:
    """P2: each time for which a replica had to leave the in-sync set, or None if it left."""
    for partition, changes in sorted(reports.items()):
        for touch in cluster.touches:
            start, end = touch.down_from, touch.healed
            if INF in (start, end) or end - start <= bound or touch.node not in cluster.replicas.get(partition, ()):
                continue
            untouched = cluster.untouched(start, end)
            earlier_reports = [report for report in changes if report.at <= end]
            if not earlier_reports or not cluster.has_majority(untouched):
                continue
            last_report = max(earlier_reports, key=lambda report: report.partition_epoch)
            if not last_report.leads or last_report.node not in untouched:
                continue
            stays = ids[touch.node] in last_report.isr
            yield Kept(partition, touch.node, start, end, last_report.node, last_report.isr) if stays else None
