"""Arrow schemas of a run's record, and the codes used in them.

Times are nanoseconds of CLOCK_MONOTONIC on the machine that runs the clients; `INF` stands for "never returned".
"""

from typing import Final

import msgspec

from history.columns import Int8Column, Int32Column, Int64Column, Int64List, LargeText, RepeatedText, schema_of

INF: Final = 1 << 60

# What an operation is (`f`).
APPEND: Final = 0
READ: Final = 1
END: Final = 2
WRITE: Final = 3
CAS: Final = 4
CALL: Final = 5
QUERY: Final = 6

NAMES: Final = {
    APPEND: "append",
    READ: "read",
    END: "end",
    WRITE: "write",
    CAS: "cas",
    CALL: "call",
    QUERY: "query",
}
CHANGES: Final = (APPEND, WRITE, CAS, CALL)
"""What changes something; the others are queries."""
FUNCTIONS: Final = {name: f for f, name in NAMES.items()}

# How it ended (`type`): it happened; it certainly did not; it may have, now or at any later time.
OK: Final = 0
FAIL: Final = 1
INFO: Final = 2

OUTCOMES: Final = {"ok": OK, "fail": FAIL, "info": INFO}

ACKS_ALL: Final = -1

MISMATCH: Final = "mismatch"
"""The error of a failed compare-and-set that was answered: the key did not hold the expected value."""

SENT_AGAIN: Final = "may have been sent again"
"""Ends the error of an append whose record its client library may have sent more than once, whatever its outcome. Then
the record may be in the log more than once, and after records that were sent later."""

PHASE_MAIN: Final = "main"
PHASE_FINAL: Final = "final"


class OperationColumns(msgspec.Struct):
    """The columns of operations on logs: one row for each operation."""

    process: Int32Column
    """The client."""
    session: Int32Column
    """The client's incarnation: what it was shown binds it only until it reconnects."""
    client: RepeatedText
    """The name of the client."""
    f: Int8Column
    """What the operation is: 0 append, 1 read, 2 end (the log's length), 3 write, 4 cas (compare and set), 5 call and 6
    query (a function of a [workload of your own](own-workloads.md) that may change something, or changes nothing)."""
    topic: RepeatedText
    """The log's topic."""
    partition: Int32Column
    """The log's partition."""
    type: Int8Column
    """The outcome: 0 ok, 1 fail (it certainly did not happen), 2 info (it may have happened, or may happen later)."""
    inv: Int64Column
    """The time of the invocation, in nanoseconds of CLOCK_MONOTONIC on the machine of the clients."""
    ret: Int64Column
    """The time of the return; 2^60 stands for "never returned"."""
    offset: Int64Column = -1
    """Of an append: the reported offset, -1 unknown. Of a read: the first requested offset (the client's position,
    whatever offset the answer starts with). -1 for an end query."""
    hi: Int64Column = -1
    """The log held at most that many records, as a query showed it; -1: not shown."""
    lo: Int64Column = -1
    """The log held at least that many records, as a query showed it; -1: not shown."""
    value: Int64Column = -1
    """Of an append: the value."""
    offsets: Int64List = ()
    """Of a read: the offsets of the returned records, in its order."""
    values: Int64List = ()
    """Of a read: the values of the returned records, in its order."""
    acks: Int8Column = ACKS_ALL
    """Of an append: the requested acknowledgements, -1 for all."""
    phase: RepeatedText = PHASE_MAIN
    """`main`, or `final` for the reads after the last heal."""
    error: RepeatedText = ""
    """Why the operation did not succeed; empty if it did."""


class RegisterColumns(msgspec.Struct):
    """The columns of operations on registers: one row for each operation.

    Values written (also by a compare-and-set) are unique in the run, so a read identifies the operation that wrote its
    value. A failed compare-and-set with the error `MISMATCH` is an answer; a failure with any other error says only
    that the operation did not happen."""

    id: Int64Column
    """The process times 2^32 plus a count, unique in the run."""
    process: Int32Column
    """As of a log."""
    client: RepeatedText
    """As of a log."""
    f: Int8Column
    """As of a log."""
    key: RepeatedText
    """The register."""
    type: Int8Column
    """As of a log."""
    inv: Int64Column
    """As of a log."""
    ret: Int64Column
    """As of a log."""
    value: Int64Column | None = None
    """The answer of a read or the value of a write. Null is nil: the key is absent, as every key is before its first
    write."""
    expected: Int64Column | None = None
    """Of a compare-and-set: the value that the key must hold; null: none."""
    new: Int64Column | None = None
    """Of a compare-and-set: the value that it writes."""
    phase: RepeatedText = PHASE_MAIN
    """As of a log."""
    error: RepeatedText = ""
    """As of a log."""
    endpoint: RepeatedText = ""
    """The `host:port` that the client asked, which answered if the outcome is an answer; empty if it is not
    recorded."""


class CallColumns(msgspec.Struct):
    """The columns of operations of workloads of a user's own: one row for each operation."""

    id: Int64Column
    """As of a register."""
    process: Int32Column
    """As of a log."""
    session: Int32Column
    """As of a log."""
    client: RepeatedText
    """As of a log."""
    f: Int8Column
    """As of a log."""
    function: RepeatedText
    """The name of the function."""
    type: Int8Column
    """As of a log."""
    inv: Int64Column
    """As of a log."""
    ret: Int64Column
    """As of a log."""
    key: RepeatedText = ""
    """The object that the operation is about; empty if the workload names none."""
    argument: LargeText = "null"
    """What the function got, as JSON."""
    result: LargeText | None = None
    """What the function returned, as JSON; null without an answer."""
    phase: RepeatedText = PHASE_MAIN
    """As of a log."""
    error: RepeatedText = ""
    """As of a log."""
    endpoint: RepeatedText = ""
    """As of a register."""


OPERATIONS: Final = schema_of(OperationColumns)
REGISTERS: Final = schema_of(RegisterColumns)
CALLS: Final = schema_of(CallColumns)

REGISTERS_WITHOUT_ENDPOINTS: Final = REGISTERS.remove(REGISTERS.get_field_index("endpoint"))
"""`REGISTERS` as versions wrote it that did not record endpoints."""
