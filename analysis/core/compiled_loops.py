"""The loops of `fast_path`, compiled. Importing this module loads the compiler, which pays for large histories only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from analysis.core.evidence import ACK, FINAL, NONE, SEEN
from analysis.core.scans import NEVER
from history.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, OK, READ

REGULAR = 0
IRREGULAR = 1

# Rows of the counts that `measure` returns.
ACKNOWLEDGED, FAILED, INDETERMINATE, READS, ENDS, RECORDS = range(6)


@njit(cache=True, nogil=True)
def measure(parts: int, f: Any, outcome: Any, acks: Any, part: Any, inv: Any, ret: Any, offset: Any, value: Any,
            lo: Any, hi: Any, starts: Any, item_offset: Any) -> Any:  # fmt: skip
    """Per partition: the log's length, claims, loose appends, the last acknowledgement, and counts; and regularity."""
    length, claims, loose = np.zeros(parts, np.int64), np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    last_ack = np.full(parts, -1, np.int64)
    counts = np.zeros((6, parts), np.int64)
    for i in range(len(f)):
        p = part[i]
        first, count = starts[i], starts[i + 1] - starts[i]
        if not (-INF <= inv[i] <= ret[i] <= INF and APPEND <= f[i] <= END and OK <= outcome[i] <= INFO):
            return IRREGULAR, length, claims, loose, last_ack, counts
        if not (-1 <= offset[i] < INF and -1 <= lo[i] < INF and -1 <= hi[i] < INF):
            return IRREGULAR, length, claims, loose, last_ack, counts
        if f[i] == APPEND:
            if value[i] < 0:
                return IRREGULAR, length, claims, loose, last_ack, counts
            if outcome[i] == OK and acks[i] == ACKS_ALL:
                counts[ACKNOWLEDGED, p] += 1
                last_ack[p] = max(last_ack[p], ret[i])
                if offset[i] >= 0:
                    length[p] = max(length[p], offset[i] + 1)
                    claims[p] += 1
                    continue
            else:
                counts[FAILED if outcome[i] == FAIL else INDETERMINATE, p] += 1
            loose[p] += 1
        elif outcome[i] != OK:
            if count:
                return IRREGULAR, length, claims, loose, last_ack, counts
        else:
            counts[READS if f[i] == READ else ENDS, p] += 1
            counts[RECORDS, p] += count
            claims[p] += count
            shown = lo[i]
            if count:
                shown = max(shown, offset[i] + count)
                for j in range(count):
                    if item_offset[first + j] != offset[i] + j:
                        return IRREGULAR, length, claims, loose, last_ack, counts
                if offset[i] < 0:
                    return IRREGULAR, length, claims, loose, last_ack, counts
            if shown > hi[i] and hi[i] >= 0:
                return IRREGULAR, length, claims, loose, last_ack, counts
            length[p] = max(length[p], shown)
    return REGULAR, length, claims, loose, last_ack, counts


@njit(cache=True, nogil=True)
def scatter(base: Any, strict: bool, loose_at: Any, f: Any, outcome: Any, acks: Any, part: Any, inv: Any, ret: Any,
            offset: Any, value: Any, lo: Any, hi: Any, final: Any, starts: Any, item_value: Any) -> Any:  # fmt: skip
    """The dense evidence of partitions laid out from `base`, and the loose appends grouped by partition."""
    total = base[-1]
    known, flags = np.full(total, NONE, np.int64), np.zeros(total, np.uint8)
    releases, deadlines = np.full((2, total), NEVER, np.int64), np.full((2, total), INF, np.int64)
    loose = np.empty((4, loose_at[-1]), np.int64)
    cursor = loose_at.copy()
    for i in range(len(f)):
        p = part[i]
        if f[i] == APPEND:
            durable = outcome[i] == OK and acks[i] == ACKS_ALL
            if durable and offset[i] >= 0:
                g = base[p] + offset[i]
                if flags[g] & ACK or (flags[g] and known[g] != value[i]):
                    return IRREGULAR, known, flags, releases, deadlines, loose
                known[g] = value[i]
                flags[g] |= ACK
                releases[0, g] = inv[i]
                deadlines[0, g] = ret[i]
            else:
                at = cursor[p]
                cursor[p] += 1
                weak = outcome[i] == OK and not durable
                loose[0, at], loose[1, at], loose[2, at] = value[i], INFO if weak else outcome[i], inv[i]
                loose[3, at] = ret[i] if durable else INF
        elif outcome[i] == OK:
            first, count = starts[i], starts[i + 1] - starts[i]
            seen = SEEN | FINAL if final[i] else SEEN
            start = base[p] + offset[i]
            for j in range(count):
                if flags[start + j] == 0:
                    known[start + j] = item_value[first + j]
                elif known[start + j] != item_value[first + j]:
                    return IRREGULAR, known, flags, releases, deadlines, loose
                flags[start + j] |= seen
            shown = max(lo[i], offset[i] + count) if count else lo[i]
            if shown > 0:
                g = base[p] + shown - 1
                deadlines[1, g] = min(deadlines[1, g], ret[i])
            if hi[i] >= 0 and (strict or final[i]) and hi[i] < base[p + 1] - base[p]:
                g = base[p] + hi[i]
                releases[1, g] = max(releases[1, g], inv[i])
    return REGULAR, known, flags, releases, deadlines, loose
