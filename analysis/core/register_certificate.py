"""The certificate of registers: for each key its operations in an order that explains them, each with its time.

An operation's time is the latest invocation up to it in the order. That is within its interval because an operation
that was invoked after another's return never precedes it in the order. `register_verifier` confirms it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from history.operation_digest import digest_of_registers
from history.regular_files import sha256_of

FORMAT: Final = 2

ORDER: Final = pa.schema([("key", pa.string()), ("id", pa.int64()), ("at", pa.int64())])


def write(directory: Path | str, orders: Mapping[str, Sequence[int]], registers: pa.Table) -> Path:
    """Writes `registers.parquet` and `registers.json` and returns the latter's path.

    `orders`: the ids of each key's operations; `registers`: the whole history; the JSON holds its digest.
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    invoked = dict(zip(registers["id"].to_pylist(), registers["inv"].to_pylist(), strict=True))
    tables = [ORDER.empty_table()]
    for key, order in sorted(orders.items()):
        moments = list(accumulate((invoked[each] for each in order), max))
        tables.append(pa.table({"key": [key] * len(order), "id": list(order), "at": moments}, schema=ORDER))
    data = root / "registers.parquet"
    pq.write_table(pa.concat_tables(tables), data, compression="zstd")
    content: dict[str, Any] = {
        "format": FORMAT,
        "operations": registers.num_rows,
        "history": digest_of_registers(registers),
        "sha256": sha256_of(data),
    }
    path = root / "registers.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
