"""From clients' streams to the page: processor time by stage, peak memory, size of the page, by number of operations.

    python -m benchmarks.whole_run [OPERATIONS ...] [--partitions N] [--spark N | --registers]

A stored run gets the streams of generated clients: eight producers and four consumers, one operation in 10 us, a fault
in the middle, and a final read of each partition. `analyze` reads the streams, checks the run, certifies the pass,
verifies the certificate, computes the statistics and draws the plots; then the page is made. Without `--spark` this
happens in local processes. Memory is the peak of the process that drives all this, and of its largest worker, libraries
included. Nodes have no files. With `--registers`, the run has the records of two clients on keys of 37 operations each.
On Spark, plots are drawn beside the checks, so their time is in that of the other stages.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis import pipeline
from analysis.engines.spark import SparkHandle
from analysis.plots import render
from analysis.report import render_run
from benchmarks.ingest import blocks_of, with_blocks
from benchmarks.log_histories import PRODUCERS, history
from benchmarks.log_scaling import I64, PIECE, Use, continued, in_a_process, lengths, peak_kb, replaced
from history.checksummed_lines import LineWriter
from history.journal.writer import Journal
from history.record.arrow_stream import FLUSH_ROWS, BatchWriter
from history.record.schemas import END, INF, NAMES, OK, OPERATIONS, PHASE_FINAL, READ
from history.record.values import SESSION_SHIFT
from history.record.writer import RESERVATION_BLOCK
from tests.analysis_pipeline.stored_registers import ROUNDS, StoredRegisters
from tests.analysis_pipeline.stored_run import MS, NODES, StoredRun
from workloads.consumer import POLL_RECORDS

CONSUMERS: Final = 4
OF_A_KEY: Final = 3 * ROUNDS + 1
"""The operations on a register."""
SLOWER: Final = 100
"""A generated history has an operation in 100 ns."""
FLUSH_POLLS: Final = 64
"""The reads of a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e5, 1e6])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--spark", type=int, default=0, help="Spark's workers on this machine")
    parser.add_argument("--registers", action="store_true", help="operations on registers in place of logs")
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    for operations in map(int, options.operations):
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            run = Path(scratch) / "run"
            if options.registers:
                operations -= operations % OF_A_KEY
                in_a_process(_write_registers, run, operations)
            else:
                in_a_process(_write, run, operations, options.partitions)
            in_a_process(_measure, run, operations, options.spark)


def _write(run: Path, operations: int, partitions: int) -> None:
    least = operations // 3
    LargeRun(run, operations=operations, partitions=partitions, changes=least, min_ok=least).write()


def _write_registers(run: Path, operations: int) -> None:
    keys = tuple(f"k{number}" for number in range(operations // OF_A_KEY))
    StoredRegisters(run, keys=keys).write()


@dataclass
class Client:
    """The open files of a generated client."""

    directory: Path
    process: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.name = f"client-{self.process}"
        self._rows = BatchWriter(self.directory / f"{self.name}-1.arrows", OPERATIONS, clock=lambda: 0)
        self._announced = LineWriter(self.directory / f"{self.name}-1.reserved")
        producer = self.process if self.process < PRODUCERS else None
        self._announced.write({"client": self.name, "process": self.process, "session": 1, "producer": producer})

    def record(self, rows: pa.Table, flush_rows: int = FLUSH_ROWS) -> None:
        """Writes operations of this client, with what it announces of them."""
        for block in blocks_of(rows):
            self._announced.write(block)
        names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows.num_rows, np.int32)), pa.array([self.name]))
        rows = rows.set_column(OPERATIONS.get_field_index("client"), OPERATIONS.field("client"), names)
        for batch in rows.combine_chunks().to_batches(max_chunksize=flush_rows):
            self._rows.write(batch)
        for entry in pc.value_counts(rows["f"]).to_pylist():
            self.counts[NAMES[entry["values"]]] += entry["counts"]

    def close(self) -> None:
        self._rows.close()
        self._announced.write({"closed": dict(self.counts)})
        self._announced.close()


