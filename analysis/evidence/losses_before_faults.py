"""Counts the lost records that were acknowledged before the first fault.

A run that fails by an expected loss is checked with it (`analysis.expectation`). The fault under test may destroy what
was acknowledged under it; what was acknowledged before it must survive.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from history.journal.timeline import INVOKED
from history.reader import History
from history.record.operation_tables import by_key
from history.record.schemas import ACKS_ALL, APPEND, INF, OK, PHASE_FINAL, READ
from history.record.shapes import LOG
from history.value_runs import ValueRuns

Place = tuple[str, int]


def lost_before_faults(history: History) -> int:
    """Records that all in-sync replicas acknowledged before the first fault started and that no final read returns in
    their partition. Without a fault: all acknowledged records. Incomplete final reads make the number too large; a
    value at another offset than acknowledged is not lost."""
    first = min((fault.at(INVOKED, INF) for fault in history.faults), default=INF)
    shown = shown_in_the_end(history)
    lost = 0
    for part in history.logs.parts("f", "type", "acks", "ret", "topic", "partition", "value"):
        durable = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["acks"], ACKS_ALL))
        in_time = pc.and_(pc.equal(part["type"], OK), pc.less(part["ret"], first))
        for place, appends in by_key(LOG, part.filter(pc.and_(durable, in_time))):
            lost += int(shown.get(place, ValueRuns()).missing(appends["value"].to_numpy()).sum())
    return lost


def shown_in_the_end(history: History) -> dict[Place, ValueRuns]:
    """The values that final reads returned, by partition."""
    values_of: dict[Place, ValueRuns] = {}
    for part in history.logs.parts("f", "type", "phase", "topic", "partition", "values"):
        is_final = pc.and_(pc.equal(part["f"], READ), pc.equal(part["phase"].cast(pa.string()), PHASE_FINAL))
        for place, reads in by_key(LOG, part.filter(pc.and_(is_final, pc.equal(part["type"], OK)))):
            values = ValueRuns.of(pc.list_flatten(reads["values"]).to_numpy())
            values_of[place] = ValueRuns.union([values_of.get(place, ValueRuns()), values])
    return values_of
