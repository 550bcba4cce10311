"""Liveness during faults: checks histories, journal and traces for progress of untouched partitions.
`analysis/core/progress.py` states the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.replicas import RECOVERS
from analysis.core.anomaly import Anomaly, AnomalyKind
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS
from installation.counted import counted
from installation.sanitize import plain

if TYPE_CHECKING:
    from analysis.core.progress import Attempts, Gap, IsrReport, Kept, ObservedCluster
    from analysis.evidence.run_directory import RunDescription

NO_ACKNOWLEDGEMENT: Final = AnomalyKind(
    "no-acknowledgement",
    RECOVERS,
    "A majority of the nodes and enough in-sync replicas of a partition were unaffected by faults "
    "for longer than the bound, clients sent writes, and no write was acknowledged.",
)
ISR_NOT_SHRUNK: Final = AnomalyKind(
    "isr-not-shrunk",
    RECOVERS,
    "A replica that a fault had stopped for longer than the bound stayed in the ISR, while a "
    "majority of the nodes and the leader were unaffected.",
)
LEAST_S, SLACK_S, ROUNDS = 20.0, 10.0, 2
_TIMES: Final[Mapping[str, float]] = {"broker.session.timeout.ms": 9_000, "replica.lag.time.max.ms": 30_000}
"""The time in which a system gives up a broker and a replica; Apache Kafka's defaults if run.toml names none."""
MOVES: Final = ("reassign", "move")


def bound_s(description: RunDescription) -> float:
    """The bound for progress of untouched partitions: `[checks] progress_s`, or derived from the run's settings;
    multiplied by the world's time scale."""
    if description.checks.progress_s is not None:
        return description.checks.progress_s * description.time_scale
    named = (max((float(row.get(key, "0")) for row in description.setting_layers), default=0.0) for key in _TIMES)
    times_ms = (set_ms or otherwise for set_ms, otherwise in zip(named, _TIMES.values(), strict=True))
    return max(LEAST_S, SLACK_S + ROUNDS * sum(times_ms) / 1000) * description.time_scale


def check(run: CheckedRun) -> Outcome:
    """Check the bound wherever the evidence shows that it applies."""
    from analysis.core.progress import gaps, kept

    description = run.description
    if not description.has_replica_files or description.workload.judge != "log":
        return Outcome(NOT_APPLICABLE, "the run has no replicated log with a known bound on progress")
    if any(move in step for step in description.steps for move in MOVES):
        return Outcome(NOT_APPLICABLE, "replicas were moved: which nodes had to go on is not known")
    seconds = bound_s(description)
    bound, cluster = int(seconds * 1e9), _cluster(run, seconds)
    demands = list(gaps(cluster, partial(_attempts, run), _load_end(run), bound))
    shown = list(kept(cluster, _ids(run), _told(run), ROUNDS * bound))
    anomalies = (
        *(_silent(gap, seconds) for gap in demands if gap is not None),
        *(_stayed(stay, ROUNDS * seconds) for stay in shown if stay is not None),
    )
    if anomalies:
        stalls = counted(len(anomalies), "stall")
        return Outcome(FAIL, f"{stalls} that no fault explains", _first_of_each(anomalies))
    if not demands and not shown:
        return Outcome(
            NOT_APPLICABLE, f"at no time was there evidence that the cluster had to go on within {seconds:g} s"
        )
    return Outcome(
        PASS,
        f"due within {seconds:g} s: {counted(len(demands), 'acknowledgement')} and "
        f"{counted(len(shown), 'smaller in-sync set')}",
    )


def _cluster(run: CheckedRun, seconds: float) -> ObservedCluster:
    from analysis.core.progress import ObservedCluster, touches_of

    required = max((int(row.get("min.insync.replicas", "1")) for row in run.description.setting_layers), default=1)
    touches = touches_of(run.history.journal, int(seconds * 1e9 / 2))
    return ObservedCluster(run.description.system.roles, run.plan.replicas, required, touches)


