"""The record of a run: what clients did, what went wrong on purpose, and when.

The lowest floor. Clients write operations with `OperationWriter` and `RegisterWriter`, or in any language as JSON lines
(docs/operations.md); the run loop writes a `Journal`, and everything
that judges a run starts from `read_run`.
"""

from history.compact import compact, compact_registers
from history.errors import HistoryError
from history.journal import Journal
from history.reader import History, read_run
from history.registers import Invocation, RegisterWriter
from history.schemas import (
    ACKS_ALL,
    APPEND,
    CAS,
    END,
    FAIL,
    INF,
    INFO,
    MISMATCH,
    OK,
    OPERATIONS,
    READ,
    REGISTERS,
    WRITE,
)
from history.services import FatalLine, ServiceExit
from history.values import (
    DERIVED,
    NOT_A_VALUE,
    RECORD_FORMS,
    VALUE_FIRST,
    Value,
    decode_value,
    encode_value,
    record_bytes,
    value_of_record,
)
from history.writer import OperationWriter

__all__ = [
    "ACKS_ALL",
    "APPEND",
    "CAS",
    "DERIVED",
    "END",
    "FAIL",
    "INF",
    "INFO",
    "MISMATCH",
    "NOT_A_VALUE",
    "OK",
    "OPERATIONS",
    "READ",
    "RECORD_FORMS",
    "REGISTERS",
    "VALUE_FIRST",
    "WRITE",
    "FatalLine",
    "History",
    "HistoryError",
    "Invocation",
    "Journal",
    "OperationWriter",
    "RegisterWriter",
    "ServiceExit",
    "Value",
    "compact",
    "compact_registers",
    "decode_value",
    "encode_value",
    "read_run",
    "record_bytes",
    "value_of_record",
]
