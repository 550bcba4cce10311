"""From a run's directory to its verdict: tables, checks, statistics, certificate, plots.

Each stage writes into the run's directory and reads only what earlier stages wrote. So `analyze` can be repeated on any
stored run, interrupted runs included. A checker that crashes makes the run unknown, never pass.

Theory of operation. Counts are sums of the table of seconds. The times of changes are read once and stay in memory if
these are few. If they are many, each figure that depends on all of them takes passes of its own. A pass opens every
file of the tables, which for many small files takes longer than the arithmetic.

The quantiles and the longest gap of numbers that are not in memory at once are exact, by several passes. A pass counts
numbers in buckets whose order is that of the numbers. The next one counts only the numbers of the buckets that the
figure depends on one by one. The buckets of quantiles are the highest bits of the floating-point representation: a
bucket is 1/256 wide, relative to its numbers. The buckets of moments are cells of time, of each the first and the last
moment are kept: two moments of one cell are less than its length apart, so a gap that is longer is between two cells.
If the longest of these gaps is shorter than a cell, it is the length of the next pass's cells.

Before faults: the fault under test may destroy what was acknowledged under it; what was acknowledged before it must
survive.

Above uploads: remote storage never had these records. The brokers' own files must have every record above the last
segment whose upload was ever declared. Segments that were deleted since count too.
"""

import contextlib
import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.analysis_revision import revision
from analysis.checker import CheckedRun, Outcome
from analysis.checker_registry import CHECKERS
from analysis.checkers.bootstrap import figures
from analysis.checkers.faults import never_confirmed
from analysis.core.anomaly import NOT_SHOWN, Anomaly
from analysis.doubt import CERTIFICATE_REFUSED, CHECKER_CRASHED, UNJUDGED, Reason, code_of
from analysis.engines.processor_time import Meter
from analysis.engines.spark import SparkHandle
from analysis.engines.task_map import task_map
from analysis.evidence.load import load_of, load_statistics
from analysis.evidence.meetings import drawn_line
from analysis.evidence.run_directory import NodeEvents, RunDescription, describe, events_by_node, moment
from analysis.expectation import (
    ABOVE_UPLOADS,
    ACKNOWLEDGED_ABOVE_UPLOADS,
    LOST_ABOVE_UPLOADS,
    LOST_BEFORE_FAULTS,
    unmet,
)
from analysis.page.causes import with_causes
from analysis.page.run_facts import run_facts
from analysis.placeholder_verdict import begin
from analysis.plots.data import PlotData, fault_rows, view_of
from analysis.plots.drawing_process import DrawingProcess
from analysis.replicafiles.remote_metadata import read_metadata
from analysis.verdict import (
    CERTIFICATE,
    PASS,
    UNKNOWN,
    VERDICT_FILE,
    Check,
    Cost,
    Verdict,
    decide,
    digest_of_certificate,
)
from history import seal
from history.arrow import without_pandas
from history.grouped import grouped, ordered
from history.journal.timeline import INVOKED, NS, FaultSpan
from history.reader import History, estimated_operations, read_run
from history.record.operation_tables import by_key
from history.record.schemas import ACKS_ALL, APPEND, CHANGES, END, FAIL, INF, INFO, OK, PHASE_FINAL, READ
from history.record.shapes import LOG, REGISTER
from history.seconds import CELL_NS, cells_of
from history.value_runs import ValueRuns

# ---- The statistics of a verdict: counts and latencies of a run, from parts of its history.

Floats = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_SHIFT: Final = 44


def quantiles(numbers: Callable[[], Iterable[Floats]], fractions: Sequence[float]) -> list[float] | None:
    """As `numpy.quantile` of all numbers, which are 0 or more; None without numbers. Calls `numbers` twice."""
    coarse = _counted(numbers(), np.empty(0, np.int64))
    last = int(coarse["count"].to_numpy().sum()) - 1
    if last < 0:
        return None
    places = [fraction * last for fraction in fractions]
    ranks = [[min(int(place) + step, last) for step in (0, 1)] for place in places]
    pairs = _at(ranks, _counted(numbers(), np.unique(_at(ranks, coarse, "bucket"))), "number")
    return [float(np.quantile(pair, place - int(place))) for place, pair in zip(places, pairs, strict=True)]


