"""From a run's directory to its verdict: tables, checks, statistics, certificate, plots.

Each stage writes into the run's directory and reads only what earlier ones left, so `analyze` can be repeated on any
stored run, also one that was interrupted. A checker that crashes makes the run unknown, never pass.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.core import certificate, register_certificate
from analysis.core.anomalies import Anomaly
from analysis.core.logcheck import LogReport
from analysis.core.registers import RegisterReport
from analysis.core.replicas import ReplicaReport
from analysis.gallery import draw
from analysis.logjob import check_in_process, check_on_spark, files_of
from analysis.registerjob import check_registers, register_files
from analysis.registerverifier import verify_registers
from analysis.replicajob import check_replicas, tasks_of
from analysis.rundir import REGISTER, RunDescription, describe, node_names
from analysis.spark import SparkHandle
from analysis.tables import write_tables
from analysis.verdict import FAIL, PASS, UNKNOWN, Check, Verdict, decide
from analysis.verifier import CertificateError, verify
from analysis.viewing import fault_rows, statistics, view_of
from history import History, read_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("spark", "in-process")


@dataclass
class Findings:
    """What the checkers have said so far."""

    checks: list[Check] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    log: LogReport | None = None
    replicas: ReplicaReport | None = None
    registers: RegisterReport | None = None

    def run(self, name: str, checker: Callable[[], tuple[str, str]]) -> None:
        """Run one checker: its verdict and detail become a check; an exception makes it unknown."""
        began = time.monotonic()
        try:
            verdict, detail = checker()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            verdict = UNKNOWN
            detail = (
                f"the checker crashed: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            )
        self.checks.append(Check(name, verdict, detail, round(time.monotonic() - began, 3)))


def analyze(
    run_dir: Path, *, session: SparkHandle | None = None, engine: str = "spark", pictures: bool = True
) -> Verdict:
    """Judge a run and write `tables/`, `certificate/`, `plots/` and `verdict.json` into its directory.

    `engine="in-process"` needs no session and gives the identical verdict; without `pictures` nothing is drawn.
    Raises `RunDirectoryError` when `run_dir` is no run, `HistoryError` when its record is damaged, `ValueError` for an
    unknown engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: one of {', '.join(ENGINES)}")
    description = describe(run_dir)
    history = read_run(run_dir)
    if engine == "spark" and session is None:
        session = SparkHandle.start_in_background(run_dir / "spark")
        try:
            return _judge(run_dir, description, history, session, pictures)
        finally:
            session.stop()
            shutil.rmtree(run_dir / "spark", ignore_errors=True)
    return _judge(run_dir, description, history, session if engine == "spark" else None, pictures)


def _judge(
    run_dir: Path, description: RunDescription, history: History, handle: SparkHandle | None, pictures: bool
) -> Verdict:
    write_tables(history, run_dir)
    spark = None if handle is None else handle.session()
    findings = Findings()
    if description.workload == REGISTER:
        findings.run("registers", lambda: _check_registers(run_dir, findings, spark))
    else:
        findings.run("partition logs", lambda: _check_log(run_dir, description, findings, spark))
    if description.requirements.replicas:
        findings.run("replicas", lambda: _check_replicas(run_dir, history, findings, spark))
    view = view_of(history, run_dir)
    faults = fault_rows(history)
    never_seen = _never_seen(description, faults)
    findings.doubts += _doubts(run_dir, description, history, findings, faults, never_seen)
    if not findings.anomalies and findings.log is not None and findings.log.ok:
        findings.run("certificate", lambda: _certify(run_dir, description, history))
    registers = findings.registers
    if registers is not None and registers.ok and not registers.undecided and not findings.anomalies:
        findings.run("certificate", lambda: _certify_registers(run_dir, registers, history))
    verdict, reasons = decide(findings.checks, findings.anomalies, findings.doubts)
    if verdict != PASS:
        shutil.rmtree(run_dir / "certificate", ignore_errors=True)
    judged = Verdict(
        run=description.run,
        campaign=description.campaign,
        cell=description.cell,
        seed=description.seed,
        verdict=verdict,
        expected=description.expected,
        met=description.expected.met_by(verdict, findings.anomalies),
        reasons=reasons,
        anomalies=tuple(findings.anomalies),
        checks=tuple(findings.checks),
        faults=tuple(faults),
        never_seen=tuple(never_seen),
        stats=statistics(history, view),
        upper_bound=description.requirements.upper_bound,
        world=description.world,
        limits=description.limits,
        replay=description.replay,
        mutants=description.mutants,
        versions=description.versions,
    )
    if pictures:
        draw(run_dir, view, judged)
    judged.write(run_dir / "verdict.json")
    return judged


def _check_log(
    run_dir: Path, description: RunDescription, findings: Findings, spark: SparkSession | None
) -> tuple[str, str]:
    files, bound = files_of(run_dir / "tables"), description.requirements.upper_bound
    if spark is None:
        report = check_in_process(files, upper_bound=bound)
    else:
        report = check_on_spark(spark, files, upper_bound=bound)
    findings.log = report
    findings.anomalies += report.anomalies
    findings.doubts += report.undecided
    records = sum(each.length for each in report.partitions.values())
    size = f"{records:,} records in {len(report.partitions)} partitions"
    if report.ok:
        return PASS, f"linearizable: {size}; upper bounds {bound}"
    return FAIL, f"not linearizable: {len(report.anomalies)} anomalies; {size}"


