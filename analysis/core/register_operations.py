"""Operations on registers in the checkers' form, from a table with the schema `history.REGISTERS`."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from history.record.schemas import CAS, FAIL, INF, INFO, MISMATCH, OK, READ, WRITE

NAMES: Final = {READ: "read", WRITE: "write", CAS: "cas"}
TYPES: Final = ("ok", "fail", "info")
_COLUMNS: Final = ("id", "f", "type", "inv", "ret", "value", "expected", "new", "client", "error", "phase", "endpoint")


class OutOfBudget(Exception):  # noqa: N818 - no error: the answer "not known"
    """The search visited the permitted number of configurations without a result."""


class RegisterOperation(NamedTuple):
    """One operation on one key; None is nil. Times in ns, `ret` INF if it never returned."""

    id: int
    f: int
    type: int
    inv: int
    ret: int
    value: int | None = None
    expected: int | None = None
    new: int | None = None
    client: str = ""
    error: str = ""
    phase: str = "main"
    endpoint: str = ""

    def shown(self, key: str) -> dict[str, Any]:
        """The operation as a witness: names for codes."""
        shown_values = {"expected": self.expected, "new": self.new} if self.f == CAS else {"value": self.value}
        return {
            "id": self.id,
            "op": NAMES[self.f],
            "client": self.client,
            "key": key,
            "type": TYPES[self.type],
            "inv": self.inv,
            "ret": None if self.ret >= INF else self.ret,
            **{name: "nil" if value is None else str(value) for name, value in shown_values.items()},
            "phase": self.phase,
            "error": self.error,
            "endpoint": self.endpoint,
        }


def by_key(table: pa.Table) -> dict[str, list[RegisterOperation]]:
    """Each key's operations in order of invocation."""
    columns = [table[name].to_pylist() for name in _COLUMNS]
    operations_by_key: dict[str, list[RegisterOperation]] = {}
    for key, *fields in zip(table["key"].to_pylist(), *columns, strict=True):
        operations_by_key.setdefault(key, []).append(RegisterOperation(*fields))
    for operations in operations_by_key.values():
        operations.sort(key=lambda operation: (operation.inv, operation.id))
    return dict(sorted(operations_by_key.items()))


def is_sure(operation: RegisterOperation) -> bool:
    """Whether it is a compare-and-set with a reported mismatch: an answer about the state that writes nothing."""
    return operation.type == FAIL and operation.error == MISMATCH


def counts(operation: RegisterOperation) -> bool:
    """Whether it says something: it happened, it reported a mismatch, or it may have written."""
    return operation.type == OK or is_sure(operation) or (operation.type == INFO and operation.f != READ)


def is_pure(operation: RegisterOperation) -> bool:
    """Whether it changes nothing: a read or a mismatched compare-and-set."""
    return operation.f == READ or operation.type == FAIL


def written(operation: RegisterOperation) -> int | None:
    """The value that it writes if it takes effect, None for a read."""
    if operation.f == READ:
        return None
    return operation.value if operation.f == WRITE else operation.new


def seen_values(operations: Sequence[RegisterOperation]) -> set[int | None]:
    """The values whose presence or absence an operation depends on."""
    read_values = {operation.value for operation in operations if operation.f == READ and operation.type == OK}
    return read_values | {operation.expected for operation in operations if operation.f == CAS}
