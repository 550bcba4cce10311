"""The interface of checkers: their input (`CheckedRun`), their result (`Outcome`) and their declaration (`Checker`).

An input has the plan of its run (`Plan`): nodes, replicas, clients and phases. The record must have evidence of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.core.anomaly import Anomaly, AnomalyKind
from analysis.doubt import EVIDENCE_CHANGED, MAY_BE_FORGOTTEN, TESTER_SHORT, UNDECIDED, Reason
from analysis.engines.processor_time import Meter
from analysis.evidence.tester_shortages import cause_of, shortages
from analysis.verdict import NOT_APPLICABLE, UNKNOWN
from history.journal.writer import PHASES
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.deletion_rules import ReplicaStart
    from analysis.core.offset_ranges import Key
    from analysis.core.registers import RegisterReport
    from analysis.engines.log import CheckedRanges, LogPlan
    from analysis.engines.register import OrderPart, RegisterPlan
    from analysis.engines.task_map import SparkTasks, TaskMap
    from analysis.evidence.deletions import Deletions
    from analysis.evidence.run_directory import NodeEvents, RunDescription
    from history.reader import History

Replicas = Mapping[tuple[str, int], tuple[str, ...]]

_UNSETTLED: Final = "the journal does not say which nodes hold the partitions' replicas"


@dataclass(frozen=True)
class Plan:
    """`nodes`: names, in the order of their numbers. `replicas`: for each (topic, partition) its nodes, the preferred
    leader first. `clients`: the clients that every run of this plan starts; scripts start more. `phases`: in order.

    `doubts`: why the plan is not fully known, as sentences; such a run proves nothing.
    """

    nodes: tuple[str, ...]
    replicas: Replicas
    clients: tuple[str, ...]
    phases: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def plan_of(description: RunDescription, history: History) -> Plan:
    """The plan of a run from run.toml; replica placement comes from the journal if only the run decided it."""
    replicas, doubts = _replicas(description, history)
    return Plan(
        nodes=description.node_names,
        replicas=replicas,
        clients=description.plan.clients,
        phases=PHASES,
        doubts=(*description.defects, *doubts),
    )


def _replicas(description: RunDescription, history: History) -> tuple[Replicas, list[str]]:
    planned, settled = description.assignment, history.assignment
    if not description.workload.partitions:
        return {}, []
    doubts = [_UNSETTLED] if settled is None else []
    if planned is not None and settled is not None and planned != settled:
        doubts.append("the journal's placement of the partitions' replicas differs from run.toml's")
    rows = settled if planned is None else planned
    if rows is None:
        return {}, doubts
    if planned is None and len(rows) != description.workload.partitions:
        doubts.append(f"{counted(description.workload.partitions, 'partition')} planned, {len(rows)} in the journal")
    if history.has_uncertain_reassignment:
        doubts.append("a reassignment of replicas was never answered: they may be the earlier or the new ones")
    names = dict(enumerate(description.node_names, 1))
    moved = history.reassigned
    if strange := sorted(set(moved) - set(range(len(rows)))):
        doubts.append(f"the journal has other replicas of partitions that are not in the plan: {strange}")
    unknown = sorted({str(number) for ids in (*rows, *moved.values()) for number in ids if number not in names})
    if unknown:
        doubts.append(f"replicas are on nodes that are not in the plan: {', '.join(unknown)}")
    placed = {
        (description.workload.topic, partition): tuple(names[number] for number in ids if number in names)
        for partition, ids in enumerate(moved.get(partition, ids) for partition, ids in enumerate(rows))
    }
    return placed, doubts


@dataclass(frozen=True)
class CheckedRun:
    """A run to analyze: its directory, in which `tables/` has been written, and what was read from it.

    `events`: the nodes' protocol events, read once for all checkers. `spark`: the map over Spark's workers;
    None: this process does the work. `meter`: counts the tasks.
    """

    directory: Path
    description: RunDescription
    history: History
    events: NodeEvents
    spark: SparkTasks | None = None
    meter: Meter = field(default_factory=Meter)

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    @property
    def plan(self) -> Plan:
        return plan_of(self.description, self.history)

    def spread(self, rows: int = 0) -> TaskMap:
        """The engine's map, for tasks that read this many rows."""
        from analysis.engines.task_map import task_map

        return self.meter.counted(task_map(self.spark, rows))

    @cached_property
    def deletions(self) -> Deletions:
        """The deletions that clients asked for."""
        from analysis.evidence.deletions import deletions_of

        return deletions_of(self.description.workload.topic, self.history.journal)

    @cached_property
    def final_starts(self) -> tuple[Sequence[ReplicaStart], Sequence[str]]:
        """Where the logs of replicas finally start, in partitions whose records clients or a setting may remove; and
        the files that could not be read, as sentences."""
        from analysis.engines.deleted_records import final_starts
        from analysis.engines.replica import STORE

        if not self.description.has_replica_files or "final" not in self.history.phase_names:
            return (), ()
        is_tiered = self.description.workload.topic_settings.get("remote.storage.enable") == "true"
        requested = self.deletions.requested
        return final_starts(
            {node: self.directory / "nodes" / node / "data" for node in self.plan.nodes},
            {key: nodes for key, nodes in self.plan.replicas.items() if self.forgetting or key in requested},
            self.deletions.answered,
            store=self.directory / STORE if is_tiered else None,
            at_s=self.history.clock.of_monotonic(self.history.journal[-1]["t"]),
        )

    @cached_property
    def removable(self) -> Mapping[Key, int]:
        """By partition, the offset below which records may be absent: clients asked to delete them, or a setting lets
        them expire and the log of a replica finally starts above; INF if that start is unknown. The checker of
        deletions judges it."""
        from analysis.replicafiles.kafka import may_delete, stores_elsewhere
        from history.record.schemas import INF

        removable, settings = dict(self.deletions.requested), self.description.setting_layers
        if not self.description.has_replica_files or not any(map(may_delete, settings)):
            return removable
        starts, doubts = self.final_starts
        if not starts or doubts or any(map(stores_elsewhere, settings)):
            removable |= dict.fromkeys(self.plan.replicas, INF)
        for start in starts:
            removable[start.key] = max(removable.get(start.key, 0), start.offset)
        return removable

    @cached_property
    def log_ranges(self) -> tuple[LogPlan, TaskMap, CheckedRanges]:
        """The plan of the log check, the engine's map and what was concluded: the check and the certificate share them.
        Raises DamagedError."""
        from analysis.engines.log import LogPlan, check_ranges

        plan = LogPlan.of(self.tables, deleted=self.removable)
        spread = self.spread(plan.rows)
        return plan, spread, check_ranges(plan, spread, self.description.checks.upper_bound)

    @cached_property
    def register_orders(self) -> tuple[RegisterPlan, RegisterReport, Sequence[OrderPart]]:
        """The plan of the register check, its report, and the files of the orders that it wrote into the directory of
        the certificate. Raises DamagedError."""
        from analysis.engines.register import RegisterPlan, check_and_order
        from analysis.verdict import CERTIFICATE

        plan = RegisterPlan.of(self.tables)
        return plan, *check_and_order(plan, self.spread(plan.weight), self.directory / CERTIFICATE)

    @cached_property
    def changed(self) -> Mapping[str, str]:
        """The evidence files that are known to have changed since the run or a client finished them: a sentence for
        each name."""
        from history import seal

        of_clients = {
            f"history/operations/{name}": reason
            for record in self.history.records
            for name, reason in record.changed.items()
        }
        return of_clients | seal.changed(self.directory)

    @property
    def forgetting(self) -> tuple[str, ...]:
        """The settings that allow the system to remove committed records; a missing record is then not necessarily
        lost. Empty for a system whose node files have no reader: its settings are not understood and excuse nothing."""
        from analysis.replicafiles.kafka import compacts, may_delete

        if not self.description.has_replica_files:
            return ()
        settings = dict.fromkeys(pair for table in self.description.setting_layers for pair in table.items())
        return tuple(
            f"{name} = {value}" for name, value in settings if may_delete({name: value}) or compacts({name: value})
        )

    @property
    def may_lack_writes(self) -> bool:
        """Whether a client may have written values that are not recorded."""
        return self._lacks_clients or any(not record.announced for record in self.history.records)

    def may_have_written(self, value: int) -> bool:
        """Whether an unrecorded value may have been written, by a client whose record is missing or incomplete. A read
        of such a value proves nothing."""
        return self._lacks_clients or self.history.may_have_written(value)

    @property
    def _lacks_clients(self) -> bool:
        """Whether clients are missing from the journal. Their values are unknown."""
        clients = {record.client for record in self.history.records}
        return bool(self.history.journal_defects) or not clients >= set(self.plan.clients)


