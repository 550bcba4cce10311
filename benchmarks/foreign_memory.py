"""Memory and CPU time of `brownout check` for histories that Brownout did not record, by format.

    python -m benchmarks.foreign_memory [OPERATIONS] [--scratch DIR]

A process of its own reads a generated history of each format, once with a quarter of the operations and once with all.
The figures are the growth of its peak memory over that of a process that has loaded the same libraries, the growth by
each operation beyond the first quarter, and the CPU time of an operation. EDN has a fifth of the operations, because
the library that reads it takes longer than all other steps.
"""

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
from history.record.values import encode_value

KEYS: Final = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="?", type=float, default=1.2e6)
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    for name in FORMATS:
        count = int(options.operations) // (5 if name.startswith("EDN") else 1)
        few, _, _ = measured(name, count // 4, options.scratch)
        grown, cpu, rows = measured(name, count, options.scratch)
        beyond = (grown - few) / (count - count // 4)
        print(
            f"{name}: {rows:,} operations, {grown / 1e6:.0f} MB, {beyond:.0f} bytes for each beyond the first quarter, "
            f"{cpu / rows * 1e6:.1f} CPU us each",
            flush=True,
        )


def measured(name: str, count: int, place: Path | None) -> tuple[int, float, int]:
    """The growth of the peak memory in bytes, the CPU time in s, and the number of operations that were read."""
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        path = Path(scratch) / "client.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(count):
                file.writelines(FORMATS[name][0](number))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(read, name, path).result()


def read(name: str, path: Path) -> tuple[int, float, int]:
    """As `measured`, of this process."""
    without_pandas()
    before = resource.getrusage(resource.RUSAGE_SELF)
    rows = FORMATS[name][1](path, path.parent).rows
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (after.ru_maxrss - before.ru_maxrss) * 1024, cpu, rows


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


def edn_log_lines(number: int) -> Iterator[str]:
    """A send, and after every fourth one a poll of the last four."""
    key, offset = number // 4 % 8, number // 32 * 4 + number % 4
    for kind, sent in (("invoke", number), ("ok", f"[{offset} {number}]")):
        yield f"{{:type :{kind}, :process {key}, :f :send, :value [[:send {key} {sent}]], :time {number * 2000}}}\n"
    if number % 4 == 3:
        records = " ".join(f"[{offset - back} {number - back}]" for back in (3, 2, 1, 0))
        for kind, polled in (("invoke", ""), ("ok", f" {{{key} [{records}]}}")):
            value = f"[[:poll{polled}]]"
            yield f"{{:type :{kind}, :process {8 + key}, :f :poll, :value {value}, :time {number * 2000 + 900}}}\n"


FORMATS: Final[dict[str, tuple[Callable[[int], Iterator[str]], Callable[[Path, Path], ForeignHistory]]]] = {
    "JSON lines of a log": (log_lines, lambda path, directory: json_lines.read([path], None, directory)),
    "JSON lines of registers": (register_lines, lambda path, directory: json_lines.read([path], None, directory)),
    "Porcupine's log": (porcupine_lines, porcupine.read),
    "EDN of registers": (edn_lines, jepsen_edn.read),
    "EDN of logs": (edn_log_lines, jepsen_edn.read),
}

if __name__ == "__main__":
    main()
