"""The record of a run: what clients did, what went wrong on purpose, and when.

The lowest floor. Clients write operations with `OperationWriter`, the run loop writes a `Journal`, and everything
that judges a run starts from `read_run`.
"""

from history.compact import compact
from history.journal import Journal
from history.reader import History, HistoryError, read_run
from history.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, OK, OPERATIONS, READ
from history.services import FatalLine, ServiceExit
from history.values import Value, decode_value, encode_value, record_bytes, value_of_record
from history.writer import OperationWriter

__all__ = [
    "ACKS_ALL",
    "APPEND",
    "END",
    "FAIL",
    "INF",
    "INFO",
    "OK",
    "OPERATIONS",
    "READ",
    "FatalLine",
    "History",
    "HistoryError",
    "Journal",
    "OperationWriter",
    "ServiceExit",
    "Value",
    "compact",
    "decode_value",
    "encode_value",
    "read_run",
    "record_bytes",
    "value_of_record",
]
