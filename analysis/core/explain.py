"""Turns findings into anomalies: fetches the contradicting operations and writes the sentence.

`select` picks the operations that the findings identify from any subset of the history, so that a history spread over
workers transfers only a handful of rows. `explain` turns these rows into witnesses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.core.anomaly import Anomaly
from analysis.core.decide import LOSSES, LogFinding
from analysis.core.evidence import SESSION_BITS
from analysis.core.incomplete_clients import DOUBT, GAP, Owners
from analysis.core.rows import Bools, partitions_of, sent_again
from analysis.core.scans import APPENDS, QUERIES
from analysis.core.summary import LISTED
from history.record.schemas import ACKS_ALL, APPEND, END, FAIL, INF, OK, OPERATIONS, PHASE_FINAL, READ, SENT_AGAIN
from history.record.values import decode_value
from installation.counted import counted

Key = tuple[str, int]
Operation = dict[str, Any]
Story = tuple[str, str, list[Operation]]  # name, sentence, witness

OPERATION_NAMES: Final = {APPEND: "append", READ: "read", END: "end"}
TYPE_NAMES: Final = ("ok", "fail", "info")
RECORDS_SHOWN: Final = 4
NAMED: Final = 8


def select(table: pa.Table, findings: Mapping[Key, Sequence[LogFinding]]) -> pa.Table:
    """The rows of `table` that a finding identifies by offset, value or time."""
    pieces = [OPERATIONS.empty_table()]
    keys, part = partitions_of(table)
    is_wanted = np.array([bool(findings.get(key)) for key in keys], np.bool_)[part]
    part = part[is_wanted]
    # Sorted once, each partition is a slice; filtering the table for each of many partitions would take too long.
    by_partition = table.filter(pa.array(is_wanted)).take(pa.array(np.argsort(part, kind="stable")))
    start = 0
    for key, count in zip(keys, np.bincount(part, minlength=len(keys)).tolist(), strict=True):
        if count:
            here = by_partition.slice(start, count)
            pieces.append(here.filter(pa.array(_suspects(here, findings[key]))))
            start += count
    return pa.concat_tables(pieces).unify_dictionaries().combine_chunks()


def _suspects(table: pa.Table, findings: Sequence[LogFinding]) -> Bools:
    offsets = np.unique([offset for finding in findings for offset in finding.offsets] or [-5])
    values = np.unique([value for finding in findings for value in finding.values] or [-5])
    appended = np.union1d(values, [value for finding in findings for value in finding.also] or [-5])
    columns = {name: table[name].to_numpy() for name in ("f", "inv", "ret", "value", "offset", "lo", "hi")}
    mask = np.isin(columns["inv"], [finding.inv for finding in findings if finding.inv >= 0])
    mask |= np.isin(columns["ret"], [finding.ret for finding in findings if finding.ret >= 0])
    is_append = columns["f"] == APPEND
    mask |= is_append & (np.isin(columns["value"], appended) | np.isin(columns["offset"], offsets))
    items = table["values"].combine_chunks()
    row = np.repeat(np.arange(len(table)), np.diff(items.offsets.to_numpy()))
    shown = np.isin(items.flatten().to_numpy(zero_copy_only=False), values)
    shown |= np.isin(table["offsets"].combine_chunks().flatten().to_numpy(zero_copy_only=False), offsets)
    mask[row[shown]] = True
    if any(finding.name == GAP for finding in findings):
        mask |= sent_again(table)
    final = np.asarray(pa.compute.equal(table["phase"], PHASE_FINAL).to_numpy(zero_copy_only=False)) & ~is_append
    is_enclosing = np.zeros(len(mask), np.bool_)
    for offset in offsets.tolist():
        is_enclosing |= (columns["offset"] <= offset) & (offset < columns["lo"])
    return np.asarray(mask | (final & (is_enclosing | (columns["f"] == END))))


@dataclass(frozen=True)
class Explanation:
    """The proven anomalies, one per partition and name, and the doubts: what a gap in a client's record, or further
    copies of a record that a client library sent again, may explain."""

    anomalies: list[Anomaly]
    doubts: tuple[str, ...] = ()


def explain(rows: pa.Table, findings: Mapping[Key, Sequence[LogFinding]], owners: Owners) -> Explanation:
    """`rows`: the results of `select` from all parts of the history together."""
    scenes: dict[Key, list[Operation]] = {}
    # Sorted, so that the sentence does not depend on how the history was spread.
    for row in sorted(rows.to_pylist(), key=lambda row: (row["inv"], row["process"], row["f"], row["value"])):
        scenes.setdefault((row["topic"], row["partition"]), []).append(row)
    anomalies: list[Anomaly] = []
    doubts: list[str] = []
    for key, partition_findings in sorted(findings.items()):
        scene = Scene(scenes.get(key, []))
        by_name: dict[str, list[tuple[LogFinding, Story]]] = {}
        lawful: dict[str, list[str]] = {}
        for finding in partition_findings:
            story = STORIES[finding.rule](finding, scene)
            if reason := _excuse(story[0], finding, scene, owners):
                lawful.setdefault(reason, []).append(story[1])
            else:
                by_name.setdefault(story[0], []).append((finding, story))
        doubts += [f"{key[0]}-{key[1]}: {text}" for reason, texts in lawful.items() for text in _few(texts, reason)]
        anomalies += [_anomaly(key, name, stories, scene) for name, stories in by_name.items()]
    return Explanation(anomalies, tuple(doubts))


def _excuse(name: str, finding: LogFinding, scene: "Scene", owners: Owners) -> str:
    """Why a finding may be lawful; empty if nothing explains it."""
    if owners.may_explain(name, finding.values):
        return DOUBT
    is_lawful = name == GAP and scene.may_have_copy(by=finding.ret)
    return f"a record {SENT_AGAIN} by its client library" if is_lawful else ""


def _anomaly(key: Key, name: str, stories: Sequence[tuple[LogFinding, Story]], scene: "Scene") -> Anomaly:
    """One anomaly for all findings of one name: the sentence is about the first and names every lost value."""
    finding, (_, sentence, operations) = stories[0]
    witness = [shorten(operation, finding) for operation in operations]
    count = sum(finding.count for finding, _ in stories)
    if name in LOSSES and count > 1:
        also = [*finding.also, *(value for loss, _ in stories[1:] for value in (*loss.values[:1], *loss.also))]
        sentence += f"; also lost: {_names(also, count - 1)}"
        other_operations = [operation for _, (_, _, rows) in stories[1:] for operation in rows]
        other_operations += [append for value in also if (append := scene.append(value)) and _is_durable(append)]
        distinct = _some(*operations, *other_operations)[len(operations) :]
        witness += [shorten(operation, finding) for operation in distinct[: LISTED - 1]]
    return Anomaly(name, *key, sentence, tuple(witness), count)


def _is_durable(append: Operation) -> bool:
    """Whether an acknowledgement promises that the record stays."""
    return bool(append["type"] == OK and append["acks"] == ACKS_ALL)


def _is_bound(append: Operation) -> bool:
    """Whether an acknowledgement promises the record's offset."""
    return _is_durable(append) and append["offset"] >= 0


