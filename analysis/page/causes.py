"""The cause of an anomaly in one sentence: which replica lost what, when, by which rule, and what made it visible.

A cause is derived from the witness and from what the nodes recorded (`run_facts`). `EXPLAINED_BY` maps each anomaly
that checkers know to the question that its cause answers. Where the facts do not answer it, the text starts with
`NOT_SHOWN` and states what the facts lack. This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from analysis.core.anomaly import NOT_SHOWN, Anomaly
from analysis.core.explain import name_of
from analysis.page.run_facts import Fact, FaultSpan, Lead, PartitionFacts, Removal, RunFacts, seconds
from analysis.page.witness_text import begins_at, ends_at

_NO_EVENTS: Final = "the nodes recorded no protocol events"
_MOST_REMOVALS: Final = 3
_MOST_NAMED: Final = 3
_ACKNOWLEDGED: Final = frozenset({"append", "write", "commit", "cas"})


def with_causes(anomalies: Sequence[Anomaly], facts: RunFacts) -> tuple[Anomaly, ...]:
    """The anomalies, each with its cause."""
    return tuple(replace(each, cause=cause_of(each, facts)) for each in anomalies)


def cause_of(anomaly: Anomaly, facts: RunFacts) -> str:
    """The cause of an anomaly; `NOT_SHOWN` with a reason if the facts do not show it."""
    explain = EXPLAINED_BY.get(anomaly.name)
    if explain is None:
        return f"{NOT_SHOWN}no facts are known that explain {anomaly.name}"
    found = explain(anomaly, facts, facts.of_partition(anomaly.topic, anomaly.partition))
    if found:
        return found if found.startswith(tuple(facts.events)) else found[0].upper() + found[1:]
    if not facts.is_recorded and not facts.stops:
        return NOT_SHOWN + _NO_EVENTS
    return NOT_SHOWN + _preceding(anomaly, facts)


# --- records that are gone


def _lost_records(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which replica removed the records, and which leader made it visible."""
    first, last = _offsets(anomaly)
    if first < 0:
        return ""
    written_s = _first_time(anomaly, facts)
    removals = [
        each for each in partition.removals if each.start <= last and each.end > first and each.at_s >= written_s
    ]
    gone = _gone(anomaly, facts)
    if not removals:
        return _short_leader(partition, first, written_s, gone)
    culprit, lead = _culprit(removals, partition, last)
    told = [_because(culprit, facts) + culprit.text]
    if lead is not None and lead.start_s >= culprit.at_s:
        told[0] += f", became leader in epoch {lead.epoch} at {seconds(lead.start_s)}"
    elif lead is not None:
        told[0] += f" while it led epoch {lead.epoch}"
    others = [each for each in removals if each.at_s >= culprit.at_s and each is not culprit]
    told += [f"then {each.text}" for each in others[: _MOST_REMOVALS - 1]]
    return "; ".join(told) + (f": {gone}" if gone else "")


def _culprit(removals: Sequence[Removal], partition: PartitionFacts, last: int) -> tuple[Removal, Lead | None]:
    """The removal after which its node led without the records, and this leadership. A follower that removes records
    and fetches them again loses nothing. Without such a node, the first removal."""
    for removal in removals:
        lead = next((each for each in partition.leads if each.node == removal.node and each.end_s > removal.at_s), None)
        if lead is not None and _log_end(partition, lead, removal) <= last:
            return removal, lead
    return removals[0], None


def _log_end(partition: PartitionFacts, lead: Lead, removal: Removal) -> int:
    """The end of a leader's log when it started to lead, or directly after its removal."""
    until_s = max(lead.start_s, removal.at_s)
    reported = [each for each in partition.log_ends if each.node == lead.node and removal.at_s < each.at_s <= until_s]
    return reported[-1].number if reported else removal.start


def _short_leader(partition: PartitionFacts, first: int, written_s: float, gone: str) -> str:
    """A node that became leader although its log ended before the record."""
    for lead in partition.leads:
        if lead.start_s <= written_s:
            continue
        end = next(
            (
                each
                for each in reversed(partition.log_ends)
                if each.node == lead.node and each.at_s <= lead.start_s + 1e-9
            ),
            None,
        )
        if end is not None and 0 <= end.number <= first:
            before = next((each for each in reversed(partition.leads) if each.start_s < lead.start_s), None)
            old = f" after {before.node}, the leader of epoch {before.epoch}" if before else ""
            text = (
                f"{lead.node} became leader of {partition.name} in epoch {lead.epoch} at {seconds(lead.start_s)}{old}"
            )
            return f"{text}; its log ended at {end.number}" + (f": {gone}" if gone else "")
    return ""


