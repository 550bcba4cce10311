"""The cause of an anomaly in one sentence: which replica lost what, when, by which rule, and what made it visible.

A cause is derived from the witness and from what the nodes recorded (`run_facts`). `EXPLAINED_BY` maps each anomaly
that checkers know to the question that its cause answers. Where the facts do not answer it, the text starts with
`NOT_SHOWN` and states what the facts lack. This module is pure.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from analysis.core.anomaly import NOT_SHOWN, Anomaly
from analysis.core.explain import name_of
from analysis.page.run_facts import METADATA_TOPIC, Fact, Lead, PartitionFacts, Removal, RunFacts, seconds
from analysis.page.witness_text import begins_at, ends_at
from history.journal.timeline import FaultSpan

_NO_EVENTS: Final = "the nodes recorded no protocol events"
_MOST_REMOVALS: Final = 3
_MOST_NAMED: Final = 3
_ROUNDED_S: Final = 0.003
"""Oracles round the time of a finding, and the event that they find may be reported just after it."""
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_ACKNOWLEDGED: Final = frozenset({"append", "write", "commit", "cas"})


def with_causes(anomalies: Sequence[Anomaly], facts: RunFacts) -> tuple[Anomaly, ...]:
    """The anomalies, each with its cause."""
    return tuple(replace(anomaly, cause=cause_of(anomaly, facts)) for anomaly in anomalies)


def cause_of(anomaly: Anomaly, facts: RunFacts) -> str:
    """The cause of an anomaly; `NOT_SHOWN` with a reason if the facts do not show it."""
    explain = EXPLAINED_BY.get(anomaly.kind)
    if explain is None:
        return f"{NOT_SHOWN}no facts are known that explain {anomaly.name}"
    partition = facts.of_partition(anomaly.topic, anomaly.partition)
    cause = explain(anomaly, facts, partition)
    if cause:
        return cause if cause.startswith((*facts.events, partition.name)) else cause[0].upper() + cause[1:]
    if not facts.is_recorded and not facts.stops and explain not in (_own_promise, _stale_register):
        return NOT_SHOWN + "; ".join(filter(None, (_NO_EVENTS, _at_its_time(anomaly, facts, partition))))
    return f"{NOT_SHOWN}{LACKING[explain]}; {_preceding(anomaly, facts)}"


# --- records that are gone


def _lost_records(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which replica removed the records, and which leader made it visible."""
    first, last = _offsets(anomaly)
    if first < 0:
        return ""
    written_s, shown_s = _first_time(anomaly, facts), _shown_at(anomaly, facts)
    gone = _gone(anomaly, facts)
    removals = [
        fact
        for fact in partition.removals
        if fact.start <= last and fact.end > first and written_s <= fact.at_s <= shown_s
    ]
    culprit, lead = _culprit(removals, partition, last) if removals else (None, None)
    short = _short_leader(partition.until(shown_s), first, written_s)
    if culprit is None or (short and (lead is None or short[0] < lead.start_s)):
        told = [short[1], *(f"then {fact.text}" for fact in removals[:_MOST_REMOVALS])] if short else []
    else:
        told = [_because(culprit, facts) + culprit.text + _led_without(lead, culprit)]
        later = [fact for fact in removals if fact.at_s >= culprit.at_s and fact is not culprit]
        told += [f"then {fact.text}" for fact in later[: _MOST_REMOVALS - 1]]
    if alone := [fact for fact in partition.in_sync if fact.at_s <= written_s][-1:]:
        members = alone[0].text.replace(" is ", " was ")
        told += [f"{members} at the acknowledgement"] if told and alone[0].number == 1 else []
    return "; ".join(told) + (f": {gone}" if gone and told else "")


def _led_without(lead: Lead | None, removal: Removal) -> str:
    if lead is None:
        return ""
    if lead.start_s >= removal.at_s:
        return f", became leader in epoch {lead.epoch} at {seconds(lead.start_s)}"
    return f" while it led epoch {lead.epoch}"


def _culprit(removals: Sequence[Removal], partition: PartitionFacts, last: int) -> tuple[Removal, Lead | None]:
    """The removal after which its node led without the records, and this leadership. A follower that removes records
    and fetches them again loses nothing. Without such a node, the first removal."""
    for removal in removals:
        lead = next((fact for fact in partition.leads if fact.node == removal.node and fact.end_s > removal.at_s), None)
        if lead is not None and _log_end(partition, lead, removal) <= last:
            return removal, lead
    return removals[0], None


