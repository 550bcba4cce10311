"""The record of a run: what clients did, what went wrong on purpose, and when.

The lowest floor. Clients write operations with `OperationWriter` and `RegisterWriter`, or in any language as JSON lines
(docs/operations.md); the run loop writes a `Journal`, and everything
that judges a run starts from `read_run`.

A name is imported when it is first asked for: Arrow takes a third of a second, and whoever reads a campaign's file,
or its checkers' names, needs none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from history.compact import compact as compact
    from history.compact import compact_registers as compact_registers
    from history.contents import record_bytes as record_bytes
    from history.contents import value_of_record as value_of_record
    from history.errors import HistoryError as HistoryError
    from history.journal import Journal as Journal
    from history.reader import History as History
    from history.reader import read_run as read_run
    from history.registers import Invocation as Invocation
    from history.registers import RegisterWriter as RegisterWriter
    from history.schemas import (
        ACKS_ALL as ACKS_ALL,
    )
    from history.schemas import (
        APPEND as APPEND,
    )
    from history.schemas import (
        CAS as CAS,
    )
    from history.schemas import (
        END as END,
    )
    from history.schemas import (
        FAIL as FAIL,
    )
    from history.schemas import (
        INF as INF,
    )
    from history.schemas import (
        INFO as INFO,
    )
    from history.schemas import (
        MISMATCH as MISMATCH,
    )
    from history.schemas import (
        OK as OK,
    )
    from history.schemas import (
        OPERATIONS as OPERATIONS,
    )
    from history.schemas import (
        READ as READ,
    )
    from history.schemas import (
        REGISTERS as REGISTERS,
    )
    from history.schemas import (
        WRITE as WRITE,
    )
    from history.services import FatalLine as FatalLine
    from history.services import ServiceExit as ServiceExit
    from history.values import (
        DERIVED as DERIVED,
    )
    from history.values import (
        NOT_A_VALUE as NOT_A_VALUE,
    )
    from history.values import (
        RECORD_FORMS as RECORD_FORMS,
    )
    from history.values import (
        VALUE_FIRST as VALUE_FIRST,
    )
    from history.values import (
        Value as Value,
    )
    from history.values import (
        decode_value as decode_value,
    )
    from history.values import (
        encode_value as encode_value,
    )
    from history.writer import OperationWriter as OperationWriter

_HOME_OF = {
    name: module
    for module, names in {
        "compact": "compact compact_registers",
        "contents": "record_bytes value_of_record",
        "errors": "HistoryError",
        "journal": "Journal",
        "reader": "History read_run",
        "registers": "Invocation RegisterWriter",
        "schemas": "ACKS_ALL APPEND CAS END FAIL INF INFO MISMATCH OK OPERATIONS READ REGISTERS WRITE",
        "services": "FatalLine ServiceExit",
        "values": "DERIVED NOT_A_VALUE RECORD_FORMS VALUE_FIRST Value decode_value encode_value",
        "writer": "OperationWriter",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value