def _check_registers(run_dir: Path, findings: Findings, spark: SparkSession | None) -> tuple[str, str]:
    report = check_registers(register_files(run_dir / "tables"), spark)
    findings.registers = report
    findings.anomalies += report.anomalies
    size = f"{report.stats['operations']:,} operations on {len(report.keys)} registers"
    if not report.ok:
        return FAIL, f"not linearizable: {len(report.anomalies)} anomalies; {size}"
    if report.undecided:
        return UNKNOWN, "; ".join(report.undecided)
    return PASS, f"linearizable: {size}"


def _check_replicas(run_dir: Path, history: History, findings: Findings, spark: SparkSession | None) -> tuple[str, str]:
    nodes = node_names(run_dir)
    if not nodes:
        return UNKNOWN, "no replica's files were collected"
    reached = set(history.phases["name"].to_pylist())
    stopped = {line["node"] for line in history.journal if line.get("what") == "stopped"}
    tasks = tasks_of(run_dir, files_of(run_dir / "tables"), quiet="final" in reached, stopped=stopped >= set(nodes))
    report = check_replicas(tasks, spark)
    findings.replicas = report
    findings.anomalies += report.anomalies
    findings.doubts += report.undecided
    if report.anomalies:
        return FAIL, f"{len(report.anomalies)} anomalies in the files of {', '.join(nodes)}"
    return PASS, f"the files of {', '.join(nodes)} agree: {report.records:,} records compared"


def _certify(run_dir: Path, description: RunDescription, history: History) -> tuple[str, str]:
    """Write the linearization of a history without anomaly and have it confirmed by the verifier."""
    report = check_in_process(
        files_of(run_dir / "tables"), upper_bound=description.requirements.upper_bound, certify=True
    )
    if report.certificate is None:
        return UNKNOWN, "no linearization could be written: " + ("; ".join(report.undecided) or "the history is empty")
    path = certificate.write(
        run_dir / "certificate", report.certificate, upper_bound=report.upper_bound, operations=history.operations
    )
    try:
        return PASS, verify(path.parent, history.operations)
    except CertificateError as error:
        return UNKNOWN, f"the verifier refused the certificate: {error}"


def _certify_registers(run_dir: Path, report: RegisterReport, history: History) -> tuple[str, str]:
    """Write the order that explains each register and have it confirmed by the verifier."""
    path = register_certificate.write(run_dir / "certificate", report.orders, history.registers)
    try:
        return PASS, verify_registers(path.parent, history.registers)
    except CertificateError as error:
        return UNKNOWN, f"the verifier refused the certificate: {error}"


def _never_seen(description: RunDescription, faults: Sequence[dict[str, object]]) -> list[str]:
    confirmed = {fault["kind"] for fault in faults if fault["status"] == "confirmed"}
    return [f"fault {kind}" for kind in description.requirements.required_faults if kind not in confirmed]


def _doubts(
    run_dir: Path,
    description: RunDescription,
    history: History,
    findings: Findings,
    faults: Sequence[dict[str, object]],
    never_seen: Sequence[str],
) -> list[str]:
    """Everything that speaks against believing a pass, each as a sentence."""
    needs = description.requirements
    doubts = [f"{item} was required and never confirmed" for item in never_seen]
    doubts += [
        f"fault {fault['id']} ({fault['kind']}) is {fault['status']}: no proof that it took effect"
        for fault in faults
        if fault["status"] != "confirmed"
    ]
    doubts += [line["text"] for line in history.journal if line.get("unfinished")]
    phase = history.phases["name"][-1].as_py() if history.phases.num_rows else None
    if phase != "done":
        doubts.append(f"the run ended in phase {phase}, not by its plan" if phase else "the run never began")
    doubts += [f"{Path(name).name} was torn: its tail is lost" for name in history.torn if phase == "done"]
    if findings.log is not None:
        acknowledged = findings.log.stats.get("acknowledged", 0)
        if acknowledged < needs.min_ok:
            doubts.append(f"only {acknowledged} acknowledged appends, {needs.min_ok} are needed")
        if needs.final_reads:
            doubts += [
                f"{topic}-{partition} was not read to its end after healing"
                for (topic, partition), each in sorted(findings.log.partitions.items())
                if each.final_end is None
            ]
    if findings.registers is not None:
        doubts += _register_doubts(description, findings.registers)
    missing = description.nodes - len(node_names(run_dir))
    if needs.replicas and missing > 0:
        doubts.append(f"the files of {missing} of {description.nodes} nodes are missing")
    return doubts


def _register_doubts(description: RunDescription, report: RegisterReport) -> list[str]:
    needs, stats = description.requirements, report.stats
    doubts = []
    if stats["acknowledged"] < needs.min_ok:
        doubts.append(f"only {stats['acknowledged']} acknowledged writes, {needs.min_ok} are needed")
    if not stats["reads"]:
        doubts.append("no read of a register was answered: nothing was checked")
    if needs.final_reads:
        doubts += [
            f"register {key} was not read after healing"
            for key, counts in sorted(report.keys.items())
            if not counts["final_reads"]
        ]
    return doubts
