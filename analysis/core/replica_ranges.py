"""The replica check of a range of offsets, and what the ranges show together.

Theory of operation. What the rules compare is at one offset: the records of two replicas, of two dumps, or a record and
what clients were shown there. So a range is examined alone, and its findings are added up in the order of the offsets.
Where a rule needs more than the range, the range sends on the records in question, with the descriptions of the logs:

- the first and last record of each run of one leader epoch (D3, D4);
- the records that no acknowledgement names with this offset: clients may have sent them elsewhere, or never, or they
  are in the log twice (D8);
- what was acknowledged at an offset and that no replica holds in this range (D6);
- the records that compaction must have had a reason to remove, and the range does not show it (D1, D7);
- the records that a finding about the whole log shows (`Wanted`).

The conclusion applies the rules to logs that have only these records. The answers to `Questions` complete them:
records of the same values at other offsets, later records of the same keys, and what clients sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, starmap
from typing import Final, NamedTuple

import numpy as np

from analysis.core import replica_comparison as contents
from analysis.core.anomaly import Anomaly
from analysis.core.replica_comparison import Divergence, PrefixChanges, both, divergence, lacking, prefix_changes
from analysis.core.replica_evidence import Circumstances, ClientOrder
from analysis.core.rows import I64, Bools
from analysis.replicafiles.log import CONTROL_RECORD, U64, LogColumns, ReplicaLog, joined, no_records

_NOTHING: Final = np.empty(0, np.int64)


class AcknowledgedAppends(NamedTuple):
    """Acknowledged appends that name their offset: `value`, ascending, and `offset`."""

    value: I64 = _NOTHING
    offset: I64 = _NOTHING

    @classmethod
    def of(cls, value: I64, offset: I64) -> AcknowledgedAppends:
        order = np.argsort(value, kind="stable")
        return cls(value[order], offset[order])

    def names(self, log: ReplicaLog) -> Bools:
        """Which records of a log such an append names at their offsets."""
        if not len(self.value):
            return np.zeros(len(log.value), np.bool_)
        at = np.minimum(np.searchsorted(self.value, log.value), len(self.value) - 1)
        return np.asarray((self.value[at] == log.value) & (self.offset[at] == log.offset))


NO_NAMES: Final = AcknowledgedAppends()


@dataclass(frozen=True)
class Wanted:
    """The records of one log that a finding about the whole log shows: those at these offsets, and all from `tail` on,
    -1 without any."""

    offsets: tuple[int, ...] = ()
    tail: int = -1


@dataclass(frozen=True)
class RangeView:
    """What is known of a range of offsets: each log with its records there, the same for earlier dumps, what clients
    were shown (`order`, None without operations), and their appends that name offsets there.

    `wanted`: by log. `has_appends`: it is known what clients sent."""

    logs: Sequence[ReplicaLog]
    earlier: Sequence[ReplicaLog] = ()
    order: ClientOrder | None = None
    named: AcknowledgedAppends = NO_NAMES
    wanted: Sequence[Wanted] = ()
    has_appends: bool = True


@dataclass(frozen=True)
class LogFindings:
    """What a range shows of one log: the records that it sends on, the values of those that clients certainly sent and
    of the others (a value may be among both), the number of all records and of control records, and the findings on
    single records."""

    rows: LogColumns
    sent: I64
    others: I64
    records: int
    controls: int = 0
    corrupt: Anomaly | None = None
    suspicious: tuple[str, ...] = ()
    misplaced: Anomaly | None = None

    def followed_by(self, later: LogFindings) -> LogFindings:
        return LogFindings(
            joined([self.rows, later.rows]),
            np.concatenate((self.sent, later.sent)),
            np.concatenate((self.others, later.others)),
            self.records + later.records,
            self.controls + later.controls,
            both(self.corrupt, later.corrupt),
            self.suspicious or later.suspicious,
            both(self.misplaced, later.misplaced),
        )


class PairFindings(NamedTuple):
    """What a range shows of two replicas: how they differ, and the records that only one of them has."""

    divergence: Divergence
    first_only: LogColumns
    second_only: LogColumns

    def followed_by(self, later: PairFindings) -> PairFindings:
        return PairFindings(
            self.divergence.followed_by(later.divergence),
            joined([self.first_only, later.first_only]),
            joined([self.second_only, later.second_only]),
        )


def _changes(first: PrefixChanges, later: PrefixChanges) -> PrefixChanges:
    return PrefixChanges(both(first.found, later.found), joined([first.gone, later.gone]))


@dataclass(frozen=True)
class RangeFindings:
    """The findings of consecutive ranges: by log, by earlier dump, by pair of logs, by earlier dump of a log, and what
    was acknowledged and is not held (None without operations)."""

    logs: tuple[LogFindings, ...]
    earlier: tuple[LogFindings, ...]
    pairs: tuple[PairFindings, ...]
    dumps: tuple[PrefixChanges, ...]
    unheld: ClientOrder | None

    def followed_by(self, later: RangeFindings) -> RangeFindings:
        """The findings of these ranges and of the one after them."""
        return RangeFindings(
            tuple(a.followed_by(b) for a, b in zip(self.logs, later.logs, strict=True)),
            tuple(a.followed_by(b) for a, b in zip(self.earlier, later.earlier, strict=True)),
            tuple(a.followed_by(b) for a, b in zip(self.pairs, later.pairs, strict=True)),
            tuple(starmap(_changes, zip(self.dumps, later.dumps, strict=True))),
            later.unheld if self.unheld is None or later.unheld is None else self.unheld.joined(later.unheld),
        )


def dumps_of(logs: Sequence[ReplicaLog], earlier: Sequence[ReplicaLog]) -> list[tuple[ReplicaLog, ReplicaLog]]:
    """Each earlier dump with the later one of its node's log."""
    later = {log.node: log for log in logs}
    return [(dump, later[dump.node]) for dump in earlier if dump.node in later]