def _names(values: Sequence[int], count: int) -> str:
    """The first values by name, and how many of the `count` values are not listed."""
    named = [name_of(value) for value in values[:NAMED]]
    unlisted = count - len(named)
    return ", ".join(named) + (f" and {unlisted:,} more" if unlisted else "")


def _few(stories: Sequence[str], reason: str) -> list[str]:
    """The first of the findings that may be lawful for one reason, each with it."""
    unlisted = len(stories) - NAMED
    texts = [f"{story}; {reason}" for story in stories[:NAMED]]
    return (
        [
            *texts,
            f"in doubt for the same reason: {counted(unlisted, 'more record or offset', 'more records or offsets')}",
        ]
        if unlisted > 0
        else texts
    )


def shorten(row: Operation, finding: LogFinding) -> Operation:
    """An operation as a witness shows it: names for codes, and only the relevant records of a read."""
    records = list(zip(row["offsets"], row["values"], strict=True))
    mattering = [record for record in records if record[0] in finding.offsets or record[1] in finding.values]
    return {
        "op": OPERATION_NAMES[row["f"]],
        **{name: row[name] for name in ("process", "session", "client", "topic", "partition")},
        "type": TYPE_NAMES[row["type"]],
        "inv": row["inv"],
        "ret": None if row["ret"] >= INF else row["ret"],
        **{name: row[name] for name in ("offset", "value", "lo", "hi", "acks", "phase", "error")},
        "records": [list(record) for record in (mattering or records)[:RECORDS_SHOWN]],
        "record_count": len(records),
    }


