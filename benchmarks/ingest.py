"""CPU time and memory of reading clients' records, validating them and writing their tables.

    python -m benchmarks.ingest [OPERATIONS ...] [--partitions N] [--repeat N] [--json-lines | --register-lines]

A process of its own reads the records in sequence, so the rate is that of one core (user and system time, the best of
the repetitions), and the peak memory is that of a worker, its libraries included. The records are streams of Arrow, or
with `--json-lines` one file of appends in JSON lines, with `--register-lines` one of writes to registers, each with the
line of its invocation.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.log_histories import PRODUCERS, history
from history.checksummed_lines import text_of
from history.record.arrow_stream import BatchWriter
from history.record.client_reader import StreamRecord, read_recordings
from history.record.jsonl_reader import TakenNames, read_lines
from history.record.operation_tables import IndexedGroup, record_name, write_index, write_operations
from history.record.schemas import APPEND, NAMES, OPERATIONS
from history.record.shapes import LOG, SHAPES, Shape
from history.record.values import encode_value
from history.record.writer import RESERVATION_BLOCK

LINES_FILE = "client-0.jsonl"
I64 = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e6, 4e6])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json-lines", action="store_true", help="a file of JSON lines in place of streams")
    parser.add_argument("--register-lines", action="store_true", help="the same of registers, with invocations")
    options = parser.parse_args()
    writes = {"register_lines": record_register_lines, "json_lines": record_lines}
    make = next((write for option, write in writes.items() if getattr(options, option)), record)
    read = ingest if make is record else ingest_lines
    for operations in map(int, options.operations):
        with tempfile.TemporaryDirectory() as scratch:
            make(Path(scratch), operations, options.partitions)
            found = [_apart(read, Path(scratch)) for _ in range(options.repeat)]
        cpu_s, peak = min(each[0] for each in found), max(each[1] for each in found)
        print(
            f"{operations:>10,} operations: {cpu_s:.2f} CPU s, {operations / cpu_s / 1e6:.2f} M operations/s and core, "
            f"peak memory {peak / 1e6:.2f} GB, {found[0][2] / operations:.1f} bytes per operation in Parquet"
        )


def _apart(read: Callable[[Path], tuple[float, int, int]], scratch: Path) -> tuple[float, int, int]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(read, scratch).result()


def ingest_lines(scratch: Path) -> tuple[float, int, int]:
    """As `ingest`, of the file of JSON lines."""
    tables, groups = _no_tables(scratch), {shape: list[IndexedGroup]() for shape in SHAPES.values()}
    start_s = _cpu_s()

    def take(shape: Shape, rows: pa.Table) -> None:
        groups[shape] += write_operations(shape, rows, tables, record_name("", f"lines-{len(groups[shape])}"))

    found = read_lines([scratch / LINES_FILE], [], TakenNames({}, 0), take)
    for shape in groups:
        write_index(shape, groups[shape], tables)
    return _used(start_s, tables, found.defects[LINES_FILE])


def ingest(scratch: Path) -> tuple[float, int, int]:
    """CPU seconds, peak memory in kB, and bytes written."""
    tables = _no_tables(scratch)
    records = [
        StreamRecord(path, range(1 + len(list(scratch.glob(f"{path.stem}.*.arrows")))))
        for path in sorted(scratch.glob("client-?*-1.arrows"))
    ]
    start_s = _cpu_s()
    parts = read_recordings(LOG, records, tables=tables, keeps=False)
    write_index(LOG, [group for part in parts for group in part.groups], tables)
    return _used(start_s, tables, [defect for part in parts for defect in part.defects])


def _no_tables(scratch: Path) -> Path:
    tables = scratch / "tables"
    shutil.rmtree(tables, ignore_errors=True)
    return tables


def _used(start_s: float, tables: Path, defects: Sequence[str]) -> tuple[float, int, int]:
    took = _cpu_s() - start_s
    if defects:
        raise SystemExit(f"the generated record is not whole, the benchmark measures nothing: {defects[0]}")
    size = sum(path.stat().st_size for path in tables.rglob("*.parquet"))
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, size


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def record_lines(directory: Path, operations: int, partitions: int) -> None:
    """Writes a client's acknowledged appends as JSON lines."""
    with open(directory / LINES_FILE, "w", encoding="utf-8") as file:
        for number in range(operations):
            invoked = 10**9 + number * 1000
            append = {"f": "append", "type": "ok", "topic": "log", "partition": number % partitions}
            append |= {"value": encode_value(1, 0, number), "offset": number // partitions}
            file.write(json.dumps(append | {"inv": invoked, "ret": invoked + 900}) + "\n")


def record_register_lines(directory: Path, operations: int, partitions: int) -> None:
    """Writes a client's acknowledged writes to as many keys as JSON lines, each with its invocation."""
    with open(directory / LINES_FILE, "w", encoding="utf-8") as file:
        for number in range(operations):
            invoked = 10**9 + number * 1000
            write = {"id": f"write-{number}", "f": "write", "type": "invoke", "key": f"key-{number % partitions}"}
            file.write(json.dumps(write | {"value": encode_value(1, 0, number), "inv": invoked}) + "\n")
            file.write(json.dumps({"id": f"write-{number}", "type": "ok", "ret": invoked + 900}) + "\n")


def record(directory: Path, operations: int, partitions: int) -> None:
    """Writes a generated history as the streams and announcements of its clients."""
    rows = with_blocks(history(operations, partitions=partitions))
    for process in pc.unique(rows["process"]).to_pylist():
        _client(directory, process, rows.filter(pc.equal(rows["process"], process)))


def with_blocks(rows: pa.Table) -> pa.Table:
    """The history with values in blocks, each for one partition, as clients assign them."""
    is_append = rows["f"].to_numpy() == APPEND
    old, partition = rows["value"].to_numpy()[is_append], rows["partition"].to_numpy()[is_append].astype(np.int64)
    order = np.lexsort((old, partition))
    first = np.flatnonzero(np.concatenate(([True], np.diff(partition[order]) != 0)))
    rank = np.empty(len(old), np.int64)
    rank[order] = np.arange(len(old)) - np.repeat(first, np.diff(np.append(first, len(old))))
    several = int(partition.max()) + 1
    block, within = np.divmod(rank, RESERVATION_BLOCK)
    new = (old >> 32 << 32) + (block * several + partition) * RESERVATION_BLOCK + within
    by_old = np.argsort(old)

    def renamed(values: I64) -> I64:
        found: I64 = new[by_old][np.searchsorted(old[by_old], values)]
        return found

    value = rows["value"].to_numpy().copy()
    value[is_append] = renamed(value[is_append])
    shown = rows["values"].combine_chunks()
    lists = pa.ListArray.from_arrays(shown.offsets, pa.array(renamed(shown.values.to_numpy())), type=shown.type)
    for name, column in (("value", pa.array(value)), ("values", lists)):
        rows = rows.set_column(OPERATIONS.get_field_index(name), OPERATIONS.field(name), column)
    return rows


def _client(directory: Path, process: int, rows: pa.Table) -> None:
    client = f"client-{process}"
    writer = BatchWriter(directory / f"{client}-1.arrows", OPERATIONS, clock=lambda: 0)
    counts: Counter[str] = Counter()
    for start in range(0, rows.num_rows, 1 << 16):
        columns: dict[str, Any] = rows.slice(start, 1 << 16).to_pydict()
        columns["client"] = [client] * len(columns["f"])
        counts.update(NAMES[f] for f in columns["f"])
        for row in zip(*columns.values(), strict=True):
            writer.add(row)
    writer.close()
    producer = process if process < PRODUCERS else None
    first = {"client": client, "process": process, "session": 1, "producer": producer}
    lines = [first, *blocks_of(rows), {"closed": dict(counts)}]
    (directory / f"{client}-1.reserved").write_bytes(text_of(lines))


def blocks_of(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """The announcements of the blocks that have the values of these appends. Unused values are given back."""
    appends = rows.filter(pc.equal(rows["f"], APPEND))
    blocks, at, used = np.unique(
        appends["value"].to_numpy() // RESERVATION_BLOCK, return_index=True, return_counts=True
    )
    partitions = appends["partition"].to_numpy()[at]
    for first, number, count in zip(
        (blocks * RESERVATION_BLOCK).tolist(), partitions.tolist(), used.tolist(), strict=True
    ):
        yield {"topic": "log", "partition": number, "first": first, "count": RESERVATION_BLOCK, "t": 1}
        if count < RESERVATION_BLOCK:
            yield {"unused": first + count, "count": RESERVATION_BLOCK - count}


if __name__ == "__main__":
    main()