def _log_end(partition: PartitionFacts, lead: Lead, removal: Removal) -> int:
    """The end of a leader's log when it started to lead, or directly after its removal."""
    until_s = max(lead.start_s, removal.at_s)
    reported = [fact for fact in partition.log_ends if fact.node == lead.node and removal.at_s < fact.at_s <= until_s]
    return reported[-1].number if reported else removal.start


def _short_leader(partition: PartitionFacts, first: int, written_s: float) -> tuple[float, str] | None:
    """The first node that became leader although its log ended before the record: the time, and the sentence."""
    for lead in partition.leads:
        ends = [fact for fact in partition.log_ends if fact.node == lead.node and fact.at_s <= lead.start_s + 1e-9]
        predecessor = next((fact for fact in reversed(partition.leads) if fact.start_s < lead.start_s), None)
        if lead.start_s <= written_s or predecessor is None or not ends or not 0 <= ends[-1].number <= first:
            continue
        old = f"after {predecessor.node}, the leader of epoch {predecessor.epoch}"
        return lead.start_s, f"{_became(lead, partition)} {old}; its log ended at {ends[-1].number}"
    return None


def _incomplete(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Who removed the records; else the leader, the in-sync set and the ends of the logs at that time."""
    return _lost_records(anomaly, facts, partition) or _at_rest(anomaly, facts, partition)


def _lost_commit(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which replicas of the offsets topic removed commits between the answers, or which new leader had not got them."""
    del partition
    answers = anomaly.witness[-2:]  # an earlier commit is of the offset that is there in the end
    times = _returns(answers, facts)
    if not times:
        return ""
    told = _of_offsets_topic(facts, min(times), max(times), _became)
    between = f"between the commit shown at {seconds(min(times))} and the answer at {seconds(max(times))}, "
    return between + told if told else ""


def _gone(anomaly: Anomaly, facts: RunFacts) -> str:
    """The lost records with the time of their first acknowledgement."""
    rows = [row for row in anomaly.witness if _is_change(row)]
    names = list(dict.fromkeys(name_of(row["value"]) for row in rows if type(row.get("value")) is int))
    if not names:
        return ""
    times = _returns((row for row in rows if row.get("type") == "ok"), facts)
    acknowledged = f", acknowledged at {seconds(min(times))}," if times else ""
    if len(names) == 1:
        return f"{names[0]}{acknowledged} is gone"
    shown = [name.removeprefix("record ") for name in names]
    listed = ", ".join(shown[:_MOST_NAMED]) if len(shown) <= _MOST_NAMED else f"{shown[0]} to {shown[-1]}"
    return f"records {listed}{acknowledged} are gone"


# --- two logs that differ


def _diverged(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which leaders wrote the versions, and which replica did not remove its own."""
    del facts
    first, _ = _offsets(anomaly)
    told = list[str]()
    for row in anomaly.witness:
        epoch = row.get("epoch", row.get("leader_epoch"))
        lead = next((fact for fact in partition.leads if fact.epoch == epoch), None)
        if lead is not None and row.get("node"):
            told.append(f"{row['node']} has epoch {epoch} there, led by {lead.node} from {seconds(lead.start_s)}")
    told = list(dict.fromkeys(told))[:_MOST_NAMED]
    removals = [fact for fact in partition.removals if first < 0 or fact.end > first]
    if not told and not removals:
        return ""
    last = removals[-1:]
    told += [f"the last truncation there: {fact.text}" for fact in last]
    if not last:
        told.append(f"no replica truncated {partition.name}" + (f" below {first + 1}" if first >= 0 else ""))
    return "; ".join(told)


# --- answers that are too old


def _stale_answer(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Two nodes that took themselves for the leader; else a removal, or a change of the leader, between the answers."""
    times = sorted(_returns(anomaly.witness, facts))
    at_s = _shown_at(anomaly, facts)
    if at_s == math.inf:
        return ""
    leads = [lead for lead in partition.leads if lead.start_s <= at_s < lead.end_s]
    if leads and any("leader" in row for row in anomaly.witness):  # shown at an election: the elected node leads later
        elected = [lead for lead in partition.leads if at_s < lead.start_s < leads[-1].end_s][:1]
        leads, at_s = leads + elected, max([at_s, *(lead.start_s for lead in elected)])
    if len(leads) > 1:
        old, new = leads[-2:]
        disturbed = _disturbed(old, facts, at_s)
        return (
            f"{old.node} took itself for the leader of {partition.name} in epoch {old.epoch} at {seconds(at_s)}, "
            f"although {new.node} led epoch {new.epoch} since {seconds(new.start_s)}{disturbed}"
        )
    if lost := _lost_records(anomaly, facts, partition):
        return lost
    between = [lead for lead in partition.leads if times and times[0] < lead.start_s <= at_s]
    if between:
        told = ", ".join(
            f"{lead.node} in epoch {lead.epoch} at {seconds(lead.start_s)}" for lead in between[:_MOST_NAMED]
        )
        text = f"between the contradicting answers the leader of {partition.name} changed: {told}"
        marks = [mark for mark in partition.watermarks if mark.node == between[-1].node and mark.at_s <= at_s]
        return text + (f", with the high watermark {marks[-1].number}" if marks else "")
    return ""


def _stale_register(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which nodes gave the contradicting answers, and the faults in force then."""
    return _answered(anomaly, facts) or _at_its_time(anomaly, facts, partition)


def _answered(anomaly: Anomaly, facts: RunFacts) -> str:
    """As `_stale_register`; empty if the clients did not record which node answered."""
    queries = [row for row in anomaly.witness if row.get("endpoint") or row.get("node")]
    times = _returns(anomaly.witness, facts)
    named = [str(row.get("node") or row["endpoint"]) for row in queries]
    nodes = list(dict.fromkeys(facts.endpoints.get(item, item) for item in named))
    if not nodes or not times:
        return ""
    place = (
        f"{nodes[0]} gave all contradicting answers"
        if len(nodes) == 1
        else f"{', '.join(nodes)} gave different answers"
    )
    return f"{place} {_when(times, facts)}"


def _at_its_time(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """When the contradicting operations returned, and the faults in force then."""
    del partition
    times = _returns(anomaly.witness, facts)
    return f"the contradicting operation{'s' if len(times) > 1 else ''} returned {_when(times, facts)}" if times else ""


def _when(times: Sequence[float], facts: RunFacts) -> str:
    first, last = min(times), max(times)
    faults = [item for item in facts.faults if item.start_s <= last and item.end_s >= first]
    during = f", during {_named(faults)}" if faults else ", without a fault in force"
    return (f"at {seconds(first)}" if first == last else f"between {seconds(first)} and {seconds(last)}") + during


def _own_promise(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """As for a stale answer of a register or of a log."""
    causes = (_stale_answer, _at_its_time)
    return _answered(anomaly, facts) or next(filter(None, (cause(anomaly, facts, partition) for cause in causes)), "")


# --- records that are twice or missing in a sequence


def _repeated(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The change of the leader, or the restart, between the two batches."""
    rows = anomaly.witness
    times = sorted(
        facts.clock.of_monotonic(at) for row in rows for at in (begins_at(row), ends_at(row)) if at is not None
    )
    lost = [fact for fact in partition.removals if not times or times[0] <= fact.at_s <= times[-1]]
    leads = [fact for fact in partition.leads[1:] if not times or times[0] <= fact.start_s <= times[-1]]
    told = [fact.text for fact in lost[:_MOST_NAMED]]
    told += [_became(lead, partition) for lead in leads[:_MOST_NAMED]]
    if told:
        return "between the batches " + "; ".join(told)
    return _appended_by_one(anomaly, facts, partition)


def _appended_by_one(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The one leader that appended the batches, with the faults that made a client send again."""
    if len(partition.leads) != 1 or not _offsets(anomaly)[0] >= 0:
        return ""
    (lead,) = partition.leads
    faults = [
        fault for fault in facts.faults if lead.node in fault.targets and fault.start_s <= _shown_at(anomaly, facts)
    ]
    during = f", after {_named(faults)}" if faults else ""
    batches = {row["offset"] for row in anomaly.witness if type(row.get("offset")) is int}
    subject = "the batch" if len(batches) == 1 else "all these batches"
    return (
        f"{lead.node} appended {subject} as the leader of {partition.name} in epoch {lead.epoch}, since "
        f"{seconds(lead.start_s)}{during}, without another leader or a truncation"
    )


# --- elections


def _election(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The votes and epochs of the nodes in the epoch of the witness, or of its partition's leaders."""
    keys = ("epoch", "leads", "leader_epoch")
    epochs = {row[key] for row in anomaly.witness for key in keys if type(row.get(key)) is int}
    nodes = {str(row["node"]) for row in anomaly.witness if row.get("node")}
    told = [vote for vote in facts.votes if vote.number in epochs or (nodes and vote.node in nodes and not epochs)]
    if anomaly.partition >= 0 and anomaly.topic != METADATA_TOPIC and partition.leads:
        leads = [vote for vote in partition.leads if vote.epoch in epochs]
        told_of = (
            [] if leads or not epochs else [f"no node reported that it led {partition.name} in epoch {min(epochs)}"]
        )
        return "; ".join([*told_of, *(_led(vote, partition) for vote in (leads or partition.leads)[-_MOST_NAMED:])])
    told = [vote for vote in told if vote.at_s <= _shown_at(anomaly, facts)]
    restarts = [vote for vote in told if vote.text.startswith("restarted")]
    told = [vote for vote in told if vote not in restarts or not nodes or vote.node in nodes]
    restarts = [vote for vote in restarts if vote in told]
    chosen = [vote for vote in told if vote not in restarts][: _MOST_NAMED + 1] + restarts[-1:]
    ordered = sorted(chosen, key=lambda fact: fact.at_s)
    return "; ".join(_stated(vote) for vote in ordered)


def _led(lead: Lead, partition: PartitionFacts) -> str:
    until = f" to {seconds(lead.end_s)}" if lead.end_s < float("inf") else ""
    return f"{lead.node} led {partition.name} in epoch {lead.epoch} from {seconds(lead.start_s)}{until}"


# --- a report that contradicts an earlier one


def _reported_less(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """What the node removed, or how its role changed, between its two reports; their times if nothing did."""
    rows = [row for row in anomaly.witness if row.get("node") and type(row.get("wall")) is int]
    times = [facts.clock.of_wall(row["wall"]) for row in rows]
    if len(times) < 2:
        return ""
    node, start_s, end_s = str(rows[-1]["node"]), min(times), max(times)
    told = [fact.text for fact in partition.removals if fact.node == node and start_s <= fact.at_s <= end_s]
    told += [_led(fact, partition) for fact in partition.leads if start_s < fact.start_s <= end_s]
    if not told and facts.is_recorded:
        told = [f"{node} reported no truncation and no new leadership of {partition.name}"]
    between = f"between the reports at {seconds(start_s)} and {seconds(end_s)}, "
    return between + "; ".join(told[:_MOST_NAMED]) if told else ""


def _start_fell(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """Which node answered the deletion of records, and which leads with a lower start of its log."""
    del facts
    epochs = {row["epoch"] for row in anomaly.witness if type(row.get("epoch")) is int}
    told = [_stated(fact) for fact in partition.deletions[-1:]]
    if told:
        told += [_led(fact, partition) for fact in partition.leads if fact.epoch in epochs][-1:]
        starts = {fact.node: fact.number for fact in partition.log_starts}
        if starts:
            told.append("the logs start at " + ", ".join(f"{at} on {node}" for node, at in sorted(starts.items())))
    return "; ".join(told)


# --- a cluster that does not recover


def _at_rest(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The last known leader, in-sync set and log ends, and the processes that had ended."""
    shown_s = _shown_at(anomaly, facts)
    partition = partition.until(shown_s)
    told = [_stated(fact) for fact in facts.stops if fact.at_s <= shown_s][-2:]
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
        told += [f"{fact.text} since {seconds(fact.at_s)}" for fact in partition.in_sync[-1:]]
        ends = {fact.node: fact.number for fact in partition.log_ends}
        if ends:
            told.append("the logs end at " + ", ".join(f"{end} on {node}" for node, end in sorted(ends.items())))
    return "; ".join(told)


# --- remote storage


def _remote(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """What happened to the remote segments with the offsets, and where replicas started again, in order of time. The
    segments of the witness have their ids there. If the witness is a replica that started again, its start is the
    cause: the offset of the witness is the new start, above all that it dropped."""
    started_again = {row["node"] for row in anomaly.witness if row.get("op") == "bootstrapped"}
    if drops := [removal.text for removal in partition.removals if removal.node in started_again]:
        return "; ".join(drops[-_MOST_REMOVALS:])
    first, _ = _offsets(anomaly)
    ids = " ".join(str(row["source"]) for row in anomaly.witness if row.get("source"))
    near = [fact for fact in partition.segments if first < 0 or _covers(fact, first)]
    nodes = {str(row["node"]) for row in anomaly.witness if row.get("node")}
    near = list(facts.declared(ids)) or [fact for fact in near if fact.node in nodes] or near
    told = [(fact.at_s, _stated(fact, "declared ")) for fact in near[-_MOST_NAMED:]]
    removals = [fact for fact in partition.removals if fact.end > max(first, 0)]
    told += [(fact.at_s, fact.text) for fact in removals[-_MOST_REMOVALS:]]
    return "; ".join(dict.fromkeys(text for _, text in sorted(told)))


def _lookup(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The remote segment that has the record which the lookup should have found."""
    first, _ = _offsets(anomaly)
    shown_s = _shown_at(anomaly, facts)
    within = [fact for fact in partition.segments if _covers(fact, first) and fact.at_s <= shown_s]
    return "; ".join(_stated(fact, "declared ") for fact in within[-_MOST_NAMED:])


def _remote_states(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """What nodes declared about the segment that the sentence names, in order of time."""
    del partition
    told = [_stated(fact, "declared ") for fact in facts.declared(anomaly.sentence)]
    return "; ".join(dict.fromkeys(told[-_MOST_NAMED:]))


def _covers(segment: Fact, offset: int) -> bool:
    """Whether a remote segment has this offset, by its text's borders."""
    parts = segment.text.replace(":", "").split()
    return parts[4].lstrip("-").isdigit() and segment.number <= offset <= int(parts[4])


# --- processes


def _ended(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The process that ended, with the faults that preceded it."""
    del partition
    nodes = {str(row["node"]) for row in anomaly.witness if row.get("node")}
    stops = [item for item in facts.stops if not nodes or item.node in nodes]
    if not stops:
        return ""
    first = stops[0]
    faults = [item for item in facts.faults if item.start_s <= first.at_s]
    preceding = f", after {_named(faults[-1:])}" if faults else ", before any fault"
    return f"the process of {_stated(first)}{preceding}"


# --- shared


def _returns(rows: Iterable[Mapping[str, Any]], facts: RunFacts) -> list[float]:
    """When the operations of a witness returned, those that did."""
    return [facts.clock.of_monotonic(at) for row in rows if (at := ends_at(row)) is not None]


def _stated(fact: Fact, verb: str = "") -> str:
    return f"{fact.node} {verb}{fact.text} at {seconds(fact.at_s)}"


def _became(lead: Lead, partition: PartitionFacts) -> str:
    return f"{lead.node} became leader of {partition.name} in epoch {lead.epoch} at {seconds(lead.start_s)}"


def _altered(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The leader that wrote the batch, and the faults on the node before its bytes were found to be wrong."""
    row = next((row for row in anomaly.witness if row.get("node")), {})
    node, epoch, shown_s = str(row.get("node", "")), row.get("epoch"), _shown_at(anomaly, facts)
    lead = next((item for item in partition.leads if item.epoch == epoch), None)
    faults = [item for item in facts.faults if node in item.targets and item.start_s <= shown_s]
    told = [] if lead is None else [f"{lead.node} led {partition.name} in epoch {epoch} since {seconds(lead.start_s)}"]
    told += [f"{node} had {_named(faults)}"] if faults else []
    return "; ".join(told)


def _offsets_answered(anomaly: Anomaly, facts: RunFacts, partition: PartitionFacts) -> str:
    """The last leaders and removals of the offsets topic before the offset was shown."""
    del partition
    at = next((at for row in anomaly.witness if (at := ends_at(row)) is not None), None)
    shown_s = _shown_at(anomaly, facts) if at is None else facts.clock.of_monotonic(at)
    return _of_offsets_topic(facts, -math.inf, shown_s, _led)


def _of_offsets_topic(
    facts: RunFacts, since_s: float, until_s: float, words: Callable[[Lead, PartitionFacts], str]
) -> str:
    """The last removals from the offsets topic in this time, and its leaders, each in these words."""
    told = list[tuple[float, str]]()
    for offsets in facts.partitions_of(_OFFSETS_TOPIC):
        shown = offsets.until(until_s)
        told += [(fact.at_s, fact.text) for fact in shown.removals]
        told += [(lead.start_s, words(lead, offsets)) for lead in shown.leads]
    return "; ".join([text for at_s, text in sorted(told) if at_s >= since_s][-_MOST_NAMED:])


def _offsets(anomaly: Anomaly) -> tuple[int, int]:
    """The first and last offset of the records in question; -1 without one."""
    rows = [row for row in anomaly.witness if _is_change(row)] or list(anomaly.witness)
    offsets = [
        row[key] for row in rows for key in ("offset", "last_offset") if type(row.get(key)) is int and row[key] >= 0
    ]
    offsets += [record[0] for row in rows if "offset" not in row for record in row.get("records") or ()]
    return (min(offsets), max(offsets)) if offsets else (-1, -1)


def _is_change(row: Mapping[str, Any]) -> bool:
    return row.get("op") in _ACKNOWLEDGED or row.get("op") == "client order" or ("op" not in row and "node" not in row)


_SIMULATED: Final = re.compile(r"\((\d+\.\d+) s after the simulation started\)")


def _shown_at(anomaly: Anomaly, facts: RunFacts) -> float:
    """When the contradiction was there: the end of the last query of the witness, or the time that an oracle of the
    simulation states; infinite if neither is known."""
    if times := _returns((row for row in anomaly.witness if row.get("op") not in _ACKNOWLEDGED), facts):
        return max(times)
    stated = _SIMULATED.search(anomaly.sentence)
    return float(stated[1]) + _ROUNDED_S if stated else math.inf


def _first_time(anomaly: Anomaly, facts: RunFacts) -> float:
    """When the records were there: the first acknowledgement, or the first of several answers."""
    ended = [(_is_change(row), at) for row in anomaly.witness if (at := ends_at(row)) is not None]
    times = [at for is_change, at in ended if is_change] or ([at for _, at in ended] if len(ended) > 1 else [])
    return facts.clock.of_monotonic(min(times)) if times else float("-inf")


def _because(removal: Removal, facts: RunFacts) -> str:
    """The last fault on the node before its removal."""
    faults = [fault for fault in facts.faults if removal.node in fault.targets and fault.start_s <= removal.at_s]
    return f"after {_named(faults[-1:])}, " if faults and faults[-1].id not in removal.text else ""


def _disturbed(lead: Lead, facts: RunFacts, at_s: float) -> str:
    faults = [fault for fault in facts.faults if lead.node in fault.targets and fault.start_s <= min(lead.end_s, at_s)]
    return f", after {_named(faults[-1:])}" if faults else ""


def _named(faults: Sequence[FaultSpan]) -> str:
    told = [f"{fault.name} ({fault.id}, {seconds(fault.start_s)})" for fault in faults[-_MOST_NAMED:]]
    return ", ".join(told)


def _preceding(anomaly: Anomaly, facts: RunFacts) -> str:
    """What the events do show before the last operation of the witness."""
    until_s = _shown_at(anomaly, facts)
    partition = facts.of_partition(anomaly.topic, anomaly.partition)
    told = [(item.at_s, item.text) for item in partition.removals]
    told += [(lead.start_s, _became(lead, partition)) for lead in partition.leads]
    told += [(stop.at_s, _stated(stop)) for stop in facts.stops]
    told += [(item.start_s, f"{item.name} ({item.id}) started at {seconds(item.start_s)}") for item in facts.faults]
    preceding = [text for at_s, text in sorted(told) if at_s <= until_s][-_MOST_NAMED:]
    return "before it, " + "; ".join(preceding) if preceding else "they show no change before it"


Explain = Callable[[Anomaly, RunFacts, PartitionFacts], str]
_FAMILIES: Final[Mapping[Explain, str]] = {
    _lost_records: "lost-acknowledged-write committed-then-truncated offset-mismatch gap poll-skip prefix-changed "
    "replica-order-mismatch committed-prefix-changed committed-not-durable "
    "skipped-record lost-committed-metadata counted-not-shared removed-before-upload side-record-lost",
    _incomplete: "leader-incomplete member-incomplete recovery-point-ahead high-watermark-invalid",
    _lost_commit: "lost-acknowledged-commit",
    _diverged: "replica-divergence epoch-regression epoch-start-mismatch log-mismatch epochs-contradict-log "
    "followed-unmatched bootstrap-epochs-differ applied-metadata-mismatch snapshot-mismatch",
    _stale_answer: "stale-read session-violation non-monotonic-high-watermark future-read poll-regression "
    "high-watermark-fell request-would-be-answered lease-shared served-in-recovery phantom aborted-read",
    _own_promise: "own-promise-broken",
    _stale_register: "stale-register-read non-linearizable-register register-phantom",
    _repeated: "duplicate duplicate-on-replica sequence-gap sequence-gap-on-replica producer-order append-reorder "
    "producers-contradict-log producer-id-shared phantom-on-replica",
    _election: "two-leaders two-votes elected-by-minority vote-not-on-disk election-state-regression epoch-fell "
    "two-leaders-of-one-epoch committed-without-majority vote-before-disk vote-against-log committed-old-epoch "
    "led-without-votes leads-unheard quorum-request-would-be-taken isr-not-granted election-not-allowed isr-too-narrow "
    "metadata-high-watermark-regression epoch-never-led leader-not-elected",
    _reported_less: "reported-value-fell",
    _start_fell: "answered-start-fell log-start-fell deletion-undone deletion-beyond-request",
    _lookup: "wrong-offset-for-timestamp",
    _remote_states: "remote-metadata-contradicts",
    _at_rest: "not-converged final-read-stalled final-end-mismatch no-acknowledgement isr-not-shrunk stands-still "
    "isr-keeps-unreachable fetch-would-be-counted commit-would-be-taken isr-would-be-granted "
    "assignment-contradicts-log administration-undone",
    _remote: "remote-segment-incomplete remote-object-differs remote-record-differs orphaned-object "
    "tiered-bounds-violated uncommitted-record-in-store follower-starts-below-log local-records-dropped "
    "wrong-bootstrap-offset object-removed-unasked",
    _ended: "unexpected-exit fatal-log-line",
    _altered: "corrupt-record batch-not-valid",
    _offsets_answered: "phantom-commit offsets-contradict-log",
}
EXPLAINED_BY: Final[Mapping[str, Explain]] = {
    name: explain for explain, names in _FAMILIES.items() for name in names.split()
}
"""By anomaly: the function that derives its cause."""
LACKING: Final[Mapping[Explain, str]] = {
    _lost_records: "no node recorded that it removed these records",
    _incomplete: "no node recorded that it removed these records, or a leader of the partition",
    _lost_commit: "no node recorded a removal from the offsets topic, or a new leader of it, between the answers",
    _diverged: "no node recorded a leader of these epochs, or a truncation there",
    _stale_answer: "no node recorded a second leader, a removal or a change of the leader before the answer",
    _own_promise: "the contradiction names no operation that returned",
    _stale_register: "the contradiction names no operation that returned",
    _repeated: "no node recorded a truncation or a new leader between the batches",
    _election: "no node recorded a vote or a leader of this epoch",
    _reported_less: "the reports have no times",
    _start_fell: "no node recorded an answer to DeleteRecords",
    _lookup: "no node recorded a remote segment with this offset, and none records its lookups by timestamp",
    _remote_states: "no node recorded the states of this segment",
    _at_rest: "no node recorded a leader, the end of a log or the end of a process",
    _remote: "no node recorded a remote segment with this offset, or a removal",
    _ended: "the journal has no end of this process",
    _altered: "nodes do not record the bytes of batches, and none recorded who led in the epoch of this one",
    _offsets_answered: "nodes do not record commits, and none recorded a leader of the offsets topic",
}
"""By function: what the events lack if it finds no cause."""