@dataclass(frozen=True)
class Scene:
    """The selected operations of one partition."""

    rows: list[Operation]

    def append(self, value: int) -> Operation | None:
        """The append of a value; the acknowledged one when several rows claim it."""
        mine = [row for row in self.rows if row["f"] == APPEND and row["value"] == value]
        return min(mine, key=lambda row: (row["type"], row["inv"]), default=None)

    def may_have_copy(self, by: int) -> bool:
        """Whether a record that its client library may have sent more than once was invoked by a time."""
        return any(
            row["f"] == APPEND and row["type"] != FAIL and row["inv"] <= by and row["error"].endswith(SENT_AGAIN)
            for row in self.rows
        )

    def showing(self, offset: int, is_wanted: Callable[[int], bool]) -> Operation | None:
        """A read that returned a wanted value at an offset: a final one if there is one, else the last."""
        mine = [
            row
            for row in self.rows
            if row["f"] == READ
            and row["type"] == OK
            and any(at == offset and is_wanted(value) for at, value in zip(row["offsets"], row["values"], strict=True))
        ]
        return max(mine, key=lambda row: (row["phase"] == PHASE_FINAL, row["inv"], -row["process"]), default=None)

    def place_of(self, append: Operation | None, offset: int, other: Operation | None) -> Operation | None:
        """The read that shows the offset of an append whose acknowledgement does not; None if the `other` operation
        shows it."""
        if append is None or append["f"] != APPEND or _is_bound(append):
            return None
        place = (offset, append["value"])
        if other is not None and place in zip(other["offsets"], other["values"], strict=True):
            return None
        return self.showing(offset, lambda value: value == append["value"])

    def final_evidence(self, offset: int) -> Operation | None:
        """The final query that shows an offset to be absent: the read that went past it, else the end before it."""
        final = [row for row in self.rows if row["phase"] == PHASE_FINAL and row["f"] != APPEND and row["type"] == OK]
        past = [row for row in final if row["f"] == READ and 0 <= row["offset"] <= offset < row["lo"]]
        ends = [row for row in final if row["f"] == END]
        chosen = past or [row for row in ends if row["lo"] <= offset] or ends
        return max(chosen, key=lambda row: (row["inv"], -row["process"]), default=None)

    def released_by(self, finding: LogFinding) -> Operation | None:
        """The operation whose invocation is the finding's release."""
        mine = [row for row in self.rows if row["inv"] == finding.inv and _is_kind(row, finding.kinds[0])]
        if finding.session >= 0:
            mine = [row for row in mine if session_of(row) == finding.session]
        at = finding.offsets[0] if finding.offsets else -1
        return min(mine, key=lambda row: (row["hi"] != at and row["offset"] != at, row["process"]), default=None)

    def due_by(self, finding: LogFinding) -> Operation | None:
        """The operation whose return is the finding's deadline."""
        mine = [row for row in self.rows if row["ret"] == finding.ret and _is_kind(row, finding.kinds[1])]
        if finding.session >= 0:
            mine = [row for row in mine if session_of(row) == finding.session]
        at = finding.offsets[-1] if finding.offsets else -1
        return min(mine, key=lambda row: (row["lo"] != at + 1 and row["offset"] != at, row["process"]), default=None)

    def offender(self, finding: LogFinding) -> Operation | None:
        """The query that contradicts itself."""
        mine = [row for row in self.rows if row["inv"] == finding.inv and row["process"] == finding.process]
        return next((row for row in mine if row["f"] != APPEND), None)