def _counted(chunks: Iterable[Floats], wanted: I64) -> pa.Table:
    """How often each number of the wanted buckets is there, in order; numbers of other buckets are 0."""

    def columns(chunk: Floats) -> dict[str, npt.NDArray[Any]]:
        bucket = np.ascontiguousarray(chunk).view(np.int64) >> _SHIFT
        number = np.where(np.isin(bucket, wanted), chunk, 0.0)
        return {"bucket": bucket, "number": number, "count": np.ones_like(bucket)}

    parts = map(pa.table, map(columns, chain([np.empty(0)], chunks)))
    return ordered(grouped(parts, ("bucket", "number"), count="sum"), ("bucket", "number"))


def _at(ranks: Sequence[Sequence[int]], counted: pa.Table, column: str) -> npt.NDArray[Any]:
    """The values of these ranks."""
    places = np.searchsorted(np.cumsum(counted["count"].to_numpy()), ranks, side="right")
    values: npt.NDArray[Any] = counted[column].to_numpy()[places]
    return values


def gaps_with_the_longest(moments: Callable[[], Iterable[I64]], start: int, end: int) -> tuple[I64, I64]:
    """Starts and ends of gaps between neighbouring moments from `start` to `end`, both included as moments, in order.
    The longest gaps are among them. `start` is before `end`."""
    cell = CELL_NS
    while True:
        cells = np.empty((3, 0), np.int64)
        for chunk in moments():
            inside = chunk[(chunk >= start) & (chunk <= end)]
            cells = cells_of(np.concatenate((cells, (np.zeros_like(inside), inside, inside)), axis=1), cell)
        gap_starts, gap_ends = np.concatenate(([start], cells[2])), np.concatenate((cells[1], [end]))
        longest = int((gap_ends - gap_starts).max())
        if longest >= cell or cell == 1:
            return gap_starts, gap_ends
        cell = max(longest, 1)


MOST_KEPT: Final = 1 << 22
"""The most changes whose times stay in memory: 71 MB."""
_LATENCIES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
Parts = Callable[[], Iterable[pa.Table]]


def statistics(history: History, view: PlotData) -> dict[str, Any]:
    """Counts and latencies of a run; times in seconds and milliseconds as the names say. All figures are exact. A
    figure whose operations no client invoked has the value None."""
    rows = grouped([history.seconds], ("shape", "f", "type"), operations="sum", records="sum").to_pylist()
    changes, queries = ([row for row in rows if (row["f"] in CHANGES) is is_change] for is_change in (True, False))
    of_logs, of_registers = ([row for row in queries if row["shape"] == shape.name] for shape in (LOG, REGISTER))
    records = [row["records"] for row in of_logs if row["f"] == READ]
    parts: Parts = partial(_changes, history)
    if _number(changes) <= MOST_KEPT:
        parts = list(parts()).copy
    origin = view.clock.origin_ns
    stats: dict[str, Any] = {
        "operations": history.size,
        "appends": _number(changes),
        "failed": _number(changes, FAIL) if changes else None,
        "failed_queries": _number(queries, FAIL) if queries else None,
        "indeterminate": _number(changes, INFO) if changes else None,
        "unfinished": history.unfinished,
        "records_read": sum(records) if records else None,
        "reads": _number(of_registers, OK),
        "duration_s": round(view.end, 3),
        "origin_ns": origin,
        "longest_outage_s": _longest_outage(parts, origin),
    }
    exact = quantiles(lambda: _latencies(parts, origin), list(_LATENCIES.values()))
    rounded = [None] * len(_LATENCIES) if exact is None else [round(latency, 3) for latency in exact]
    return stats | {f"latency_{name}_ms": latency for name, latency in zip(_LATENCIES, rounded, strict=True)}


def _number(rows: Iterable[Mapping[str, Any]], outcome: int | None = None) -> int:
    """The number of operations, of one outcome if given."""
    return sum(row["operations"] for row in rows if outcome in (None, row["type"]))


def _changes(history: History) -> Iterator[pa.Table]:
    """Outcome and times of the operations that change something."""
    for part in history.parts("f", "type", "inv", "ret"):
        yield part.filter(pc.is_in(part["f"], pa.array(CHANGES, pa.int8()))).drop_columns("f")


