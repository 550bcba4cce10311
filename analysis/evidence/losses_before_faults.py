"""Counts the lost records that were acknowledged before the first fault.

A run that fails by an expected loss is checked with it (`analysis.expectation`). The fault under test may destroy what
was acknowledged under it; what was acknowledged before it must survive.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.reader import History
from history.schemas import ACKS_ALL, APPEND, INF, OK, PHASE_FINAL, READ


def lost_before_faults(history: History) -> int:
    """Records that all in-sync replicas acknowledged before the first fault started and that no final read returns in
    their partition. Without a fault: all acknowledged records. Incomplete final reads make the number too large; a
    value at another offset than acknowledged is not lost."""
    first = min((each["invoked"] for each in history.faults.to_pylist() if each["invoked"] is not None), default=INF)
    operations = history.operations
    answered = operations.filter(pc.equal(operations["type"], OK))
    kept = pc.and_(pc.equal(answered["f"], APPEND), pc.equal(answered["acks"], ACKS_ALL))
    appends = answered.filter(pc.and_(kept, pc.less(answered["ret"], first)))
    is_final = pc.and_(pc.equal(answered["f"], READ), pc.equal(answered["phase"].cast(pa.string()), PHASE_FINAL))
    reads = answered.filter(is_final)
    return sum(_lost(appends, reads, place) for place in _places(appends))


def _places(table: pa.Table) -> list[tuple[str, int]]:
    found = table.group_by(["topic", "partition"], use_threads=False).aggregate([]).to_pylist()
    return [(each["topic"], each["partition"]) for each in found]


def _lost(appends: pa.Table, reads: pa.Table, place: tuple[str, int]) -> int:
    written = _of(appends, place)["value"].to_numpy()
    shown = pc.list_flatten(_of(reads, place)["values"]).to_numpy()
    return int((~np.isin(written, shown)).sum())


def _of(table: pa.Table, place: tuple[str, int]) -> pa.Table:
    topic, partition = place
    return table.filter(
        pc.and_(pc.equal(table["topic"].cast(pa.string()), topic), pc.equal(table["partition"], partition))
    )
