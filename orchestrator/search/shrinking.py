"""Delta debugging: removes more and more of a failed run while the same anomaly remains (Zeller and Hildebrandt, 2002).

Every candidate is an ordinary campaign, run in the simulation. Tried repeatedly in this order until nothing more can be
removed: faults with their ends, other steps, single steps, clients and load, nodes and partitions, waits; finally, a
disk that other worlds have in place of one that they lack. Of a schedule, whose faults have exact moments: faults,
clients and load, nodes and partitions, the end of the load. The moments of its faults stay.

The candidates run within a budget, and the smallest one that still shows the anomaly stays (`Trials`).
"""

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from analysis.verdict import FAIL, UNKNOWN, first_reasons
from nemeses import INJECTED_BY
from orchestrator.campaign.model import FILESYSTEMS, STRICT
from orchestrator.campaign.swarm import faults_of
from orchestrator.errors import UsageError
from orchestrator.search.campaign_document import Document, planned
from orchestrator.search.run_maker import Made, Maker
from orchestrator.search.steps_of_run import StepTable
from orchestrator.store.directories import Store
from systems.errors import InputError
from workloads.kind import Workload

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
        if document.moments:
            document = _fewer_moments(document, holds)
        else:
            document = _fewer_steps(document, holds, pairs(document.steps))
            document = _as_far_as_it_goes(document, _joined_waits, holds)
            document = _fewer_steps(document, holds, [[number] for number in range(len(document.steps))])
        for smaller in (_smaller_load, _fewer_nodes, _shorter_load, _usual_disk, _shorter_waits, _smaller_produces):
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


def _fewer_moments(document: Document, holds: ShrinkTrial) -> Document:
    """Remove as many faults of a schedule as possible, down to one. The others keep their moments."""
    return document.with_moments(
        ddmin(document.moments, lambda moments: bool(moments) and holds(document.with_moments(moments)))
    )


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
    """One node less, with at most as many replicas as nodes. Where a fault takes records from a disk and another one
    still has them, that must stay so: otherwise the loss is the fault's, and not the broker's."""
    nodes = document.nodes - 1
    if nodes < 1 or "assignment" in document.workload:
        return
    fewer = document.having("topology", {**document.data["topology"], "nodes": nodes})
    replicas = int(document.workload.get("replication_factor", 3))
    endured = partial(faults_of, document.kinds, flushes=document.flushes)
    if endured(document.nodes, replicas) == endured(nodes, min(replicas, nodes)):
        yield from _with_load(fewer, "replication_factor", [min(replicas, nodes)])


def _shorter_load(document: Document) -> Iterator[Document]:
    """The load of a schedule ends soon after its last fault, or halfway to that."""
    if not document.moments:
        return
    duration_s = float(document.workload.get("duration_s", Workload().duration_s))
    least_s = math.ceil(max(moment["at_s"] + moment["duration_s"] for moment in document.moments))
    shorter = [end_s for end_s in (least_s, round((least_s + duration_s) / 2)) if end_s < duration_s]
    yield from _with_load(document, "duration_s", shorter)


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


_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


class TrialFinding(Enum):
    """What one run shows: nothing, or the anomaly, in a finished or unfinished run."""

    NOTHING = auto()
    UNFINISHED = auto()
    FINISHED = auto()


class SpentError(Exception):
    """The budget is used up."""


@dataclass
class Budget:
    """A number of runs, or seconds of this machine's time; None is unlimited."""

    runs: int | None = None
    seconds: float | None = None
    spent_runs: int = 0

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()

    @classmethod
    def of(cls, text: str) -> "Budget":
        """`200`: runs; `90s`, `10m`, `1h`: time. Raises `UsageError`."""
        match = re.fullmatch(r"([1-9]\d*)([smh]?)", text)
        if match is None:
            raise UsageError(f"--budget {text}: give a number of runs, such as 200, or a time, such as 90s, 10m or 1h")
        if not match[2]:
            return cls(runs=int(match[1]))
        return cls(seconds=int(match[1]) * _UNITS[match[2]])

    def spend(self) -> None:
        """Call before each run. Raises `SpentError`."""
        by_runs = self.runs is not None and self.spent_runs >= self.runs
        if by_runs or (self.seconds is not None and time.monotonic() - self._began_s >= self.seconds):
            raise SpentError
        self.spent_runs += 1

    def __str__(self) -> str:
        return f"{self.spent_runs}" + (f" of {self.runs}" if self.runs is not None else "") + " runs"


