"""Delta debugging: removes more and more of a failed run while the same anomaly remains (Zeller and Hildebrandt, 2002).

Every candidate is an ordinary campaign, run in the simulation. Tried repeatedly in this order until nothing more can be
removed: faults with their ends, other steps, single steps, clients and load, nodes and partitions, waits; finally, a
disk that other worlds have in place of one that they lack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from nemeses import INJECTED_BY
from orchestrator.campaign.model import FILESYSTEMS, STRICT
from orchestrator.search.campaign_document import Document
from orchestrator.search.steps_of_run import StepTable

T = TypeVar("T")
_LEAST_RATE: Final = 5.0  # operations a second
_LEAST_WAIT_S: Final = 0.05
ShrinkTrial = Callable[[Document], bool]
"""Returns whether a campaign still shows the anomaly, and remembers the smallest one that did."""


def ddmin(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """A 1-minimal part of the items for which `holds` is true: no single item can be removed. `holds` must be true for
    all of them."""
    part = list(items)
    if not part or holds([]):
        return []
    parts = 2
    while len(part) > 1:
        size = math.ceil(len(part) / parts)
        for begin in range(0, len(part), size):
            remainder = part[:begin] + part[begin + size :]
            if remainder and holds(remainder):
                part, parts = remainder, max(2, parts - 1)
                break
        else:
            if parts >= len(part):
                break
            parts = min(len(part), 2 * parts)
    return part


def shrink(document: Document, holds: ShrinkTrial) -> Document:
    """The smallest campaign found; `document` must hold. Exceptions of `holds` that stop the search are raised."""
    while True:
        previous = document
        document = _fewer_steps(document, holds, pairs(document.steps))
        document = _as_far_as_it_goes(document, _joined_waits, holds)
        document = _fewer_steps(document, holds, [[number] for number in range(len(document.steps))])
        for smaller in (_smaller_load, _fewer_nodes, _usual_disk, _shorter_waits, _smaller_produces):
            document = _as_far_as_it_goes(document, smaller, holds)
        if document == previous:
            return document


def pairs(steps: Sequence[StepTable]) -> list[list[int]]:
    """The positions of each fault's start, together with its own end if it has one."""
    positions = []
    paired = set[int]()
    for begin, step in enumerate(steps):
        if step["do"] not in INJECTED_BY:
            continue
        end = next((at for at in range(begin + 1, len(steps)) if at not in paired and _ends(steps[at], step)), None)
        paired |= {begin} if end is None else {begin, end}
        positions.append([begin] if end is None else [begin, end])
    return positions


def _ends(step: StepTable, injection: StepTable) -> bool:
    kind = INJECTED_BY[injection["do"]]
    target_keys = ("between",) if kind.takes == "groups" else ("node",)
    return step["do"] == kind.healed_by and all(step.get(key) == injection.get(key) for key in target_keys)


def _fewer_steps(document: Document, holds: ShrinkTrial, groups: list[list[int]]) -> Document:
    """Remove as many of these groups of steps as possible."""
    steps = document.steps
    fixed = set(range(len(steps))) - {number for group in groups for number in group}

    def with_groups(kept_groups: list[list[int]]) -> Document:
        stay = fixed | {number for group in kept_groups for number in group}
        return document.with_steps([step for number, step in enumerate(steps) if number in stay])

    return with_groups(ddmin(groups, lambda kept_groups: holds(with_groups(kept_groups))))


def _as_far_as_it_goes(
    document: Document, smaller: Callable[[Document], Iterator[Document]], holds: ShrinkTrial
) -> Document:
    """Take the first change that holds, and continue from there until none does."""
    while True:
        for candidate in smaller(document):
            if holds(candidate):
                document = candidate
                break
        else:
            return document


def _smaller_load(document: Document) -> Iterator[Document]:
    """Fewer clients of each kind down to zero, then a lower rate, one partition, and the fewest replicas for that."""
    load = document.workload
    for key, default in (("consumers", 2), ("producers", 3), ("members", 0)):
        now = int(load.get(key, default if load.get("kind", "log").startswith("log") else 0))
        yield from _with_load(document, key, [few for few in (0, 1, now // 2) if few < now])
    partitions = int(load.get("partitions", 4))
    if "assignment" not in load:
        yield from _with_load(document, "partitions", [few for few in (1, partitions // 2) if 0 < few < partitions])
    rate = float(load.get("rate", 100.0))
    if rate / 2 >= _LEAST_RATE and any(int(load.get(key, 1)) for key in ("producers", "consumers")):
        yield from _with_load(document, "rate", [rate / 2])


def _with_load(document: Document, key: str, values: Sequence[Any]) -> Iterator[Document]:
    for value in values:
        yield document.having("workload", {**document.workload, key: value})


def _fewer_nodes(document: Document) -> Iterator[Document]:
    """One node less, with at most as many replicas as nodes."""
    nodes = document.nodes - 1
    if nodes < 1 or "assignment" in document.workload:
        return
    fewer = document.having("topology", {**document.data["topology"], "nodes": nodes})
    replicas = int(document.workload.get("replication_factor", 3))
    yield from _with_load(fewer, "replication_factor", [min(replicas, nodes)])


def _usual_disk(document: Document) -> Iterator[Document]:
    """A filesystem that every world has, if the simulation's own is not needed."""
    topology = document.data["topology"]
    if topology.get("filesystem") == STRICT:
        yield from (document.having("topology", {**topology, "filesystem": filesystem}) for filesystem in FILESYSTEMS)


def _joined_waits(document: Document) -> Iterator[Document]:
    """Adjacent waits joined into one."""
    joined: list[StepTable] = []
    for step in document.steps:
        if joined and "seconds" in step and "seconds" in joined[-1]:
            joined[-1] = {**joined[-1], "seconds": round(_seconds(joined[-1]) + _seconds(step), 3)}
        else:
            joined.append(step)
    if len(joined) < len(document.steps):
        yield document.with_steps(joined)


def _shorter_waits(document: Document) -> Iterator[Document]:
    """One wait for seconds halved, the longest first."""
    steps = document.steps
    waits = sorted(
        (number for number, step in enumerate(steps) if "seconds" in step), key=lambda at: -_seconds(steps[at])
    )
    for at in waits:
        if _seconds(steps[at]) / 2 >= _LEAST_WAIT_S:
            yield _changed(document, at, {"seconds": round(_seconds(steps[at]) / 2, 2)})


def _seconds(step: StepTable) -> float:
    return float(step["seconds"])


def _smaller_produces(document: Document) -> Iterator[Document]:
    """One step with a smaller append."""
    for at, step in enumerate(document.steps):
        if step["do"] == "produce" and int(step.get("count", 1)) > 1:
            yield _changed(document, at, {"count": 1})
            yield _changed(document, at, {"count": int(step["count"]) // 2})


def _changed(document: Document, at: int, values: StepTable) -> Document:
    steps = document.steps
    return document.with_steps([*steps[:at], {**steps[at], **values}, *steps[at + 1 :]])
