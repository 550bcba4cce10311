"""The linearization of a history that passed: for each partition every offset with its value and its time.

`at` is the theorem's t_g = max r[j], j <= g. Queries need no entry: `verifier` confirms from the appends alone that
each query has a valid time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.decide import Placement
from analysis.core.evidence import NONE, OffsetEvidence
from analysis.core.rows import I64
from analysis.core.scans import NEVER
from analysis.core.summary import bounds
from history.operation_digest import digest_of_operations
from history.regular_files import sha256_of

FORMAT: Final = 2

LINEARIZATION: Final = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("at", pa.int64()),
    ]
)


def linearization(key: tuple[str, int], pieces: list[OffsetEvidence], placed: Placement) -> pa.Table:
    """The certificate's rows for one partition, from all its pieces in order of offset."""
    behind = NEVER
    tables = []
    for evidence in pieces:
        table = linearize(key, evidence, placed, before=behind)
        if table.num_rows:
            behind = int(table["at"][-1].as_py())
        tables.append(table)
    return pa.concat_tables(tables)


def linearize(key: tuple[str, int], evidence: OffsetEvidence, placed: Placement, *, before: int = NEVER) -> pa.Table:
    """The rows of one piece; `before`: the moment of the last offset to its left."""
    inside = (placed.offset >= evidence.start) & (placed.offset < evidence.start + len(evidence.value))
    at = placed.offset[inside] - evidence.start
    value = evidence.value.copy()
    value[at] = placed.value[inside]
    length = int(np.flatnonzero(value != NONE)[-1]) + 1 if (value != NONE).any() else 0
    earliest, _ = bounds(evidence, length, before=before)
    release = np.full(length, NEVER)
    release[at] = placed.release[inside]
    moment = np.maximum.accumulate(np.maximum(earliest, release))
    return _table(key, np.arange(length) + evidence.start, value[:length], moment)


def _table(key: tuple[str, int], offset: I64, value: I64, at: I64) -> pa.Table:
    topic, partition = key
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(offset), np.int32)), pa.array([topic]))
    numbers = pa.array(np.full(len(offset), partition, np.int32))
    return pa.Table.from_arrays(
        [names, numbers, *(pa.array(column) for column in (offset, value, at))], schema=LINEARIZATION
    )


def write(directory: Path | str, table: pa.Table, *, upper_bound: str, operations: pa.Table) -> Path:
    """Writes `linearization.parquet` and `certificate.json` and returns the latter's path.

    The JSON has the claim (`upper_bound`), the history that it is about (`operations`: how many, `history`: their
    digest), the length of each partition's log, and the digest of the Parquet file.
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    data = root / "linearization.parquet"
    pq.write_table(table, data, compression="zstd")
    keys = operations.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([]).to_pylist()
    lengths = {f"{row['topic']}-{row['partition']}": 0 for row in keys}
    for row in table.group_by(["topic", "partition"]).aggregate([("offset", "max")]).to_pylist():
        lengths[f"{row['topic']}-{row['partition']}"] = row["offset_max"] + 1
    content: dict[str, Any] = {
        "format": FORMAT,
        "upper_bound": upper_bound,
        "operations": operations.num_rows,
        "history": digest_of_operations(operations),
        "lengths": dict(sorted(lengths.items())),
        "sha256": sha256_of(data),
    }
    path = root / "certificate.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