PLAN: Final = r"run\.toml"
JOURNAL: Final = r"history/journal\.jsonl"
OPERATIONS: Final = r"history/operations(/.*)?"
"""The evidence of a run that checkers read, under the seal's names."""


@dataclass(frozen=True)
class Outcome:
    """The result of a checker: a verdict (`pass`, `fail`, `unknown`, `n/a`), one sentence of detail, the anomalies that
    it found, and other reasons why the run cannot be a pass."""

    verdict: str
    detail: str
    anomalies: tuple[Anomaly, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checker:
    """One checker.

    `question`: what it decides, for the documentation. `place`: checkers run in ascending order of it. `judge`: the
    checker applies to runs whose workload names it so (`[workload] judge` in run.toml) and checks their operations;
    None: it checks something else and applies to every run. `check` may raise any exception: the run is then unknown.
    `may_rest`: whether `n/a` is a valid result for a run of this description; for others it is a doubt. `certify`:
    writes a proof of its pass and has it verified; called when no checker has found anything. `reasons`: why it can
    leave a run unknown; the first one applies to every doubt that names none.
    """

    name: str
    question: str
    place: int
    anomalies: tuple[AnomalyKind, ...]
    check: Callable[[CheckedRun], Outcome]
    reasons: tuple[Reason, ...] = (UNDECIDED,)
    judge: str | None = None
    certify: Callable[[CheckedRun], Outcome] | None = None
    may_rest: Callable[[RunDescription], bool] = lambda _: False
    reads: str = ".*"

    def applies(self, run: CheckedRun) -> bool:
        return self.judge is None or run.description.workload.judge == self.judge

    def judged(self, run: CheckedRun) -> Outcome:
        """The checker's outcome for a run. An anomaly becomes a doubt when its evidence was modified after the run, or
        when the tester itself may have caused it. A checker that compared nothing leaves the run unknown, unless
        nothing had to be compared."""
        outcome = without_the_testers(self._with_promises(self.check(run)), run)
        if outcome.verdict == NOT_APPLICABLE and not self.may_rest(run.description):
            return replace(outcome, verdict=UNKNOWN)
        if not outcome.anomalies:
            return outcome
        changed = [sentence for name, sentence in run.changed.items() if re.fullmatch(self.reads, name, re.DOTALL)]
        if not changed:
            return outcome
        doubts = EVIDENCE_CHANGED.say(
            f"{anomaly.name}, from evidence that was changed: {anomaly.sentence}" for anomaly in outcome.anomalies
        )
        detail = f"{counted(len(outcome.anomalies), 'anomaly', 'anomalies')} without proof: {first_of(changed)}"
        return Outcome(UNKNOWN, detail, (), (*outcome.doubts, *doubts))

    def _with_promises(self, outcome: Outcome) -> Outcome:
        """The outcome, with the code of the broken promise in each anomaly. Raises KeyError for an undeclared
        anomaly."""
        codes = {kind.name: kind.breaks.code for kind in self.anomalies}
        return replace(
            outcome, anomalies=tuple(replace(anomaly, promise=codes[anomaly.kind]) for anomaly in outcome.anomalies)
        )


def without_the_testers(outcome: Outcome, run: CheckedRun) -> Outcome:
    """Replaces each anomaly that the tester may have caused, because it ran out of a resource, by a doubt."""
    shortage = shortages(run.history.journal)
    causes = [(anomaly, cause_of(anomaly, shortage)) for anomaly in outcome.anomalies]
    doubts = TESTER_SHORT.say(f"{anomaly.name}: {anomaly.sentence}; but {cause}" for anomaly, cause in causes if cause)
    if not doubts:
        return outcome
    proven = tuple(anomaly for anomaly, cause in causes if not cause)
    verdict = outcome.verdict if proven else UNKNOWN
    detail = (
        outcome.detail if proven else f"{counted(len(doubts), 'anomaly', 'anomalies')} that the tester may have caused"
    )
    return Outcome(verdict, detail, proven, (*outcome.doubts, *doubts))


def apart_from_forgotten(
    anomalies: Sequence[Anomaly], name: str, forgetting: Sequence[str]
) -> tuple[tuple[Anomaly, ...], tuple[str, ...]]:
    """The proven anomalies, and doubts in place of the anomalies called `name`. Where a log may remove records, a
    record that a read skipped may have been removed before. Without such settings all anomalies are proven."""
    if not forgetting:
        return tuple(anomalies), ()
    reason = f"the system may have forgotten it lawfully: {first_of(forgetting, ', ')}"
    doubts = MAY_BE_FORGOTTEN.say(
        f"{anomaly.name}: {anomaly.sentence}; {reason}" for anomaly in anomalies if anomaly.name == name
    )
    return tuple(anomaly for anomaly in anomalies if anomaly.name != name), doubts


MOST_NAMED: Final = 3


def first_of(items: Sequence[str], separator: str = "; ") -> str:
    """The first `MOST_NAMED` items and the number of the others, for a sentence."""
    unnamed = len(items) - MOST_NAMED
    return separator.join(items[:MOST_NAMED]) + (f"{separator}and {unnamed} more" if unnamed > 0 else "")
