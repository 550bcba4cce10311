"""Memory of `brownout check` for reading a history that Brownout did not record, by format.

    python -m benchmarks.foreign_memory [OPERATIONS] [--scratch DIR]

A process of its own reads a generated history of each format. The figure is the growth of its peak memory over that of
a process that has loaded the same libraries, by operation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from history.arrow import without_pandas
from history.foreign import jepsen_edn, json_lines, porcupine
from history.foreign.history import ForeignHistory
from history.values import encode_value

KEYS: Final = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="?", type=float, default=3e5)
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    for name, (lines, _) in FORMATS.items():
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            path = Path(scratch) / "client.jsonl"
            with path.open("w", encoding="utf-8") as file:
                for number in range(int(options.operations)):
                    file.writelines(lines(number))
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                grown, rows = pool.submit(read, name, path).result()
        print(f"{name}: {rows:,} operations, {grown / rows:.0f} bytes each", flush=True)


def read(name: str, path: Path) -> tuple[int, int]:
    """The growth of the peak memory in bytes, and the number of operations."""
    without_pandas()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = FORMATS[name][1](path).operations.num_rows
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, rows


def log_lines(number: int) -> Iterator[str]:
    append = {"f": "append", "type": "ok", "topic": "log", "partition": number % 8, "offset": number // 8}
    yield _line(append | {"value": encode_value(1, 0, number)}, number)


def register_lines(number: int) -> Iterator[str]:
    yield _line({"f": "write", "type": "ok", "key": f"k{number // KEYS}", "value": number}, number)


def _line(operation: dict[str, object], number: int) -> str:
    return json.dumps(operation | {"inv": 10**9 + number * 1000, "ret": 10**9 + number * 1000 + 900}) + "\n"


def porcupine_lines(number: int) -> Iterator[str]:
    for kind in ("invoke", "ok"):
        yield f"INFO  jepsen.util - {number % 3}\t:{kind}\t:write\t{number}\n"


def edn_lines(number: int) -> Iterator[str]:
    for kind, time in (("invoke", number * 2000), ("ok", number * 2000 + 900)):
        value = f"[{number // KEYS} {number}]"
        yield f"{{:type :{kind}, :process {number % 3}, :f :write, :value {value}, :time {time}}}\n"


FORMATS: Final[dict[str, tuple[Callable[[int], Iterator[str]], Callable[[Path], ForeignHistory]]]] = {
    "JSON lines of a log": (log_lines, lambda path: json_lines.read([path], None)),
    "JSON lines of registers": (register_lines, lambda path: json_lines.read([path], None)),
    "Porcupine's log": (porcupine_lines, porcupine.read),
    "EDN of registers": (edn_lines, jepsen_edn.read),
}

if __name__ == "__main__":
    main()