def session_of(row: Operation) -> int:
    """The client's session that an operation belongs to."""
    return int(row["process"]) << SESSION_BITS | int(row["session"])


def _is_kind(row: Operation, kind: int) -> bool:
    if row["type"] != OK:
        return kind != QUERIES and row["f"] == APPEND
    return kind < 0 or (row["f"] == APPEND) == (kind == APPENDS)


def _some(*operations: Operation | None) -> list[Operation]:
    distinct: list[Operation] = []
    for operation in operations:
        if operation is not None and operation not in distinct:
            distinct.append(operation)
    return distinct


def name_of(value: int) -> str:
    """A value as a sentence names it."""
    if value < 0:
        return "a record that carries no value"
    session, producer, sequence = decode_value(value)
    return f"record {session}.{producer}.{sequence}"


def _length_of_time(ns: int) -> str:
    return f"{ns / 1e9:.3f} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.3f} ms"


def _acknowledged(finding: LogFinding, scene: Scene) -> str:
    append = scene.append(finding.values[0])
    if append is None or append["type"] != OK:
        return f"{name_of(finding.values[0])} was seen"
    place = f" at offset {append['offset']}" if append["offset"] >= 0 else ", without an offset,"
    return f"{name_of(finding.values[0])} was acknowledged{place} to {append['client']}"


def _offset_holds_another(finding: LogFinding, scene: Scene) -> Story:
    value, offset = finding.values[0], finding.offsets[0]
    other = scene.showing(offset, lambda shown_value: shown_value != value)
    shown = dict(zip(other["offsets"], other["values"], strict=True))[offset] if other else -1
    reader = f"{'the final read' if other and other['phase'] == PHASE_FINAL else 'a read'} of {_client(other)}"
    sentence = f"{_acknowledged(finding, scene)}, but {reader} shows {name_of(shown)} there"
    return finding.name, sentence, _some(scene.append(value), other)


def _client(row: Operation | None) -> str:
    return str(row["client"]) if row else "a client"


def _acknowledged_at_one_offset(finding: LogFinding, scene: Scene) -> Story:
    lost, other = (scene.append(value) for value in finding.values[:2])
    sentence = (
        f"{_acknowledged(finding, scene)}, and so was {name_of(finding.values[1])} to {_client(other)}: "
        "only one of them can be there"
    )
    return finding.name, sentence, _some(lost, other)


def _seen_then_replaced(finding: LogFinding, scene: Scene) -> Story:
    value, offset = finding.values[0], finding.offsets[0]
    before, after = (
        scene.showing(offset, lambda shown_value: shown_value == value),
        scene.showing(offset, lambda shown_value: shown_value != value),
    )
    sentence = (
        f"{name_of(value)} was read at offset {offset} by {_client(before)}, but the final read shows another there"
    )
    return finding.name, sentence, _some(before, after)


def _two_values(finding: LogFinding, scene: Scene) -> Story:
    offset = finding.offsets[0]
    reads = [scene.showing(offset, lambda shown_value, v=value: shown_value == v) for value in finding.values]  # type: ignore[misc]
    acked = [scene.append(value) for value in finding.values]
    claims = [
        ack if ack is not None and _is_bound(ack) and ack["offset"] == offset else read
        for ack, read in zip(acked, reads, strict=True)
    ]
    names = " and ".join(name_of(value) for value in finding.values[:3])
    return finding.name, f"offset {offset} holds different values: {names}", _some(*claims)