def examine(view: RangeView, circumstances: Circumstances) -> RangeFindings:
    """What one range shows."""
    order = view.order
    unheld = (
        None
        if order is None
        else contents.unheld(view.logs, order, circumstances)
        if circumstances.quiet
        else order.take(np.zeros(len(order.offset), np.bool_))
    )
    shown = _NOTHING if unheld is None else unheld.offset
    requests = view.wanted or [Wanted()] * len(view.logs)
    nothing = no_records()
    return RangeFindings(
        tuple(
            _of_log(log, view, circumstances, request, shown) for log, request in zip(view.logs, requests, strict=True)
        ),
        tuple(_sent_on(log, view, Wanted(), _NOTHING) for log in view.earlier),
        tuple(
            PairFindings(
                divergence(a, b, circumstances.quiet),
                *((lacking(a, b), lacking(b, a)) if circumstances.compacts else (nothing, nothing)),
            )
            for a, b in combinations(view.logs, 2)
        ),
        tuple(
            prefix_changes(dump, later, deleted_to=circumstances.deleted_to, compacts=circumstances.compacts)
            for dump, later in dumps_of(view.logs, view.earlier)
        ),
        unheld,
    )


def _of_log(log: ReplicaLog, view: RangeView, circumstances: Circumstances, request: Wanted, shown: I64) -> LogFindings:
    doubts: list[str] = []
    corrupt = list(contents.corrupt_records(log, circumstances, doubts.append))
    misplaced = [] if view.order is None else list(contents.order_mismatch(log, view.order, circumstances))
    return replace(
        _sent_on(log, view, request, shown),
        controls=contents.control_records(log, circumstances),
        corrupt=corrupt[0] if corrupt else None,
        suspicious=tuple(doubts),
        misplaced=misplaced[0] if misplaced else None,
    )


def _sent_on(log: ReplicaLog, view: RangeView, request: Wanted, shown: I64) -> LogFindings:
    """The records of a range that the conclusion needs."""
    is_named = view.named.names(log)
    is_last = (log.offset >= request.tail) if request.tail >= 0 else np.zeros(len(log.offset), np.bool_)
    mine = is_last
    if view.has_appends:
        mine = mine | (~is_named & (log.value != CONTROL_RECORD) & ~log.is_opaque(log.offset))
    mine |= np.isin(log.offset, np.concatenate((shown, np.array(request.offsets, np.int64))))
    changes = np.flatnonzero(np.diff(log.epoch)) if len(log.epoch) else _NOTHING
    mine[changes] = mine[changes + 1] = True
    starts = np.searchsorted(log.offset, np.array([start for _, start in log.epochs or ()], np.int64))
    mine[starts[starts < len(mine)]] = True
    mine[:1] = mine[-1:] = True
    is_certain = is_named & ~is_last
    return LogFindings(
        log.columns.take(mine), log.value[mine & is_certain], log.value[mine & ~is_certain], len(log.offset)
    )


