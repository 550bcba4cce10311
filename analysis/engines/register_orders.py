"""Parts of the certificate of registers: files with the orders that explain keys, each with the time of its operations.

An operation's time is the latest invocation up to it in the order. That is within its interval because an operation
that was invoked after another's return never precedes it in the order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.register_operations import RegisterOperation
from history.regular_files import sha256_of

ORDER: Final = pa.schema([("key", pa.string()), ("id", pa.int64()), ("at", pa.int64())])


@dataclass(frozen=True)
class OrderPart:
    """The file with the orders of the keys from `start` on, up to the start of the next part."""

    start: str
    file: str
    sha256: str


def write_orders(
    path: Path, start: str, keys: Mapping[str, Sequence[RegisterOperation]], orders: Mapping[str, Sequence[int]]
) -> OrderPart:
    """Write the orders of keys to a file. `start`: the first key that the part may have. A key without an order has no
    entries, so the verifier refuses the certificate."""
    entries = [_entries(key, operations, orders.get(key, ())) for key, operations in keys.items()]
    pq.write_table(pa.concat_tables([ORDER.empty_table(), *entries]), path, compression="zstd")
    return OrderPart(start, path.name, sha256_of(path))


def _entries(key: str, operations: Sequence[RegisterOperation], order: Sequence[int]) -> pa.Table:
    invoked = {operation.id: operation.inv for operation in operations}
    moments = list(accumulate((invoked[number] for number in order), max))
    return pa.table({"key": [key] * len(order), "id": list(order), "at": moments}, ORDER)
