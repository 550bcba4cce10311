"""The operations on registers: reads, writes, compare-and-sets. `analysis/core/registers.py` has the method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.checkers.partition_logs import ORDER, PHANTOM
from analysis.checking import Checker, Outcome, Run
from analysis.core.anomaly import AnomalyKind, Promise
from analysis.verdict import FAIL, PASS, UNKNOWN

if TYPE_CHECKING:
    from analysis.core.registers import RegisterReport

EXPLAINED: Final = Promise("LIN", "some order explains every answer of a register")

ANOMALIES: Final = (
    AnomalyKind("register-phantom", PHANTOM, "A read shows a value that nobody wrote to this key."),
    AnomalyKind(
        "stale-register-read", ORDER, "A read shows an older value after a newer one had been acknowledged or read."
    ),
    AnomalyKind(
        "non-linearizable-register", EXPLAINED, "No order of the operations on a key explains all of their answers."
    ),
)


def check(run: Run) -> Outcome:
    """Judge all keys, each for itself: linearizability is local."""
    from analysis.registerjob import check_registers, register_files

    report = check_registers(register_files(run.tables), run.spark)
    doubts = (*report.undecided, *_doubts(run, report))
    size = f"{report.stats['operations']:,} operations on {len(report.keys)} registers"
    if not report.ok:
        detail = f"not linearizable: {len(report.anomalies)} anomalies; {size}"
        return Outcome(FAIL, detail, tuple(report.anomalies), doubts)
    if report.undecided:
        return Outcome(UNKNOWN, "; ".join(report.undecided), (), doubts)
    return Outcome(PASS, f"linearizable: {size}", doubts=doubts)


def _doubts(run: Run, report: RegisterReport) -> list[str]:
    """What speaks against believing a pass."""
    needs, stats = run.description.requirements, report.stats
    doubts = []
    if not stats["reads"]:
        doubts.append("no read of a register was answered: nothing was checked")
    if needs.final_reads:
        doubts += [
            f"register {key} was not read after healing"
            for key, counts in sorted(report.keys.items())
            if not counts["final_reads"]
        ]
    return doubts


def certify(run: Run) -> Outcome:
    """Write the order that explains each register and have it confirmed by the verifier."""
    from analysis.core import register_certificate
    from analysis.registerjob import check_registers, register_files
    from analysis.registerverifier import verify_registers
    from analysis.verifier import CertificateError

    report = check_registers(register_files(run.tables), run.spark)
    path = register_certificate.write(run.directory / "certificate", report.orders, run.history.registers)
    try:
        return Outcome(PASS, verify_registers(path.parent, run.history.registers))
    except CertificateError as error:
        return Outcome(UNKNOWN, f"the verifier refused the certificate: {error}")


CHECKER: Final = Checker(
    "registers",
    "Is what clients saw of each key one linearizable register?",
    10,
    ANOMALIES,
    check,
    judge="register",
    certify=certify,
)