class Trials:
    """Runs candidates in a temporary store. `best`: the last one that held, with a seed that showed it. `undecided`:
    the reason of each run that was not decided; such a run counts as not showing the anomaly.

    A run shows the anomaly when it finishes, fails, and its verdict names it. If no run of the first candidate
    finishes, because the failure prevents that, the others need not finish either (`to_the_end`). Each candidate is run
    with `tries` seeds, and holds when at least as many of them show it as for the first one: a reduction must not make
    it rarer."""

    def __init__(
        self,
        maker: Maker,
        scratch: Path,
        anomaly: str,
        budget: Budget,
        *,
        seed: int,
        tries: int,
        heard: Callable[[Document, Budget], None],
    ) -> None:
        self._maker = maker
        self._store = Store(scratch)
        self._anomaly = anomaly
        self._budget = budget
        self._seeds = [seed + number for number in range(tries)]
        self._heard = heard
        self._known: dict[str, bool] = {}
        self._needed = 0
        self.to_the_end = True
        self.best: Document | None = None
        self.undecided: list[str] = []

    def __call__(self, candidate: Document) -> bool:
        """Raises `SpentError` when the budget is used up, `Interrupted` when the user interrupts, and as `shows`."""
        text = candidate.text()
        if text not in self._known:
            self._known[text] = self._holds(candidate) if self._needed else self._settle(candidate)
        if self._known[text]:
            self.best = candidate.having("seeds", {"first": self._seeds[0], "count": 1})
            self._heard(candidate, self._budget)
        return self._known[text]

    def _settle(self, document: Document) -> bool:
        """Determine how many seeds must show it from now on, and put those that did first."""
        findings = {seed: self._finding(document, seed) for seed in self._seeds}
        self.to_the_end = TrialFinding.FINISHED in findings.values() or TrialFinding.UNFINISHED not in findings.values()
        shown = [seed for seed in self._seeds if self._counts(findings[seed])]
        self._seeds = [*shown, *(seed for seed in self._seeds if seed not in shown)]
        self._needed = len(shown)
        return bool(shown)

    def _holds(self, candidate: Document) -> bool:
        """Stops as soon as the result is certain."""
        shown = 0
        for remaining, seed in zip(range(len(self._seeds), 0, -1), self._seeds, strict=True):
            if shown == self._needed or shown + remaining < self._needed:
                break
            shown += self.shows(candidate, seed)
        return shown >= self._needed

    def shows(self, candidate: Document, seed: int, *, free: bool = False) -> bool:
        """Whether one run shows the anomaly. An invalid campaign shows nothing and costs nothing; a `free` one
        costs nothing. Raises `OSError`, or an error caused by one, when the machine cannot make runs, which says
        nothing about the candidate."""
        return self._counts(self._finding(candidate, seed, free=free))

    def _counts(self, finding: TrialFinding) -> bool:
        return finding is TrialFinding.FINISHED or (finding is TrialFinding.UNFINISHED and not self.to_the_end)

    def _finding(self, candidate: Document, seed: int, *, free: bool = False) -> TrialFinding:
        try:
            campaign = candidate.campaign(self._store.root / "candidate.toml")
        except InputError:
            return TrialFinding.NOTHING
        if not free:
            self._budget.spend()
        plan = planned(campaign, self._store.new_stamp(), seed)
        try:
            return self._found_in(self._maker.make(plan), seed)
        except Exception as error:
            if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                raise  # the disk may be full
            self.undecided.append(f"seed {seed}: {type(error).__name__}: {error}")
            return TrialFinding.NOTHING  # an error in the simulation or in the analysis proves nothing
        finally:
            shutil.rmtree(self._store.campaign_dir(campaign.name) / plan.id, ignore_errors=True)

    def _found_in(self, made: Made, seed: int) -> TrialFinding:
        if made.verdict.verdict == UNKNOWN:
            self.undecided.append(f"seed {seed}: {'; '.join(first_reasons(made.verdict.reasons, 2))}")
        if made.verdict.verdict != FAIL or self._anomaly not in made.anomalies:
            return TrialFinding.NOTHING
        return TrialFinding.FINISHED if made.finished else TrialFinding.UNFINISHED