def _acknowledged(parts: Parts) -> Iterator[tuple[I64, I64]]:
    """Invocations and returns of the acknowledged changes, part by part."""
    for part in parts():
        acknowledged = part.filter(pc.equal(part["type"], OK))
        yield acknowledged["inv"].to_numpy(), acknowledged["ret"].to_numpy()


def _latencies(parts: Parts, origin: int) -> Iterator[Floats]:
    """The latencies of acknowledged changes in milliseconds."""
    for inv, ret in _acknowledged(parts):
        yield ((ret - origin) / NS - (inv - origin) / NS) * 1e3


def _longest_outage(parts: Parts, origin: int) -> float | None:
    """The longest time without an acknowledgement, between the first and the last append; None if both have the same
    time, because an outage would not be visible."""
    invoked = [pc.min_max(part["inv"]).as_py() for part in parts() if part.num_rows]
    first, last = min((cell["min"] for cell in invoked), default=0), max((cell["max"] for cell in invoked), default=0)
    if first == last:
        return None
    starts, ends = gaps_with_the_longest(lambda: (ret for _, ret in _acknowledged(parts)), first, last)
    return round(float(((ends - origin) / NS - (starts - origin) / NS).max()), 3)


# ---- The tables of a run as Parquet: operations by partition, faults, phases, and the nodes' protocol events.

FAULTS: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("targets", pa.list_(pa.string())),
        pa.field("parameters", pa.string()),
        pa.field("sentence", pa.string()),
        pa.field("invoked", pa.int64()),
        pa.field("injected", pa.int64()),
        pa.field("healed", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("evidence", pa.string()),
        pa.field("proof", pa.string()),
        pa.field("group", pa.string()),
        pa.field("mark", pa.string()),
    ]
)
"""One row per fault; `parameters` and `evidence` are JSON, times are null for steps that did not happen.

`sentence` (what it did) and `proof` (the main evidence) are for people. `group` and `mark`: its look in plots, words of
`history.fault_looks`. Old records have none of these."""

PHASES: Final = pa.schema([pa.field("name", pa.string()), pa.field("start", pa.int64()), pa.field("end", pa.int64())])
"""The run's phases in order; the last one of an interrupted run has a null `end`."""

EVENTS: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("wall", pa.int64()),
        pa.field("event", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("fields", pa.string()),
    ]
)
"""One row per protocol event; `wall` in nanoseconds, `fields` the event's own fields as JSON."""


def write_tables(history: History, events: NodeEvents, run_dir: Path) -> None:
    """Write `tables/` from the run's history and the nodes' events, replacing older ones, without the operations: they
    were written when the history was read."""
    tables = run_dir / "tables"
    tables.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(map(_fault_row, history.faults)), FAULTS), tables / "faults.parquet")
    pq.write_table(
        pa.Table.from_pylist([phase._asdict() for phase in history.phases], PHASES), tables / "phases.parquet"
    )
    pq.write_table(_events(events), tables / "events.parquet", compression="zstd")


def _fault_row(fault: FaultSpan) -> dict[str, Any]:
    times = {event.removeprefix("fault_"): lines[0][1]["t"] for event, lines in fault.lines.items()}
    invoked = fault.line(INVOKED)
    mappings = {"evidence": fault.evidence, "parameters": invoked.get("parameters", {})}
    as_json = {name: json.dumps(content, default=str) for name, content in mappings.items()}
    return {**invoked, **times, **as_json, "status": fault.status, "proof": fault.proof}


def _events(events: NodeEvents) -> pa.Table:
    rows = [
        {
            "node": node,
            "wall": moment(event),
            "event": event["event"],
            "topic": event.get("topic"),
            "partition": event.get("partition"),
            "fields": json.dumps(
                {k: v for k, v in event.items() if k not in ("event", "wall", "seen", "topic", "partition", "on")}
            ),
        }
        for node, of_node in events.items()
        for event in of_node
    ]
    return pa.Table.from_pylist(rows, EVENTS)


ENGINES: Final = ("spark", "in-process")