@dataclass(frozen=True)
class Questions:
    """What the ranges cannot decide alone: `values` that may be at other offsets too, or that clients may have sent;
    `keys` that later records may have."""

    values: I64 = field(default_factory=lambda: _NOTHING)
    keys: U64 = field(default_factory=lambda: _NOTHING.astype(np.uint64))

    @property
    def is_empty(self) -> bool:
        return not len(self.values) and not len(self.keys)


def questions_of(findings: RangeFindings) -> Questions:
    """What is open after all ranges have been examined."""
    value_sets = [log_findings.others for log_findings in findings.logs]
    values = np.unique(np.concatenate((*value_sets, _NOTHING if findings.unheld is None else findings.unheld.value)))
    removed = [rows.key for pair in findings.pairs for rows in (pair.first_only, pair.second_only)]
    keys = np.unique(
        np.concatenate((*removed, *(changes.gone.key for changes in findings.dumps), _NOTHING.astype(np.uint64)))
    )
    return Questions(values[values >= 0], keys)


class Held(NamedTuple):
    """What a range holds of the values and keys in question: by log and by earlier dump the records with one of the
    values, and the last offset of each key, -1 without one."""

    rows: tuple[LogColumns, ...]
    latest: tuple[I64, ...]

    def followed_by(self, later: Held) -> Held:
        return Held(
            tuple(joined([a, b]) for a, b in zip(self.rows, later.rows, strict=True)),
            tuple(np.maximum(a, b) for a, b in zip(self.latest, later.latest, strict=True)),
        )


def held(logs: Sequence[ReplicaLog], questions: Questions) -> Held:
    """The records of a range that have the values and keys in question. `logs`: the logs and the earlier dumps, with
    their records there."""
    rows = tuple(log.columns.take(np.isin(log.value, questions.values)) for log in logs)
    return Held(rows, tuple(_latest(log, questions.keys) for log in logs))


def _latest(log: ReplicaLog, keys: U64) -> I64:
    latest = np.full(len(keys), -1, np.int64)
    mine = np.flatnonzero(np.isin(log.key, keys))
    np.maximum.at(latest, np.searchsorted(keys, log.key[mine]), log.offset[mine])
    return latest


@dataclass(frozen=True)
class ReducedLogs:
    """The logs and earlier dumps with the records that the ranges sent on, and by log or dump the last offset of each
    key in question."""

    logs: list[ReplicaLog]
    earlier: list[ReplicaLog]
    latest: Sequence[Mapping[int, int]]


def reduced(
    logs: Sequence[ReplicaLog],
    earlier: Sequence[ReplicaLog],
    range_findings: RangeFindings,
    keys: U64,
    held_records: Held | None,
) -> ReducedLogs:
    """Adds what was sent on to the descriptions of the logs."""
    findings = (*range_findings.logs, *range_findings.earlier)
    pieces = [
        [log_findings.rows] if held_records is None else [log_findings.rows, held_records.rows[i]]
        for i, log_findings in enumerate(findings)
    ]
    whole_logs = [log.holding(_by_offset(joined(parts))) for log, parts in zip((*logs, *earlier), pieces, strict=True)]
    latest = [np.empty(0, np.int64)] * len(whole_logs) if held_records is None else held_records.latest
    latest_by_key = [dict(zip(keys.tolist(), offsets.tolist(), strict=True)) for offsets in latest]
    return ReducedLogs(whole_logs[: len(logs)], whole_logs[len(logs) :], latest_by_key)


def _by_offset(rows: LogColumns) -> LogColumns:
    """Records by offset, each once."""
    if (np.diff(rows.offset) > 0).all():
        return rows
    return rows.take(np.unique(rows.offset, return_index=True)[1])
