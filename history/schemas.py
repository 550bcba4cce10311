"""Arrow schemas of a run's record, and the codes used in them.

Times are nanoseconds of CLOCK_MONOTONIC on the machine that runs the clients; `INF` stands for "never returned".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

INF: Final = 1 << 60

# What an operation is (`f`).
APPEND: Final = 0
READ: Final = 1
END: Final = 2
WRITE: Final = 3
CAS: Final = 4

NAMES: Final = {APPEND: "append", READ: "read", END: "end", WRITE: "write", CAS: "cas"}

# How it ended (`type`): it happened; it certainly did not; it may have, now or at any later time.
OK: Final = 0
FAIL: Final = 1
INFO: Final = 2

ACKS_ALL: Final = -1

MISMATCH: Final = "mismatch"
"""The error of a failed compare-and-set that was answered: the key did not hold the expected value."""

SENT_AGAIN: Final = "may have been sent again"
"""Ends the error of an append whose record its client library may have sent more than once, whatever its outcome. Then
the record may be in the log more than once, and after records that were sent later."""

PHASE_MAIN: Final = "main"
PHASE_FINAL: Final = "final"

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())

OPERATIONS: Final = pa.schema(
    [
        pa.field("process", pa.int32(), nullable=False),
        pa.field("session", pa.int32(), nullable=False),
        pa.field("client", _TEXT, nullable=False),
        pa.field("f", pa.int8(), nullable=False),
        pa.field("topic", _TEXT, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("type", pa.int8(), nullable=False),
        pa.field("inv", pa.int64(), nullable=False),
        pa.field("ret", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("hi", pa.int64(), nullable=False),
        pa.field("lo", pa.int64(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("offsets", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
        pa.field("values", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
        pa.field("acks", pa.int8(), nullable=False),
        pa.field("phase", _TEXT, nullable=False),
        pa.field("error", _TEXT, nullable=False),
    ]
)
"""One row per operation.

`process` is the client, `session` its incarnation: what a client was shown binds it only until it reconnects.
`offset` is an append's reported offset (-1 unknown), a read's first requested offset (the client's position, whatever
offset the answer starts with), -1 for an end query.
`lo` and `hi` bound the log's length as a query showed it (-1: that side is not shown); `offsets` and `values` are the
records a read returned, in its order.
"""

REGISTERS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("process", pa.int32(), nullable=False),
        pa.field("client", _TEXT, nullable=False),
        pa.field("f", pa.int8(), nullable=False),
        pa.field("key", _TEXT, nullable=False),
        pa.field("type", pa.int8(), nullable=False),
        pa.field("inv", pa.int64(), nullable=False),
        pa.field("ret", pa.int64(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("expected", pa.int64()),
        pa.field("new", pa.int64()),
        pa.field("phase", _TEXT, nullable=False),
        pa.field("error", _TEXT, nullable=False),
        pa.field("endpoint", _TEXT, nullable=False),
    ]
)
"""One row per operation on a register: `f` is READ, WRITE or CAS; `id` (process << 32 | count) is unique in the run.

`value` is the answer of a read or the value of a write, `expected` and `new` belong to a compare-and-set. Null is nil:
the key is absent, as every key is before its first write. Values written (also by a compare-and-set) are unique in the
run, so a read identifies the operation that wrote its value. A failed compare-and-set with the error `MISMATCH` is an
answer; a failure with any other error says only that the operation did not happen. `endpoint`: the `host:port` that the
client asked, which answered if the outcome is an answer; empty if it is not recorded.
"""

REGISTERS_WITHOUT_ENDPOINTS: Final = REGISTERS.remove(REGISTERS.get_field_index("endpoint"))
"""`REGISTERS` as versions wrote it that did not record endpoints."""

RESERVATIONS: Final = pa.schema(
    [
        pa.field("client", pa.string()),
        pa.field("process", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("first", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("t", pa.int64()),
    ]
)
"""Blocks of values a producer announced before using them: `first` .. `first + count - 1` for one partition."""
