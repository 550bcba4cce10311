"""Where a register client's operations are recorded: what is asked of the history's writer of registers."""

from __future__ import annotations

from typing import Protocol, Self

from history import RegisterWriter
from workloads.own_process import Record
from workloads.settings import ClientSettings


class Invocation(Protocol):
    """An operation under way; `value` is what it would write, unique in the run."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> int | None: ...


class RegisterRecord(Record, Protocol):
    """Every operation begins with one of `read`, `write`, `compare_and_set` and ends with one of the others."""

    def read(self, key: str) -> Invocation: ...

    def write(self, key: str) -> Invocation: ...

    def compare_and_set(self, key: str, expected: int | None) -> Invocation: ...

    def ok(self, invocation: Invocation, value: int | None = None) -> None:
        """It happened; `value` is what a read was answered."""

    def mismatched(self, invocation: Invocation) -> None:
        """A compare-and-set was answered: the key did not hold what it expected."""

    def failed(self, invocation: Invocation, error: str) -> None:
        """It certainly did not happen."""

    def unknown(self, invocation: Invocation, error: str) -> None:
        """It may have happened, or may yet."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_record(settings: ClientSettings) -> RegisterRecord:
    """The record of one client process. Raises FileExistsError rather than mixing two recordings."""
    writer: RegisterRecord = RegisterWriter(
        settings.directory,
        client=settings.client,
        session=settings.session,
        process=settings.process,
        producer=settings.producer if settings.producer >= 0 else None,
    )
    return writer