@dataclass
class RunFindings:
    """The results of the checkers so far."""

    checks: list[Check] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)

    def run(self, name: str, checker: Callable[[CheckedRun], Outcome], run: CheckedRun, otherwise: Reason) -> Outcome:
        """Run one checker. Its verdict and detail become a check; an exception makes it unknown. `otherwise`: the
        reason of doubts that name none."""
        began = time.monotonic()
        try:
            outcome = checker(run)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            description = f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
            outcome, otherwise = Outcome(UNKNOWN, f"the checker crashed: {description}"), CHECKER_CRASHED
        self.checks.append(Check(name, outcome.verdict, outcome.detail, round(time.monotonic() - began, 3)))
        self.anomalies += outcome.anomalies
        self.doubts += map(str, outcome.doubts)
        self.codes |= {code_of(doubt, otherwise) for doubt in outcome.doubts}
        if outcome.verdict == UNKNOWN and not outcome.doubts:
            self.codes.add(otherwise.code)
        return outcome


def analyze(run_dir: Path, *, session: SparkHandle | None = None, engine: str = "spark", plots: bool = True) -> Verdict:
    """Analyze a run and write `tables/`, `certificate/`, `plots/` and `verdict.json` into its directory.

    `engine="in-process"` needs no session and gives the identical verdict. Without `plots` no plots are made. The
    stored verdict is unknown from the start, and stays so if the analysis is killed: an older verdict never remains.
    Raises `RunDirectoryError` when `run_dir` is not a run, or its description is damaged, `HistoryError` when its
    history is damaged, `ValueError` for an unknown engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: one of {', '.join(ENGINES)}")
    meter = Meter()
    without_pandas()
    begin(run_dir)
    evidence = seal.digest(run_dir)  # first: a file that changes during the analysis makes the verdict stale
    description = describe(run_dir)
    with contextlib.ExitStack() as stack:
        drawing = stack.enter_context(DrawingProcess()) if plots and engine == "spark" else None
        spread = meter.counted(task_map(None, estimated_operations(run_dir)))
        history = read_run(run_dir, tables=run_dir / "tables", each=spread)
        handle = (session or _own_session(stack)) if engine == "spark" else None
        judged, view = _judge(run_dir, description, history, evidence, handle, drawing, meter)
        if drawing is not None:  # last: a plot that fails cannot change the verdict
            drawing.finish(run_dir, view, judged)
        elif plots:
            from analysis.plots.render import draw  # matplotlib takes 0.5 s to load, and most runs are not plotted

            draw(run_dir, view, judged)
        return judged


def _own_session(stack: contextlib.ExitStack) -> SparkHandle:
    """A Spark session for this analysis, which ends with `stack`."""
    session = SparkHandle.start_in_background()
    stack.callback(session.stop)
    return session


def _judge(
    run_dir: Path,
    description: RunDescription,
    history: History,
    evidence: str,
    handle: SparkHandle | None,
    drawing: DrawingProcess | None,
    meter: Meter,
) -> tuple[Verdict, PlotData]:
    """The verdict, which is written, and the data of its plots."""
    events = events_by_node(run_dir)
    view = view_of(history, events)
    if drawing is not None:
        drawing.start(view)
    write_tables(history, events, run_dir)
    tasks = None if handle is None else handle.tasks().of(f"check {description.campaign}/{description.name}")
    run = CheckedRun(run_dir, description, history, events, tasks, meter)
    findings = RunFindings()
    _check(run, findings)
    verdict, reasons, doubts = decide(findings.checks, findings.anomalies, findings.doubts)
    if verdict != PASS:
        shutil.rmtree(run_dir / CERTIFICATE, ignore_errors=True)
    judged = Verdict(
        run=description.name,
        campaign=description.campaign,
        cell=description.cell,
        seed=description.seed,
        verdict=verdict,
        expected=description.expect,
        met=False,
        reasons=reasons,
        anomalies=_with_causes(findings.anomalies, history, events),
        checks=tuple(findings.checks),
        faults=tuple(fault_rows(history)),
        never_seen=tuple(f"fault {kind}" for kind in never_confirmed(run)),
        stats=statistics(history, view)
        | load_statistics(description, load_of(history))
        | _losses(run)
        | _losses_above_uploads(run)
        | figures(history.journal)
        | ({"drawn": line} if (line := drawn_line(description, history, events)) else {}),
        upper_bound=description.checks.upper_bound,
        world=description.world,
        limits=description.limits,
        replay=description.replay,
        doubts=doubts,
        codes=tuple(sorted(findings.codes)),
        mutants=description.mutants,
        versions=description.versions,
        finished=True,
        evidence=evidence,
        analysis=revision(),
        certificate=digest_of_certificate(run_dir) if verdict == PASS else "",
        engine="in-process" if handle is None else "spark",
        cost=_cost(meter, handle),
    )
    unmet_reason = unmet(description.expect, judged)
    judged = replace(judged, met=not unmet_reason, unmet=unmet_reason)
    judged.write(run_dir / VERDICT_FILE)
    return judged, view


def _with_causes(anomalies: Sequence[Anomaly], history: History, events: NodeEvents) -> tuple[Anomaly, ...]:
    """The anomalies with their causes. A damaged event cannot change the verdict: then no cause is shown."""
    if not anomalies:
        return ()
    try:
        numbered = {node: list(enumerate(events_of_node, 1)) for node, events_of_node in events.items()}
        return with_causes(anomalies, run_facts(history.journal, numbered, history.clock))
    except Exception as error:
        return tuple(replace(anomaly, cause=f"{NOT_SHOWN}{type(error).__name__}: {error}") for anomaly in anomalies)


def _cost(meter: Meter, handle: SparkHandle | None) -> Cost:
    cpu_s = meter.cpu_s + (0.0 if handle is None else handle.new_cpu_s())
    return Cost(round(cpu_s, 2), round(meter.wall_s, 2), meter.tasks)


def _losses(run: CheckedRun) -> dict[str, int]:
    """Lost records that were acknowledged before the first fault; empty for a log that may remove records."""
    if run.description.workload.judge != "log" or run.forgetting:
        return {}
    return {LOST_BEFORE_FAULTS: lost_before_faults(run.history)}


def _losses_above_uploads(run: CheckedRun) -> dict[str, int]:
    """Records above remote storage that were acknowledged, and how many of them are lost; empty if the expectation does
    not need it, or evidence is missing."""
    if ABOVE_UPLOADS not in run.description.expect.must_hold or run.description.workload.judge != "log":
        return {}
    places = {node: run.directory / "nodes" / node / "data" for node in run.plan.nodes}
    first = first_above_uploads(places, run.history)
    loss = lost_above_uploads(run.history, first) if first is not None else None
    return {ACKNOWLEDGED_ABOVE_UPLOADS: loss.acknowledged, LOST_ABOVE_UPLOADS: loss.lost} if loss else {}


def _check(run: CheckedRun, findings: RunFindings) -> None:
    """Run the checkers that apply, in the registry's order. If none finds anything, certify the passes."""
    checkers = [checker for checker in CHECKERS if checker.applies(run)]
    if all(checker.judge is None for checker in checkers):
        findings.doubts.append(
            f"no checker judges what clients did: the workload asks for {run.description.workload.judge!r}"
        )
        findings.codes.add(UNJUDGED.code)
    outcomes = [(each, findings.run(each.name, each.judged, run, each.reasons[0])) for each in checkers]
    if findings.anomalies:
        return
    for checker, outcome in outcomes:
        if checker.certify is not None and outcome.verdict == PASS:
            findings.run(CERTIFICATE, checker.certify, run, CERTIFICATE_REFUSED)