def _gone(anomaly: Anomaly, facts: RunFacts) -> str:
    """The lost records with the time of their first acknowledgement."""
    rows = [row for row in anomaly.witness if _is_change(row)]
    names = list(dict.fromkeys(name_of(row["value"]) for row in rows if type(row.get("value")) is int))
    if not names:
        return ""
    times = [
        facts.clock.of_monotonic(at) for row in rows if row.get("type") == "ok" and (at := ends_at(row)) is not None
    ]
    when = f", acknowledged at {seconds(min(times))}," if times else ""
    if len(names) == 1:
        return f"{names[0]}{when} is gone"
    shown = [name.removeprefix("record ") for name in names]
    listed = ", ".join(shown[:_MOST_NAMED]) if len(shown) <= _MOST_NAMED else f"{shown[0]} to {shown[-1]}"
    return f"records {listed}{when} are gone"


# --- two logs that differ


def _diverged(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which leaders wrote the versions, and which replica did not remove its own."""
    del facts
    first, _ = _offsets(anomaly)
    told = list[str]()
    for row in anomaly.witness:
        epoch = row.get("epoch", row.get("leader_epoch"))
        lead = next((each for each in partition.leads if each.epoch == epoch), None)
        if lead is not None and row.get("node"):
            told.append(
                f"{row['node']} has the record of epoch {epoch}, led by {lead.node} from {seconds(lead.start_s)}"
            )
    told = list(dict.fromkeys(told))[:_MOST_NAMED]
    removals = [each for each in partition.removals if first < 0 or each.end > first]
    if not told and not removals:
        return ""
    last = removals[-1:]
    told += [f"the last truncation there: {each.text}" for each in last]
    if not last:
        told.append(f"no replica truncated {partition.name}" + (f" below {first + 1}" if first >= 0 else ""))
    return "; ".join(told)


# --- answers that are too old


def _stale_answer(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Two nodes that took themselves for the leader; else a removal, or a change of the leader, between the answers."""
    times = sorted(facts.clock.of_monotonic(at) for row in anomaly.witness if (at := ends_at(row)) is not None)
    if not times:
        return ""
    at_s = times[-1]
    leads = [each for each in partition.leads if each.start_s <= at_s < each.end_s]
    if len(leads) > 1:
        old, new = leads[-2:]
        disturbed = _disturbed(old, facts)
        return (
            f"{old.node} took itself for the leader of {partition.name} in epoch {old.epoch} at {seconds(at_s)}, "
            f"although {new.node} led epoch {new.epoch} since {seconds(new.start_s)}{disturbed}"
        )
    if lost := _lost_records(anomaly, facts, partition):
        return lost
    between = [each for each in partition.leads if times[0] < each.start_s <= at_s]
    if between:
        told = ", ".join(
            f"{each.node} in epoch {each.epoch} at {seconds(each.start_s)}" for each in between[:_MOST_NAMED]
        )
        return f"between the contradicting answers the leader of {partition.name} changed: {told}"
    return ""


def _stale_register(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which nodes gave the contradicting answers, and the faults in force then."""
    del partition
    asked = [row for row in anomaly.witness if row.get("endpoint") or row.get("node")]
    times = [facts.clock.of_monotonic(at) for row in anomaly.witness if (at := ends_at(row)) is not None]
    named = [str(row.get("node") or row["endpoint"]) for row in asked]
    nodes = list(dict.fromkeys(facts.endpoints.get(each, each) for each in named))
    if not nodes or not times:
        return ""
    faults = [each for each in facts.faults if each.start_s <= max(times) and (each.end_s or max(times)) >= min(times)]
    during = f", during {_named(faults)}" if faults else ", without a fault in force"
    where = (
        f"{nodes[0]} gave all contradicting answers"
        if len(nodes) == 1
        else f"{', '.join(nodes)} gave different answers"
    )
    return f"{where} between {seconds(min(times))} and {seconds(max(times))}{during}"


# --- records that are twice or missing in a sequence


def _repeated(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The change of the leader, or the restart, between the two batches."""
    rows = anomaly.witness
    times = sorted(
        facts.clock.of_monotonic(at) for row in rows for at in (begins_at(row), ends_at(row)) if at is not None
    )
    lost = [each for each in partition.removals if not times or times[0] <= each.at_s <= times[-1]]
    leads = [each for each in partition.leads[1:] if not times or times[0] <= each.start_s <= times[-1]]
    told = [each.text for each in lost[:_MOST_NAMED]]
    told += [
        f"{each.node} became leader of {partition.name} in epoch {each.epoch} at {seconds(each.start_s)}"
        for each in leads[:_MOST_NAMED]
    ]
    return "between the batches " + "; ".join(told) if told else ""


# --- elections


def _election(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The votes and epochs of the nodes in the epoch of the witness, or of its partition's leaders."""
    epochs = {row[key] for row in anomaly.witness for key in ("epoch", "leads") if type(row.get(key)) is int}
    nodes = {str(row["node"]) for row in anomaly.witness if row.get("node")}
    told = [each for each in facts.votes if each.number in epochs or (nodes and each.node in nodes and not epochs)]
    if anomaly.partition >= 0 and partition.leads:
        leads = [each for each in partition.leads if each.epoch in epochs] or list(partition.leads[-2:])
        return "; ".join(
            f"{each.node} led {partition.name} in epoch {each.epoch} from {seconds(each.start_s)}"
            + (f" to {seconds(each.end_s)}" if each.end_s < float("inf") else "")
            for each in leads[-_MOST_NAMED:]
        )
    restarts = [each for each in told if each.text.startswith("restarted")]
    chosen = [each for each in told if each not in restarts][: _MOST_NAMED + 1] + restarts[-1:]
    ordered = sorted(chosen, key=lambda fact: fact.at_s)
    return "; ".join(f"{each.node} {each.text} at {seconds(each.at_s)}" for each in ordered)


# --- a cluster that does not recover


def _at_rest(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The last known leader, in-sync set and log ends, and the processes that had ended."""
    told = [f"{each.node} {each.text} at {seconds(each.at_s)}" for each in facts.stops[-2:]]
    if anomaly.partition >= 0 and (partition.leads or partition.log_ends):
        last = partition.leads[-1:]
        if not last:
            told.append(f"no node recorded that it led {partition.name}")
        elif last[0].end_s < float("inf"):
            told.append(
                f"{partition.name} has no leader since {last[0].node} stopped leading at {seconds(last[0].end_s)}"
            )
        else:
            told.append(
                f"{last[0].node} leads {partition.name} in epoch {last[0].epoch} since {seconds(last[0].start_s)}"
            )
        told += [f"{each.text} since {seconds(each.at_s)}" for each in partition.in_sync[-1:]]
        ends = {each.node: each.number for each in partition.log_ends}
        if ends:
            told.append("the logs end at " + ", ".join(f"{end} on {node}" for node, end in sorted(ends.items())))
    return "; ".join(told)


# --- remote storage


def _remote(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """What happened to the remote segments with the offsets, and where replicas started again."""
    del facts
    first, last = _offsets(anomaly)
    segments = [each for each in partition.segments if first < 0 or each.number <= last]
    near = segments[-_MOST_NAMED:] if first < 0 else [each for each in segments if _covers(each, first)][-_MOST_NAMED:]
    told = [f"{each.node} declared {each.text} at {seconds(each.at_s)}" for each in near]
    told += [each.text for each in partition.removals if each.end > max(first, 0)][-_MOST_REMOVALS:]
    return "; ".join(dict.fromkeys(told))


def _covers(segment: Fact, offset: int) -> bool:
    """Whether a remote segment has this offset, by its text's borders."""
    words = segment.text.replace(":", "").split()
    return words[4].lstrip("-").isdigit() and segment.number <= offset <= int(words[4])


# --- processes


def _ended(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The process that ended, with the faults that preceded it."""
    del partition
    nodes = {str(row["node"]) for row in anomaly.witness if row.get("node")}
    stops = [each for each in facts.stops if not nodes or each.node in nodes]
    if not stops:
        return ""
    first = stops[0]
    faults = [each for each in facts.faults if each.start_s <= first.at_s]
    after = f", after {_named(faults[-1:])}" if faults else ", before any fault"
    return f"the process of {first.node} {first.text} at {seconds(first.at_s)}{after}"


# --- shared


def _unstated(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """A contradiction between bytes or requests that nodes do not record."""
    del anomaly, facts, partition
    return ""


def _offsets(anomaly: Anomaly) -> tuple[int, int]:
    """The first and last offset of the records in question; -1 without one."""
    rows = [row for row in anomaly.witness if _is_change(row)] or list(anomaly.witness)
    found = [
        row[key] for row in rows for key in ("offset", "last_offset") if type(row.get(key)) is int and row[key] >= 0
    ]
    found += [record[0] for row in rows if "offset" not in row for record in row.get("records") or ()]
    return (min(found), max(found)) if found else (-1, -1)


def _is_change(row: Mapping[str, Any]) -> bool:
    return row.get("op") in _ACKNOWLEDGED or row.get("op") == "client order" or ("op" not in row and "node" not in row)


def _first_time(anomaly: Anomaly, facts: RunFacts) -> float:
    times = [at for row in anomaly.witness if _is_change(row) and (at := ends_at(row)) is not None]
    return facts.clock.of_monotonic(min(times)) if times else float("-inf")


def _because(removal: Removal, facts: RunFacts) -> str:
    """The last fault on the node before its removal."""
    faults = [each for each in facts.faults if removal.node in each.targets and each.start_s <= removal.at_s]
    return f"after {_named(faults[-1:])}, " if faults and faults[-1].id not in removal.text else ""


def _disturbed(lead: Lead, facts: RunFacts) -> str:
    faults = [each for each in facts.faults if lead.node in each.targets and each.start_s <= lead.end_s]
    return f", after {_named(faults[-1:])}" if faults else ""


def _named(faults: Sequence[FaultSpan]) -> str:
    told = [f"{each.name} ({each.id}, {seconds(each.start_s)})" for each in faults[-_MOST_NAMED:]]
    return ", ".join(told)


def _preceding(anomaly: Anomaly, facts: RunFacts) -> str:
    """What the events do show before the last operation of the witness."""
    times = [at for row in anomaly.witness if (at := ends_at(row)) is not None]
    until_s = facts.clock.of_monotonic(max(times)) if times else float("inf")
    partition = facts.of_partition(anomaly.topic, anomaly.partition)
    told = [(each.at_s, each.text) for each in partition.removals]
    told += [
        (
            each.start_s,
            f"{each.node} became leader of {partition.name} in epoch {each.epoch} at {seconds(each.start_s)}",
        )
        for each in partition.leads
    ]
    told += [(each.at_s, f"{each.node} {each.text} at {seconds(each.at_s)}") for each in facts.stops]
    told += [(each.start_s, f"{each.name} ({each.id}) started at {seconds(each.start_s)}") for each in facts.faults]
    before = [text for at_s, text in sorted(told) if at_s <= until_s][-_MOST_NAMED:]
    return "before it, " + "; ".join(before) if before else "they have no change of a leader, log or process before it"


Explain = Callable[[Anomaly, RunFacts, PartitionFacts], str]
_FAMILIES: Final[Mapping[Explain, str]] = {
    _lost_records: "lost-acknowledged-write committed-then-truncated offset-mismatch gap poll-skip prefix-changed "
    "replica-order-mismatch committed-prefix-changed leader-incomplete member-incomplete committed-not-durable "
    "lost-acknowledged-commit skipped-record lost-committed-metadata counted-not-shared removed-before-upload "
    "recovery-point-ahead high-watermark-invalid",
    _diverged: "replica-divergence epoch-regression epoch-start-mismatch log-mismatch epochs-contradict-log "
    "followed-unmatched bootstrap-epochs-differ applied-metadata-mismatch snapshot-mismatch",
    _stale_answer: "stale-read session-violation non-monotonic-high-watermark future-read poll-regression "
    "high-watermark-fell request-would-be-answered lease-shared served-in-recovery phantom aborted-read",
    _stale_register: "stale-register-read non-linearizable-register register-phantom",
    _repeated: "duplicate duplicate-on-replica sequence-gap sequence-gap-on-replica producer-order append-reorder "
    "producers-contradict-log phantom-on-replica",
    _election: "two-leaders two-votes elected-by-minority vote-not-on-disk election-state-regression epoch-fell "
    "two-leaders-of-one-epoch committed-without-majority vote-before-disk vote-against-log committed-old-epoch "
    "led-without-votes leads-unheard isr-not-granted election-not-allowed isr-too-narrow isr-would-be-granted "
    "metadata-high-watermark-regression",
    _at_rest: "not-converged final-end-mismatch no-acknowledgement isr-not-shrunk stands-still isr-keeps-unreachable",
    _remote: "remote-segment-incomplete remote-record-differs orphaned-object tiered-bounds-violated "
    "uncommitted-record-in-store follower-starts-below-log local-records-dropped wrong-bootstrap-offset",
    _ended: "unexpected-exit fatal-log-line",
    _unstated: "corrupt-record batch-not-valid wrong-offset-for-timestamp phantom-commit fetch-would-be-counted "
    "commit-would-be-taken offsets-contradict-log",
}
EXPLAINED_BY: Final[Mapping[str, Explain]] = {
    name: explain for explain, names in _FAMILIES.items() for name in names.split()
}
"""By anomaly: the function that derives its cause."""
