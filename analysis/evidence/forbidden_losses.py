"""Counts lost records that a run must not lose although it is expected to fail by a loss (`analysis.expectation`).

Before faults: the fault under test may destroy what was acknowledged under it; what was acknowledged before it must
survive.

Above uploads: remote storage never had these records. The brokers' own files must have every record above the last
segment whose upload was ever declared. Segments that were deleted since count too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.replicafiles.remote_metadata import read_metadata
from history.journal.timeline import INVOKED
from history.reader import History
from history.record.operation_tables import by_key
from history.record.schemas import ACKS_ALL, APPEND, END, INF, OK, PHASE_FINAL, READ
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


def shown_in_the_end(history: History, column: str = "values") -> dict[Place, ValueRuns]:
    """The values that final reads returned, or their offsets, by partition."""
    runs_of: dict[Place, ValueRuns] = {}
    for part in history.logs.parts("f", "type", "phase", "topic", "partition", column):
        for place, reads in by_key(LOG, part.filter(_is_final(part, READ))):
            runs = ValueRuns.of(pc.list_flatten(reads[column]).to_numpy())
            runs_of[place] = ValueRuns.union([runs_of.get(place, ValueRuns()), runs])
    return runs_of


class AboveUploads(NamedTuple):
    """Records that all in-sync replicas acknowledged above every remote segment, and how many of them no final read
    returns."""

    acknowledged: int
    lost: int


def first_above_uploads(places: Mapping[str, Path], history: History) -> Mapping[Place, int] | None:
    """For each partition with operations the offset after its last declared remote segment. `places`: the nodes' data
    directories, by node. None if a partition has no segment, or metadata cannot be read."""
    declared = read_metadata({node: path for node, path in places.items() if path.is_dir()})
    segments = {place: declared.of(*place) for place in history.logs.keys}
    if declared.doubts or not all(segments.values()):
        return None
    return {place: 1 + max(segment.end for segment in segments_of) for place, segments_of in segments.items()}


def lost_above_uploads(history: History, first: Mapping[Place, int]) -> AboveUploads | None:
    """`first`: the offset of each partition from which on records count. None if the final reads of a partition do not
    cover its log from there to its end, or a record that they lack may be below: its offset is unknown."""
    shown, read, ends = shown_in_the_end(history), shown_in_the_end(history, "offsets"), _ends(history)
    if not all(_is_covered(read.get(place, ValueRuns()), start, ends.get(place)) for place, start in first.items()):
        return None
    acknowledged = lost = 0
    for part in history.logs.parts("f", "type", "acks", "topic", "partition", "offset", "value"):
        durable = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["acks"], ACKS_ALL))
        for place, appends in by_key(LOG, part.filter(pc.and_(durable, pc.equal(part["type"], OK)))):
            offset = appends["offset"].to_numpy()
            missing = shown.get(place, ValueRuns()).missing(appends["value"].to_numpy())
            if np.any(missing & (offset < 0)):
                return None
            acknowledged += int((offset >= first[place]).sum())
            lost += int((missing & (offset >= first[place])).sum())
    return AboveUploads(acknowledged, lost)


def _is_covered(read: ValueRuns, start: int, end: int | None) -> bool:
    return end is not None and read.within(start, max(0, end - start)) == max(0, end - start)


def _ends(history: History) -> dict[Place, int]:
    """The end of each log by final queries that were sent after the last acknowledgement; without such a query a
    partition is missing."""
    last_ack: dict[Place, int] = {}
    for part in history.logs.parts("f", "type", "topic", "partition", "ret"):
        is_append = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["type"], OK))
        for place, appends in by_key(LOG, part.filter(is_append)):
            last_ack[place] = max(last_ack.get(place, -1), pc.max(appends["ret"]).as_py())
    ends: dict[Place, int] = {}
    for part in history.logs.parts("f", "type", "phase", "topic", "partition", "inv", "lo"):
        for place, queries in by_key(LOG, part.filter(_is_final(part, END))):
            late = queries.filter(pc.greater(queries["inv"], last_ack.get(place, -1)))["lo"]
            if len(late):
                ends[place] = max(ends.get(place, -1), pc.max(late).as_py())
    return {place: end for place, end in ends.items() if end >= 0}


def _is_final(part: pa.Table, f: int) -> pa.ChunkedArray:
    is_final = pc.equal(part["phase"].cast(pa.string()), PHASE_FINAL)
    return pc.and_(is_final, pc.and_(pc.equal(part["f"], f), pc.equal(part["type"], OK)))