# ---- Counts lost records that a run must not lose although it is expected to fail by a loss
# (`analysis.expectation`).

Place = tuple[str, int]


def lost_before_faults(history: History) -> int:
    """Records that all in-sync replicas acknowledged before the first fault started and that no final read returns in
    their partition. Without a fault: all acknowledged records. Incomplete final reads make the number too large; a
    value at another offset than acknowledged is not lost."""
    first = min((fault.at(INVOKED, INF) for fault in history.faults), default=INF)
    shown = shown_in_the_end(history)
    lost = 0
    for part in history.logs.parts("f", "type", "acks", "ret", "topic", "partition", "value"):
        durable = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["acks"], ACKS_ALL))
        in_time = pc.and_(pc.equal(part["type"], OK), pc.less(part["ret"], first))
        for place, appends in by_key(LOG, part.filter(pc.and_(durable, in_time))):
            lost += int(shown.get(place, ValueRuns()).missing(appends["value"].to_numpy()).sum())
    return lost


def shown_in_the_end(history: History, column: str = "values") -> dict[Place, ValueRuns]:
    """The values that final reads returned, or their offsets, by partition."""
    runs_of: dict[Place, ValueRuns] = {}
    for part in history.logs.parts("f", "type", "phase", "topic", "partition", column):
        for place, reads in by_key(LOG, part.filter(_is_final(part, READ))):
            runs = ValueRuns.of(pc.list_flatten(reads[column]).to_numpy())
            runs_of[place] = ValueRuns.union([runs_of.get(place, ValueRuns()), runs])
    return runs_of


