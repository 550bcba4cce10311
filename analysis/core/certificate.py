"""The linearization of a history that passed: for each offset of a partition its value and its time.

`at` is the theorem's t_g = max r[j], j <= g. Queries need no entry: the verifier confirms from the appends alone that
each query has a valid time. The entries of a range of offsets follow from its evidence, the values placed in it, and
the latest release to its left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.core.decide import Placement
from analysis.core.evidence import NONE, OffsetEvidence
from analysis.core.scans import NEVER
from analysis.core.summary import Summary

LINEARIZATION: Final = pa.schema([("offset", pa.int64()), ("value", pa.int64()), ("at", pa.int64())])


def linearize(pieces: Iterable[OffsetEvidence], placed: Placement, start: int, stop: int, before: int) -> pa.Table:
    """The entries of the offsets start .. stop - 1 from the evidence of this range; `before`: the latest release to its
    left."""
    value = np.full(stop - start, NONE, np.int64)
    release = np.full(stop - start, NEVER, np.int64)
    for piece in pieces:
        first = piece.start - start
        size = max(0, min(len(piece.value), stop - piece.start))
        value[first : first + size] = piece.value[:size]
        release[first : first + size] = np.maximum(piece.append_release[:size], piece.query_release[:size])
    at = placed.offset - start
    value[at] = placed.value
    release[at] = np.maximum(release[at], placed.release)
    release[:1] = np.maximum(release[:1], before)
    moment = np.maximum.accumulate(release)
    return pa.Table.from_arrays(
        [pa.array(column) for column in (np.arange(start, stop), value, moment)], schema=LINEARIZATION
    )


def placed_within(placed: Placement, start: int, stop: int) -> Placement:
    """What is placed at the offsets start .. stop - 1."""
    a, z = np.searchsorted(placed.offset, (start, stop)).tolist()
    return Placement(placed.offset[a:z], placed.value[a:z], placed.release[a:z], placed.deadline[a:z])


def releases_before(starts: Sequence[int], summaries: Sequence[Summary], placed: Placement) -> list[int]:
    """The latest release to the left of each of the ascending `starts` of ranges with these summaries."""
    releases = []
    pieces = sorted(summaries, key=lambda piece: piece.start)
    latest_release, number = NEVER, 0
    for start in starts:
        while number < len(pieces) and pieces[number].start < start:
            latest_release = max(latest_release, *(peak.t for peak in pieces[number].realtime.release))
            number += 1
        count = int(np.searchsorted(placed.offset, start))
        releases.append(max(latest_release, int(placed.release[:count].max(initial=NEVER))))
    return releases