@dataclass
class LargeRun(StoredRun):
    """A run with many operations, whose nodes have no files."""

    replica_format: str = "none"
    operations: int = 0

    @property
    def _clients(self) -> tuple[str, ...]:
        return tuple(f"client-{process}" for process in range(PRODUCERS + CONSUMERS))

    def _replicas(self) -> None:
        for node in NODES:
            (self.path / "nodes" / node / "data").mkdir(parents=True)
            self._events(node, 0)

    def _appends(self, journal: Journal) -> None:
        """All operations under load."""
        directory = self.path / "history" / "operations"
        directory.mkdir()
        self._open = [Client(directory, process) for process in range(PRODUCERS + CONSUMERS)]
        for client in self._open:
            role, count = ("producer", 1) if client.process < PRODUCERS else ("reader", 0)
            self._client(journal, client.name, process=client.process, role=role, producers=(client.process, count))
        self._log: list[list[I64]] = [[] for _ in range(self.partitions)]
        length, start, starts = np.zeros(self.partitions, np.int64), self.clock.now, range(0, self.operations, PIECE)
        for number, first in enumerate(starts):
            count = min(PIECE, self.operations - first)
            rows = with_blocks(history(count, partitions=self.partitions, seed=number))
            self._keep(rows, number)
            grown = lengths(rows, self.partitions)
            rows = _slower(continued(rows, length, number), start)
            length += grown
            for client in self._open:
                client.record(rows.filter(pc.equal(rows["process"], client.process)))
            ret = rows["ret"].to_numpy()
            self.clock.now = int(ret[ret < INF].max())
            if number == len(starts) // 2:
                self._fault(journal)
        self.clock.now += 100 * MS
        self._end(journal, self._open[:PRODUCERS])

    def _keep(self, rows: pa.Table, piece: int) -> None:
        """Keep the log that a piece leaves. Records whose offset no operation shows are those of appends that timed
        out."""
        part, offset, value = (rows[name].to_numpy() for name in ("partition", "offset", "value"))
        shown, lists = lengths(rows, self.partitions), rows["offsets"].combine_chunks()
        items = np.diff(lists.offsets.to_numpy())
        base = np.cumsum(shown) - shown
        log = np.full(shown.sum(), -1)
        log[np.repeat(base[part], items) + lists.values.to_numpy()] = rows["values"].combine_chunks().values.to_numpy()
        is_known = (value >= 0) & (offset >= 0)
        log[base[part[is_known]] + offset[is_known]] = value[is_known]
        unknown = np.setdiff1d(value[(value >= 0) & (offset < 0)], log)
        of_partition = unknown // RESERVATION_BLOCK % self.partitions
        for number, (first, count) in enumerate(zip(base.tolist(), shown.tolist(), strict=True)):
            mine = log[first : first + count]
            is_open = mine < 0
            mine[is_open] = unknown[of_partition == number][: is_open.sum()]
            self._log[number].append(mine + (piece << SESSION_SHIFT))

    def _final_read(self, journal: Journal) -> None:
        for number, pieces in enumerate(self._log):
            rows = _final_reads(number, np.concatenate(pieces), self.clock.now)
            self.clock.now = int(rows["ret"][-1].as_py())
            self._open[PRODUCERS + number % CONSUMERS].record(rows, FLUSH_POLLS)
        self._end(journal, self._open[PRODUCERS:])

    def _end(self, journal: Journal, clients: Sequence[Client]) -> None:
        for client in clients:
            client.close()
            self._left(journal, client.name)


def _slower(rows: pa.Table, start: int) -> pa.Table:
    """The operations of a history that starts at this time, SLOWER times as slow."""
    inv, ret = ((rows[name].to_numpy() - 10**9) * SLOWER + start + 100 * MS for name in ("inv", "ret"))
    rows = replaced(rows, "inv", inv)
    return replaced(rows, "ret", np.where(rows["ret"].to_numpy() < INF, ret, INF))