class AboveUploads(NamedTuple):
    """Records that all in-sync replicas acknowledged above every remote segment, and how many of them no final read
    returns."""

    acknowledged: int
    lost: int


def first_above_uploads(places: Mapping[str, Path], history: History) -> Mapping[Place, int] | None:
    """For each partition with operations the offset after its last declared remote segment. `places`: the nodes' data
    directories, by node. None if a partition has no segment, or metadata cannot be read."""
    declared = read_metadata({node: path for node, path in places.items() if path.is_dir()})
    segments = {place: declared.of(*place) for place in history.logs.keys}
    if declared.doubts or not all(segments.values()):
        return None
    return {place: 1 + max(segment.end for segment in segments_of) for place, segments_of in segments.items()}


def lost_above_uploads(history: History, first: Mapping[Place, int]) -> AboveUploads | None:
    """`first`: the offset of each partition from which on records count. None if the final reads of a partition do not
    cover its log from there to its end, or a record that they lack may be below: its offset is unknown."""
    shown, read, ends = shown_in_the_end(history), shown_in_the_end(history, "offsets"), _ends(history)
    if not all(_is_covered(read.get(place, ValueRuns()), start, ends.get(place)) for place, start in first.items()):
        return None
    acknowledged = lost = 0
    for part in history.logs.parts("f", "type", "acks", "topic", "partition", "offset", "value"):
        durable = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["acks"], ACKS_ALL))
        for place, appends in by_key(LOG, part.filter(pc.and_(durable, pc.equal(part["type"], OK)))):
            offset = appends["offset"].to_numpy()
            missing = shown.get(place, ValueRuns()).missing(appends["value"].to_numpy())
            if np.any(missing & (offset < 0)):
                return None
            acknowledged += int((offset >= first[place]).sum())
            lost += int((missing & (offset >= first[place])).sum())
    return AboveUploads(acknowledged, lost)


def _is_covered(read: ValueRuns, start: int, end: int | None) -> bool:
    return end is not None and read.within(start, max(0, end - start)) == max(0, end - start)


def _ends(history: History) -> dict[Place, int]:
    """The end of each log by final queries that were sent after the last acknowledgement; without such a query a
    partition is missing."""
    last_ack: dict[Place, int] = {}
    for part in history.logs.parts("f", "type", "topic", "partition", "ret"):
        is_append = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["type"], OK))
        for place, appends in by_key(LOG, part.filter(is_append)):
            last_ack[place] = max(last_ack.get(place, -1), pc.max(appends["ret"]).as_py())
    ends: dict[Place, int] = {}
    for part in history.logs.parts("f", "type", "phase", "topic", "partition", "inv", "lo"):
        for place, queries in by_key(LOG, part.filter(_is_final(part, END))):
            late = queries.filter(pc.greater(queries["inv"], last_ack.get(place, -1)))["lo"]
            if len(late):
                ends[place] = max(ends.get(place, -1), pc.max(late).as_py())
    return {place: end for place, end in ends.items() if end >= 0}


def _is_final(part: pa.Table, f: int) -> pa.ChunkedArray:
    is_final = pc.equal(part["phase"].cast(pa.string()), PHASE_FINAL)
    return pc.and_(is_final, pc.and_(pc.equal(part["f"], f), pc.equal(part["type"], OK)))
