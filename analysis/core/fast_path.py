"""Evidence and facts of a large history in two passes over its columns, if the history is regular.

The result equals that of `gather` and `facts_of` (tests compare them), or is None if offsets have several values, a
read is not contiguous, a query contradicts itself or offsets are absurdly far apart. Then those functions find out what
is wrong. Loading the compiled loops takes about half a second, so small histories do not use this path.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.core.aggregates import COUNTS, Facts, FinalReads, LooseAppends, finals_of
from analysis.core.evidence import OffsetEvidence, is_sparse
from analysis.core.rows import I64, columns_of, partitions_of, rows_of
from history.schemas import PHASE_FINAL

LARGE: Final = 1 << 22

Key = tuple[str, int]


def examine_large(table: pa.Table, upper_bound: str) -> tuple[list[Key], list[OffsetEvidence], list[Facts]] | None:
    """The partitions of a table with their evidence and facts, or None when it is not regular."""
    if upper_bound == "session":
        return None
    from analysis.core import compiled_loops

    keys, part = partitions_of(table)
    columns = columns_of(table)
    f, outcome, acks = columns.f, columns.type, columns.acks
    state, length, claims, loose, last_ack, counts = compiled_loops.measure(
        *(len(keys), f, outcome, acks, part, columns.inv, columns.ret, columns.offset, columns.value),
        *(columns.lo, columns.hi, columns.starts, columns.item_offset),
    )
    if state != compiled_loops.REGULAR or is_sparse(length, claims).any():
        return None
    base, loose_at = (np.concatenate(([0], np.cumsum(each))) for each in (length, loose))
    state, value, flags, releases, deadlines, loose_columns = compiled_loops.scatter(
        *(base, upper_bound == "strict", loose_at, f, outcome, acks, part, columns.inv, columns.ret),
        *(columns.offset, columns.value, columns.lo, columns.hi, columns.final, columns.starts, columns.item_value),
    )
    if state != compiled_loops.REGULAR:
        return None
    evidence = [
        OffsetEvidence(
            0, value[a:z], flags[a:z], releases[0, a:z], deadlines[0, a:z], releases[1, a:z], deadlines[1, a:z]
        )
        for a, z in zip(base[:-1].tolist(), base[1:].tolist(), strict=True)
    ]
    finals = _finals(table) if columns.final.any() else {}
    facts = [
        Facts(
            _ordered(loose_columns[:, a:z]),
            finals.get(key, Facts.finals),
            int(last_ack[p]),
            counts=dict(zip(COUNTS, counts[:, p].tolist(), strict=True)),
        )
        for p, (key, a, z) in enumerate(zip(keys, loose_at[:-1].tolist(), loose_at[1:].tolist(), strict=True))
    ]
    return keys, evidence, facts


def _ordered(loose: I64) -> LooseAppends:
    value, outcome, inv, ret = loose[:, np.lexsort((loose[0], loose[2]))]
    return LooseAppends(value, outcome, inv, ret)


def _finals(table: pa.Table) -> dict[Key, FinalReads]:
    rows = rows_of(table.filter(pc.field("phase") == PHASE_FINAL))
    return {rows.keys[part]: each for part, each in finals_of(rows).items()}