def _final_reads(partition: int, log: I64, start: int) -> pa.Table:
    """The query of a log's end and the reads of the whole log."""
    first = np.arange(0, len(log), POLL_RECORDS)
    count = len(first) + 1
    inv = start + MS * np.arange(count)
    edges = pa.array(np.concatenate(([0], np.minimum(np.arange(count) * POLL_RECORDS, len(log)))), pa.int32())

    def constant(content: int | str) -> Any:
        return pa.array([content] * count)

    is_end = np.arange(count) == 0
    columns = {
        "process": constant(PRODUCERS + partition % CONSUMERS),
        "session": constant(1),
        "client": constant(""),
        "f": pa.array(np.where(is_end, END, READ)),
        "topic": constant("log"),
        "partition": constant(partition),
        "type": constant(OK),
        "inv": pa.array(inv),
        "ret": pa.array(inv + MS),
        "offset": pa.array(np.concatenate(([-1], first))),
        "hi": pa.array(np.where(is_end, len(log), -1)),
        "lo": constant(len(log)),
        "value": constant(-1),
        "offsets": pa.ListArray.from_arrays(edges, pa.array(np.arange(len(log)))),
        "values": pa.ListArray.from_arrays(edges, pa.array(log)),
        "acks": constant(-1),
        "phase": constant(PHASE_FINAL),
        "error": constant(""),
    }
    return pa.table([columns[name].cast(OPERATIONS.field(name).type) for name in OPERATIONS.names], OPERATIONS)


class Stages:
    """The processor time of each stage, of all processes."""

    def __init__(self) -> None:
        self.use = Use()
        self.cpu_s: defaultdict[str, float] = defaultdict(float)

    def end(self, stage: str) -> None:
        """What was used since the last stage was in this one."""
        cpu_s = self.use.cpu_s()
        if cpu_s < -1:  # Spark ends idle workers after a minute, on a machine with much other work
            raise SystemExit(f"{stage}: the processor time of ended workers is lost; measure on a quiet machine")
        self.cpu_s[stage] += cpu_s

    def of(self, stage: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
        """The function; each call of it is a stage, with a name by its arguments."""

        def call(*arguments: Any, **named: Any) -> Any:
            self.end(REST)
            try:
                return function(*arguments, **named)
            finally:
                self.end(stage(*arguments))

        return call


REST: Final = "rest"


def _measure(run: Path, operations: int, spark: int) -> None:
    """Prints the figures of a run."""
    session = SparkHandle.start_in_background(master=f"local[{spark}]") if spark else None
    if session is not None:
        session.tasks()
    stages = Stages()
    named: list[tuple[Any, str, Callable[..., str]]] = [
        (pipeline, "read_run", lambda *_: "ingest"),
        (pipeline.RunFindings, "run", lambda _, name, *__: name),
        (pipeline, "statistics", lambda *_: "statistics"),
        (render, "draw", lambda *_: "plots"),
    ]
    with ExitStack() as stack:
        for owner, name, stage in named:
            stack.enter_context(patch.object(owner, name, stages.of(stage, getattr(owner, name))))
        verdict = pipeline.analyze(run, session=session, engine="spark" if spark else "in-process")
    stages.end(REST)
    counted, analyzed = verdict.stats["operations"] - verdict.stats["unfinished"], peak_kb(os.getpid())
    if verdict.verdict != "pass" or counted < operations:
        why = "; ".join((*verdict.reasons, *verdict.doubts))
        raise SystemExit(f"{counted} operations, {verdict.verdict}: {why}: the benchmark measures nothing")
    render_run(run)
    stages.end("page")
    worker, java = stages.use.largest()
    whole_s = sum(stages.cpu_s.values())
    ordered = sorted(stages.cpu_s.items(), key=lambda stage: -stage[1])
    shares = ", ".join(f"{stage} {cpu_s:.1f}" for stage, cpu_s in ordered if cpu_s >= LEAST * whole_s)
    print(
        f"{operations:>11,} operations: {whole_s:.1f} CPU s, {whole_s / operations * 1e6:.2f} us per operation "
        f"({shares}); driver {analyzed / 1e6:.2f} GB, with the page {peak_kb(os.getpid()) / 1e6:.2f} GB, "
        f"largest worker {worker / 1e6:.2f} GB"
        + (f", Java virtual machine {java / 1e6:.2f} GB" if java else "")
        + f"; page {(run / 'report.html').stat().st_size / 1e6:.2f} MB",
        flush=True,
    )
    if session is not None:
        session.stop()


LEAST: Final = 0.01
"""The share of a stage that is printed."""


if __name__ == "__main__":
    main()
