"""The batches of idempotent producers in a log, and where they do not continue.

Consecutive batches of one producer and epoch that continue are one run, so what is known of a producer at the end of
some segments is a few numbers, and the runs of consecutive parts of a log are compared as single batches are.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from analysis.replicafiles.log import I64, NO_BREAKS, Bools, SequenceBreaks

NUMBERS: Final = 1 << 31
"""A producer's numbers are below this, and start at 0 again after the largest."""
OFFSET, PRODUCER, EPOCH, FIRST, LAST, LAST_OFFSET = range(6)


class Sorted(NamedTuple):
    """Batches by producer, epoch and offset, within the `stretch` of offsets that no missing ones interrupt.
    `continues`: the batch before is of the same producer, epoch and stretch; `due`: the number that must be its first
    one, 0 without such a batch."""

    batches: I64
    stretch: I64
    continues: Bools
    due: I64


def in_order(batches: I64, missing: Sequence[tuple[int, int]]) -> Sorted:
    """Batches in the order in which producers sent them. `missing`: the ranges of offsets that a log leaves out."""
    edges = np.array(sorted(end for _, end in missing), np.int64)
    stretch = np.searchsorted(edges, batches[:, OFFSET], side="right")
    order = np.lexsort((batches[:, OFFSET], batches[:, EPOCH], batches[:, PRODUCER], stretch))
    batches, stretch = batches[order], stretch[order]
    same = (np.diff(batches[:, [PRODUCER, EPOCH]], axis=0) == 0).all(axis=1) & (np.diff(stretch) == 0)
    continues = np.concatenate(([False], same))
    due = np.where(continues, np.roll((batches[:, LAST] + 1) % NUMBERS, 1), 0)
    return Sorted(batches, stretch, continues, due)


def fold(batches: I64, missing: Sequence[tuple[int, int]]) -> tuple[I64, SequenceBreaks]:
    """One run for the batches of each producer, epoch and stretch, and the breaks between these batches."""
    if not len(batches):
        return batches, NO_BREAKS
    batches, _, continues, due = in_order(batches, missing)
    first = np.flatnonzero(~continues)
    last = np.append(first[1:], len(batches)) - 1
    runs = np.column_stack((batches[first][:, [OFFSET, PRODUCER, EPOCH, FIRST]], batches[last][:, [LAST, LAST_OFFSET]]))
    return runs, breaks_at(batches, np.flatnonzero(continues & (batches[:, FIRST] != due)))


def breaks_at(batches: I64, positions: I64) -> SequenceBreaks:
    """The breaks before these batches. Each batch is after one of its producer."""
    if not len(positions):
        return NO_BREAKS
    at = int(positions[np.argmin(batches[positions, OFFSET])])
    return SequenceBreaks(len(positions), tuple(batches[at - 1].tolist()), tuple(batches[at].tolist()))
