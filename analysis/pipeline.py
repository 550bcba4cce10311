"""From a run's directory to its verdict: tables, checks, statistics, certificate, plots.

Each stage writes into the run's directory and reads only what earlier stages wrote. So `analyze` can be repeated on any
stored run, interrupted runs included. A checker that crashes makes the run unknown, never pass.
"""

import contextlib
import json
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.analysis_revision import revision
from analysis.checker import CheckedRun, Outcome
from analysis.checker_registry import CHECKERS
from analysis.checkers.bootstrap import figures
from analysis.checkers.faults import never_confirmed
from analysis.core.anomaly import NOT_SHOWN, Anomaly
from analysis.doubt import CERTIFICATE_REFUSED, CHECKER_CRASHED, UNJUDGED, Reason, code_of
from analysis.engines.meter import Meter
from analysis.engines.spark import SparkHandle
from analysis.engines.task_map import task_map
from analysis.evidence.forbidden_losses import first_above_uploads, lost_above_uploads, lost_before_faults
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
from analysis.plots.data import fault_rows, view_of
from analysis.plots.drawing_process import DrawingProcess
from analysis.plots.view import PlotData
from analysis.run_statistics import statistics
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
from history.journal.timeline import INVOKED, FaultSpan
from history.reader import History, estimated_operations, read_run

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