def _attempts(run: CheckedRun) -> Iterator[Attempts]:
    import pyarrow.compute as pc

    from analysis.core.progress import Attempts
    from history.record.operation_tables import by_key
    from history.record.schemas import ACKS_ALL, APPEND, OK
    from history.record.shapes import LOG

    for part in run.history.logs.parts("f", "acks", "topic", "partition", "inv", "ret", "type"):
        is_asked = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["acks"], ACKS_ALL))
        for place, rows in by_key(LOG, part.filter(is_asked)):
            yield Attempts(place, rows["inv"].to_numpy(), rows["ret"].to_numpy(), rows["type"].to_numpy() == OK)


def _load_end(run: CheckedRun) -> int:
    """When the main phase had ended; another checker covers what follows."""
    from history.record.schemas import INF

    return min((line["t"] for line in run.history.journal if line.get("name") == "heal"), default=INF)


def _ids(run: CheckedRun) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(run.description.node_names, 1)}


def _told(run: CheckedRun) -> Mapping[tuple[str, int], Sequence[IsrReport]]:
    """The in-sync sets in the nodes' traces, by the run's clock; empty if the wall clock was set during the run."""
    from analysis.core.progress import IsrReport
    from analysis.evidence.run_directory import moment
    from history.journal.writer import wall_ahead

    ahead = wall_ahead(run.history.journal)
    reports: dict[tuple[str, int], list[IsrReport]] = defaultdict(list)
    if not ahead or max(ahead) - min(ahead) > 1e9:
        return reports
    for node, events in run.events.items():
        leads: dict[Any, bool] = {}
        for event in events:
            if event["event"] not in ("partition_role", "isr_changed") or type(event.get("partition_epoch")) is not int:
                continue
            key = (str(event["topic"]), int(event["partition"]))
            if event["event"] == "partition_role":
                leads[key] = event.get("role") == "leader"
            at = moment(event) - ahead[0]
            reports[key].append(
                IsrReport(at, node, event["partition_epoch"], tuple(event["isr"]), leads.get(key, False))
            )
    return reports


def _silent(gap: Gap, seconds: float) -> Anomaly:
    topic, partition = gap.partition
    waited_s = (gap.until - gap.asked) / 1e9
    sentence = (
        f"{topic}-{partition}: clients went on writing, and no write was acknowledged for {waited_s:.1f} s or more, "
        f"while nothing touched {', '.join(gap.untouched)}; the bound is {seconds:g} s"
    )
    witness = {"op": "gap", "inv": gap.asked, "ret": gap.until, "last_ack": gap.since, "untouched": list(gap.untouched)}
    return Anomaly(NO_ACKNOWLEDGEMENT.name, topic, partition, sentence, (witness,), 1)


def _stayed(stay: Kept, seconds: float) -> Anomaly:
    topic, partition = stay.partition
    stopped_s = (stay.until - stay.since) / 1e9
    sentence = (
        f"{topic}-{partition}: {stay.leader} kept {stay.node}, which was stopped for {stopped_s:.1f} s, "
        f"in the in-sync set [{plain(stay.isr)}]; the bound is {seconds:g} s"
    )
    witness = {"op": "isr", "node": stay.leader, "inv": stay.since, "ret": stay.until, "isr": list(stay.isr)}
    return Anomaly(ISR_NOT_SHRUNK.name, topic, partition, sentence, (witness,), 1)


def _first_of_each(anomalies: Sequence[Anomaly]) -> tuple[Anomaly, ...]:
    """The first anomaly of each name and partition."""
    anomaly_of: dict[tuple[str, str, int], Anomaly] = {}
    for anomaly in anomalies:
        anomaly_of.setdefault((anomaly.name, anomaly.topic, anomaly.partition), anomaly)
    return tuple(anomaly_of.values())


CHECKER: Final = Checker(
    "progress",
    "During faults, did the unaffected part of the cluster make progress: were writes acknowledged, "
    "and did ISRs shrink?",
    36,
    (NO_ACKNOWLEDGEMENT, ISR_NOT_SHRUNK),
    check,
    may_rest=lambda _: True,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, r"nodes/[^/]+/events\.jsonl")),
)
