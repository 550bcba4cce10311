"""Clients as a user would bring them: of a log and of registers in one file that all processes share, and broken ones.

They are loaded by path, as a user's are; the file is named by the option `file`.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workloads.api import NO_OFFSET, Client, LogClient, NoOffset, Refused, RegisterClient


class _Stored(Client):
    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        super().__init__(endpoints, timeout_s, options)
        self._path = Path(options["file"])

    @contextmanager
    def store(self) -> Iterator[dict[str, Any]]:
        with open(self._path, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            data = json.loads(file.read() or "{}")
            try:
                yield data
            finally:
                file.truncate(0)
                file.write(json.dumps(data))


class Registers(_Stored, RegisterClient):
    """What registers should be."""

    def read(self, key: str) -> int | None:
        with self.store() as data:
            value: int | None = data.get(key)
            return value

    def write(self, key: str, value: int) -> None:
        with self.store() as data:
            data[key] = value

    def compare_and_set(self, key: str, expected: int | None, new: int) -> bool:
        with self.store() as data:
            same = bool(data.get(key) == expected)
            if same:
                data[key] = new
            return same


class Log(_Stored, LogClient):
    """What a log should be. Every tenth append is refused, and every 25th is done but not answered."""

    def append(self, partition: int, value: int) -> int | NoOffset:
        with self.store() as data:
            data["calls"] = data.get("calls", 0) + 1
            if data["calls"] % 10 == 9:
                raise Refused("not now")
            records: list[int] = data.setdefault(str(partition), [])
            records.append(value)
            calls, offset = data["calls"], len(records) - 1
        if calls % 25 == 0:
            raise TimeoutError("no answer")
        return offset

    def read(self, partition: int, offset: int, limit: int) -> Sequence[tuple[int, int]]:
        with self.store() as data:
            records = data.get(str(partition), [])[offset : offset + limit]
        return [(offset + index, value) for index, value in enumerate(records)]

    def end(self, partition: int) -> int:
        with self.store() as data:
            return len(data.get(str(partition), []))


class Unreachable(Registers):
    def __init__(self, *_: object) -> None:
        raise ConnectionRefusedError("not yet")


class Unanswered(Log):
    def append(self, partition: int, value: int) -> int:
        raise ConnectionResetError(f"gone with {value} of {partition}")


class Overflowing(Registers):
    """After the first write of a key, its value is one that no client can have written."""

    def read(self, key: str) -> int | None:
        return 10**25 if super().read(key) else None


class OverflowingLog(Log):
    """The same of a log's first record."""

    def read(self, partition: int, offset: int, limit: int) -> Sequence[tuple[int, int]]:
        return [(at, 10**25 if at == 0 else value) for at, value in super().read(partition, offset, limit)]


class BeyondTheLog(Log):
    """Says that its log is longer than any can be."""

    def end(self, partition: int) -> int:
        return super().end(partition) + (1 << 63)


class Careless(Registers):
    """Does everything, and returns something else than the result."""

    def read(self, key: str) -> Any:
        return str(super().read(key))

    def write(self, key: str, value: int) -> Any:
        super().write(key, value)
        return False

    def compare_and_set(self, key: str, expected: int | None, new: int) -> Any:
        super().compare_and_set(key, expected, new)


class CarelessLog(Log):
    """Forgets to return the results."""

    def append(self, partition: int, value: int) -> Any:
        super().append(partition, value)

    def read(self, partition: int, offset: int, limit: int) -> Any:
        super().read(partition, offset, limit)

    def end(self, partition: int) -> Any:
        super().end(partition)


class Unnamed(Log):
    """Is acknowledged without an offset."""

    def append(self, partition: int, value: int) -> int | NoOffset:
        super().append(partition, value)
        return NO_OFFSET


class Partial(RegisterClient):
    def read(self, key: str) -> int | None:
        raise Refused(key)


NOT_A_CLASS = 5
