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

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from history.damage import OTHER_DISK, Damage
from history.schemas import INF

Line = Mapping[str, Any]
LASTING: Final = OTHER_DISK | {Damage.SYNCED}
HOLES: Final = 3
"""Clients keep sending if no pause between their attempts is longer than the bound divided by this."""


class Attempt(NamedTuple):
    """An append with acks = all. `ret` is INF if it never returned."""

    inv: int
    ret: int
    ok: bool


class Touch(NamedTuple):
    """A fault touches a node from `begin` to `end`. `down_from`: the time at which the node was first seen down or
    suspended, or INF. `healed`: the time at which its heal had ended."""

    node: str
    begin: int
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

    def untouched(self, begin: int, end: int) -> set[str]:
        """The nodes that nothing touches between two times."""
        touched = {each.node for each in self.touches if each.begin < end and each.end > begin}
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


def touches_of(journal: Iterable[Line], settle_ns: int) -> list[Touch]:
    """The journal's faults as touches of nodes. A touch lasts for `settle_ns` after a heal."""
    found: dict[str, tuple[Line, int, int]] = {}
    others: list[Touch] = []
    for line in journal:
        event = line.get("event")
        if event == "fault_invoked":
            found[line["id"]] = (line, INF, INF)
        elif event == "fault_injected" and line["id"] in found and line["status"] == "confirmed":
            found[line["id"]] = (found[line["id"]][0], line["t"], INF)
        elif event == "fault_healed" and line["id"] in found:
            found[line["id"]] = (*found[line["id"]][:2], line["t"])
        elif event == "service_exit":
            others.append(Touch(line["node"], line["t"], INF, INF, INF))
    return others + [touch for fault in found.values() for touch in _of(*fault, settle_ns)]


def _of(invoked: Line, injected: int, healed: int, settle_ns: int) -> Iterator[Touch]:
    damage = set(invoked.get("may_destroy", ()))
    pairs = invoked["parameters"].get("pairs") or ()
    lasts = healed == INF or "may_destroy" not in invoked or not damage.isdisjoint(LASTING)
    end = INF if lasts else healed + settle_ns
    down = injected if Damage.PROGRESS in damage else INF
    for node in dict.fromkeys((*invoked["targets"], *(node for pair in pairs for node in pair))):
        yield Touch(str(node), invoked["t"], end, down if node in invoked["targets"] else INF, healed)


def gaps(
    cluster: ObservedCluster, attempts: Mapping[tuple[str, int], Sequence[Attempt]], ends: int, bound: int
) -> Iterator[Gap | None]:
    """P1: each time for which an acknowledgement was due, or None if it arrived. `ends`: when the load ended."""
    for partition, tried in sorted(attempts.items()):
        replicas = set(cluster.replicas.get(partition, ()))
        acks = sorted(each.ret for each in tried if each.ok)
        ordered = sorted(tried)
        for number, since in enumerate(acks):
            until = min(acks[number + 1] if number + 1 < len(acks) else INF, ends)
            if until - since <= bound:
                continue
            asked = _asked_from(ordered, since)
            if asked is None or asked + bound > ends or not _goes_on(ordered, asked, asked + bound, bound // HOLES):
                continue
            untouched = cluster.untouched(since, asked + bound)
            least = min(cluster.least, len(replicas))
            fine = len(replicas - untouched) < least <= len(replicas & untouched)
            if not replicas or not fine or not cluster.has_majority(untouched):
                continue
            late = until - asked > bound
            yield Gap(partition, since, asked, until, tuple(sorted(untouched))) if late else None


def _asked_from(ordered: Sequence[Attempt], since: int) -> int | None:
    """The time from which a client waits for an acknowledgement after `since`; None without such a client."""
    if any(each.inv <= since < each.ret < INF for each in ordered):
        return since
    at = bisect_right(ordered, since, key=lambda each: each.inv)
    return ordered[at].inv if at < len(ordered) else None


def _goes_on(ordered: Sequence[Attempt], begin: int, end: int, hole: int) -> bool:
    """Whether attempts follow each other from `begin` to `end` with pauses of at most `hole`. An append of unknown
    outcome counts at its invocation, because the history lacks how long the client waited for it."""
    covered = begin
    for each in ordered:
        if each.inv > end:
            break
        if each.inv - covered > hole:
            return False
        covered = max(covered, each.inv if each.ret == INF else each.ret)
    return end - covered <= hole


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
            begin, end = touch.down_from, touch.healed
            if INF in (begin, end) or end - begin <= bound or touch.node not in cluster.replicas.get(partition, ()):
                continue
            untouched = cluster.untouched(begin, end)
            before = [each for each in changes if each.at <= end]
            if not before or not cluster.has_majority(untouched):
                continue
            last = max(before, key=lambda each: each.partition_epoch)
            if not last.leads or last.node not in untouched:
                continue
            stays = ids[touch.node] in last.isr
            yield Kept(partition, touch.node, begin, end, last.node, last.isr) if stays else None