def _not_in_final_read(finding: LogFinding, scene: Scene) -> Story:
    append = scene.append(finding.values[0])
    offset = finding.offsets[0] if finding.offsets else INF
    final = scene.final_evidence(offset)
    if final is not None and final["f"] == END:
        proof = f"the log ends at {final['lo']} after healing"
    else:
        proof = "a final read went past it without showing it"
    if not finding.offsets:
        proof = "no record of a complete final read is it"
    return finding.name, f"{_acknowledged(finding, scene)}, but {proof}", _some(append, final)


def _seen_not_in_final_read(finding: LogFinding, scene: Scene) -> Story:
    offset, value = finding.offsets[0], finding.values[0]
    earlier_read = scene.showing(offset, lambda shown_value: shown_value == value)
    sentence = (
        f"{name_of(value)} was read at offset {offset} by {_client(earlier_read)}, but the complete final read lacks it"
    )
    return finding.name, sentence, _some(earlier_read, scene.final_evidence(offset))


def _unknown_value(finding: LogFinding, scene: Scene) -> Story:
    value = finding.values[0]
    append, offset = scene.append(value), finding.offsets[0] if finding.offsets else -1
    read = scene.showing(offset, lambda shown_value: shown_value == value)
    if append is not None and append["offset"] >= 0:
        first, verb = append, "acknowledged"
        if not _is_bound(append) and (
            elsewhere := scene.showing(append["offset"], lambda shown_value: shown_value == value)
        ):
            first, verb = elsewhere, "read"
        sentence = f"{name_of(value)} was {verb} at offset {append['offset']}, but a read shows it at offset {offset}"
        return "duplicate", sentence, _some(first, read)
    return "phantom", f"{name_of(value)} was read at offset {offset}, but never sent to this partition", _some(read)


def _failed_value(finding: LogFinding, scene: Scene) -> Story:
    value, offset = finding.values[0], finding.offsets[0]
    read = scene.showing(offset, lambda shown_value: shown_value == value)
    sentence = f"{name_of(value)} was refused, which means it was not stored, but it was read at offset {offset}"
    return finding.name, sentence, _some(scene.append(value), read)


def _value_twice(finding: LogFinding, scene: Scene) -> Story:
    value = finding.values[0]
    reads = [scene.showing(offset, lambda shown_value: shown_value == value) for offset in finding.offsets]
    offsets = " and ".join(str(offset) for offset in finding.offsets)
    return finding.name, f"{name_of(value)} was appended once, but is in the log at offsets {offsets}", _some(*reads)


def _unfilled_offset(finding: LogFinding, scene: Scene) -> Story:
    offset, candidate = finding.offsets[0], finding.values[0]
    later, append = scene.due_by(finding), scene.append(candidate) if candidate >= 0 else None
    sentence = f"the log was shown to extend beyond offset {offset}, where no record is known"
    if append is None:
        sentence += ", and no remaining append can be the missing record"
    else:
        delay = _length_of_time(append["inv"] - finding.ret)
        sentence += f"; the earliest append that can be it was invoked {delay} later"
    return finding.name, sentence, _some(later, append)


def _located(finding: LogFinding, scene: Scene) -> Story:
    """A loose append's place contradicts the times; the two operations decide which name fits."""
    release, due = scene.released_by(finding), scene.due_by(finding)
    if release is not None and release["f"] != APPEND:
        return _told("stale-read", finding, scene, release, due)
    if due is not None and due["f"] != APPEND:
        return _told("future-read", finding, scene, release, due)
    return _told("append-reorder", finding, scene, release, due)


def _real_time(finding: LogFinding, scene: Scene) -> Story:
    release, due = scene.released_by(finding), scene.due_by(finding)
    name = finding.name
    if name == "non-monotonic-high-watermark" and release and due and session_of(release) == session_of(due):
        name = "session-violation"
    return _told(name, finding, scene, release, due)


