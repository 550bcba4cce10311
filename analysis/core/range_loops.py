"""The loops of `range_evidence`, compiled. Importing this module loads the compiler, which takes half a second."""

from __future__ import annotations

from typing import Any

from numba import njit

from analysis.core.evidence import ACK, AGAIN, FINAL, NAMED, SEEN, SESSION_BITS
from analysis.core.scans import NEVER
from history.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, OK, READ

IRREGULAR = -1

# Items of the counts that `scatter` adds to: in the order of `aggregates.COUNTS`.
ACKNOWLEDGED, FAILED, INDETERMINATE, READS, ENDS, RECORDS = range(6)

# Items of the extremes that `scatter` maintains.
LAST_ACK, LOW, HIGH = range(3)


@njit(cache=True, nogil=True)
def scatter(start: Any, strict: Any, owned: Any, f: Any, outcome: Any, acks: Any, inv: Any, ret: Any, offset: Any,
            value: Any, lo: Any, hi: Any, final: Any, again: Any, starts: Any, item_offset: Any, item_value: Any,
            known: Any, flags: Any, append_release: Any, append_deadline: Any, query_release: Any, query_deadline: Any,
            loose: Any, counts: Any, extremes: Any) -> Any:  # fmt: skip
    """Adds one row group to the dense evidence of the offsets from `start` on; returns the number of columns that it
    filled in `loose`, or IRREGULAR. The rows of `loose`: value, outcome, inv, ret, whether it may be at several
    offsets, and the offset that the append names, or -1."""
    size = len(known)
    filled = 0
    for i in range(len(f)):
        if not (-INF <= inv[i] <= ret[i] <= INF and APPEND <= f[i] <= END and OK <= outcome[i] <= INFO):
            return IRREGULAR
        if not (-1 <= offset[i] < INF and -1 <= lo[i] < INF and -1 <= hi[i] < INF):
            return IRREGULAR
        if f[i] == APPEND:
            if value[i] < 0:
                return IRREGULAR
            durable = outcome[i] == OK and acks[i] == ACKS_ALL
            if owned:
                if durable:
                    counts[ACKNOWLEDGED] += 1
                    extremes[LAST_ACK] = max(extremes[LAST_ACK], ret[i])
                else:
                    counts[FAILED if outcome[i] == FAIL else INDETERMINATE] += 1
            if durable and offset[i] >= 0:
                extremes[LOW], extremes[HIGH] = min(extremes[LOW], offset[i]), max(extremes[HIGH], offset[i])
                g = offset[i] - start
                if 0 <= g < size:
                    if flags[g] & ACK or (flags[g] and known[g] != value[i]):
                        return IRREGULAR
                    known[g] = value[i]
                    flags[g] |= ACK | AGAIN if again[i] else ACK
                    append_release[g] = inv[i]
                    append_deadline[g] = ret[i]
            if not (durable and offset[i] >= 0) or again[i]:
                is_sure = durable and offset[i] < 0
                named = offset[i] if not durable and not again[i] and outcome[i] != FAIL else -1
                if named >= 0:
                    extremes[LOW], extremes[HIGH] = min(extremes[LOW], named), max(extremes[HIGH], named)
                if (owned and named < 0) or 0 <= named - start < size:
                    weak = outcome[i] == OK and not is_sure
                    loose[0, filled], loose[1, filled] = value[i], INFO if weak else outcome[i]
                    loose[2, filled], loose[3, filled] = inv[i], ret[i] if is_sure else INF
                    loose[4, filled], loose[5, filled] = again[i], named
                    filled += 1
        elif outcome[i] != OK:
            if starts[i + 1] > starts[i]:
                return IRREGULAR
        else:
            first, count = starts[i], starts[i + 1] - starts[i]
            if owned:
                counts[READS if f[i] == READ else ENDS] += 1
                counts[RECORDS] += count
            shown = lo[i]
            if count:
                if offset[i] < 0:
                    return IRREGULAR
                shown = max(shown, offset[i] + count)
                seen = SEEN | FINAL if final[i] else SEEN
                for j in range(count):
                    if item_offset[first + j] != offset[i] + j:
                        return IRREGULAR
                    g = offset[i] + j - start
                    if 0 <= g < size:
                        if flags[g] == 0:
                            known[g] = item_value[first + j]
                        elif known[g] != item_value[first + j]:
                            return IRREGULAR
                        flags[g] |= seen
                extremes[LOW] = min(extremes[LOW], offset[i])
            if shown > hi[i] and hi[i] >= 0:
                return IRREGULAR
            if shown > 0:
                extremes[LOW], extremes[HIGH] = min(extremes[LOW], shown - 1), max(extremes[HIGH], shown - 1)
                g = shown - 1 - start
                if 0 <= g < size:
                    query_deadline[g] = min(query_deadline[g], ret[i])
            if hi[i] >= 0:
                extremes[LOW], extremes[HIGH] = min(extremes[LOW], hi[i]), max(extremes[HIGH], hi[i])
                g = hi[i] - start
                if (strict or final[i]) and 0 <= g < size:
                    query_release[g] = max(query_release[g], inv[i])
    return filled


@njit(cache=True, nogil=True)
def match_named(start: Any, offset: Any, value: Any, inv: Any, known: Any, flags: Any, append_release: Any,
                left: Any) -> Any:  # fmt: skip
    """Marks the offsets at which reads show the append that names them, in the dense evidence from `start` on. Writes
    the numbers of the other appends into `left`; returns how many these are, or IRREGULAR."""
    count = 0
    for i in range(len(offset)):
        g = offset[i] - start
        if flags[g] & (ACK | SEEN) != SEEN or known[g] != value[i]:
            left[count] = i
            count += 1
        elif flags[g] & NAMED:
            return IRREGULAR
        else:
            flags[g] |= NAMED
            append_release[g] = inv[i]
    return count


@njit(cache=True, nogil=True)
def add_sessions(start: Any, size: Any, f: Any, outcome: Any, acks: Any, process: Any, session: Any, inv: Any, ret: Any,
                 offset: Any, lo: Any, hi: Any, final: Any, starts: Any, events: Any) -> Any:  # fmt: skip
    """Writes what each session was shown of the log's length within a range into `events`, shape (4, 2 * rows):
    session, offset, release, deadline. Returns the number of events. The rows must be regular."""
    filled = 0
    for i in range(len(f)):
        if outcome[i] != OK or (f[i] == APPEND and (acks[i] != ACKS_ALL or offset[i] < 0)):
            continue
        shown, capped = offset[i] + 1, -1
        if f[i] != APPEND:
            count = starts[i + 1] - starts[i]
            shown = max(lo[i], offset[i] + count) if count else lo[i]
            capped = -1 if final[i] else hi[i]
        for at, release, deadline in ((shown - 1, NEVER, ret[i]), (capped, inv[i], INF)):
            if at >= start and at - start < size:
                events[0, filled] = process[i] << SESSION_BITS | session[i]
                events[1, filled], events[2, filled], events[3, filled] = at, release, deadline
                filled += 1
    return filled