def _told(name: str, finding: LogFinding, scene: Scene, release: Operation | None, due: Operation | None) -> Story:
    later = _length_of_time(finding.inv - finding.ret)
    first, last = _offset_of(release, finding.offsets[0]), _offset_of(due, finding.offsets[-1])
    if due is None or due["f"] == APPEND:
        done = f"the append at offset {last} was acknowledged"
    else:
        done = f"{_client(due)} was shown {counted(due['lo'], 'record')}"
    if release is None or release["f"] == APPEND:
        started = f"the append at offset {first} was invoked {later} after that"
    else:
        started = f"a query of {_client(release)}, invoked {later} after that, was shown at most {release['hi']}"
    places = (scene.place_of(due, last, release), scene.place_of(release, first, due))
    return name, f"{done}, but {started}", _some(due, release, *places)


def _offset_of(append: Operation | None, located: int) -> int:
    """The offset that an append was acknowledged at, else the one at which a read has located its record."""
    return int(append["offset"]) if append is not None and append["f"] == APPEND and _is_bound(append) else located


def _sequence_falls(finding: LogFinding, scene: Scene) -> Story:
    first, second = finding.values
    sentence = (
        f"{name_of(first)} is at offset {finding.offsets[0]} and {name_of(second)}, sent before it by the same "
        f"producer, at offset {finding.offsets[1]}"
    )
    if first == second:
        offsets = f"{finding.offsets[0]} and {finding.offsets[1]}"
        sentence = f"{name_of(first)} was acknowledged twice, at offsets {offsets}"
    rows = [row for row in scene.rows if row["f"] == APPEND and row["type"] == OK and row["value"] in finding.values]
    return finding.name, sentence, _some(*(row for row in rows if row["offset"] in (-1, *finding.offsets)))


def _not_contiguous(finding: LogFinding, scene: Scene) -> Story:
    read, offset = scene.offender(finding), finding.offsets[0]
    skipped = next(
        (row for row in scene.rows if row["f"] == APPEND and row["type"] == OK and row["offset"] == offset), None
    )
    sentence = f"a read of {_client(read)} from offset {read['offset'] if read else -1} did not return offset {offset}"
    return finding.name, f"{sentence} where it was due", _some(read, skipped)


def _goes_back(finding: LogFinding, scene: Scene) -> Story:
    read, offset = scene.offender(finding), finding.offsets[0]
    start = read["offset"] if read else -1
    sentence = f"a read of {_client(read)} from offset {start} returned offset {offset}, which was before its position"
    return finding.name, sentence, _some(read)


def _past_own_bound(finding: LogFinding, scene: Scene) -> Story:
    query = scene.offender(finding)
    shown = query["lo"] if query else -1
    sentence = (
        f"{_client(query)} was shown {counted(shown, 'record')} by an answer that reports the end {finding.offsets[0]}"
    )
    return finding.name, sentence, _some(query)


STORIES: Final[dict[str, Callable[[LogFinding, Scene], Story]]] = {
    "offset-holds-another": _offset_holds_another,
    "seen-then-replaced": _seen_then_replaced,
    "two-values": _two_values,
    "acknowledged-at-one-offset": _acknowledged_at_one_offset,
    "not-in-final-read": _not_in_final_read,
    "seen-not-in-final-read": _seen_not_in_final_read,
    "unknown-value": _unknown_value,
    "failed-value": _failed_value,
    "value-twice": _value_twice,
    "unfilled-offset": _unfilled_offset,
    "located-late": _located,
    "located-early": _located,
    "located-crossed": _located,
    "real-time": _real_time,
    "session": _real_time,
    "sequence-falls": _sequence_falls,
    "not-contiguous": _not_contiguous,
    "goes-back": _goes_back,
    "past-own-bound": _past_own_bound,
}
