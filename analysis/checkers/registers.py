"""The operations on registers: reads, writes, compare-and-sets. `analysis/core/registers.py` states the method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, first_of
from analysis.checkers.partition_logs import NOT_READ, ORDER, PHANTOM
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import CERTIFICATE, FAIL, PASS, UNKNOWN
from history.record.register_names import key_name
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.anomaly import Anomaly
    from analysis.core.registers import RegisterReport

EXPLAINED: Final = Promise("LIN", "some order of its operations explains every answer of a register")

PHANTOM_READ: Final = "register-phantom"
UNEXPLAINED: Final = "non-linearizable-register"
LOST_WRITES: Final = "the record of a client that may have written is not whole"

ANOMALIES: Final = (
    AnomalyKind(PHANTOM_READ, PHANTOM, "A read returned a value that no client wrote to this key."),
    AnomalyKind(
        "stale-register-read", ORDER, "A read returned an older value after a newer one had been acknowledged or read."
    ),
    AnomalyKind(UNEXPLAINED, EXPLAINED, "No order of the operations on a key explains all of their answers."),
)

UNDECIDED: Final = Reason(
    "register-undecided", "The clients' observations of a key can be neither explained nor refuted."
)
NOTHING_READ: Final = Reason("nothing-read", "No read was answered, or a planned register has no operation.")


def check(run: CheckedRun) -> Outcome:
    """Check all keys, each one separately: linearizability is local."""
    from analysis.core.rows import DamagedError

    if (writers := _written_twice(run)) is not None:
        return Outcome(UNKNOWN, f"the operations cannot be checked: two of them write {writers}")
    try:
        _, report, _ = run.register_orders
    except DamagedError as error:
        return Outcome(UNKNOWN, f"the operations cannot be checked: {error}")
    size = f"{counted(report.stats['operations'], 'operation')} on {counted(len(report.keys), 'register')}"
    explained = [anomaly for anomaly in report.anomalies if _may_be_explained(run, anomaly)]
    proven = tuple(anomaly for anomaly in report.anomalies if anomaly not in explained)
    doubts = (
        *report.undecided,
        *(f"{anomaly.sentence}: {LOST_WRITES}" for anomaly in explained),
        *_doubts(run, report),
    )
    if proven:
        return Outcome(FAIL, f"not linearizable: {anomaly_count(proven)}; {size}", proven, doubts)
    if explained:
        return Outcome(UNKNOWN, f"{anomaly_count(explained)} that missing records may explain; {size}", (), doubts)
    if report.undecided:
        return Outcome(UNKNOWN, "; ".join(report.undecided), (), doubts)
    return Outcome(PASS, f"linearizable: {size}", doubts=doubts)


def _written_twice(run: CheckedRun) -> int | None:
    """A value that was written twice; values must be unique to identify the write. All values are read only to name
    one that was written twice."""
    if not run.history.written.repeated:
        return None
    import numpy as np

    from history.record.shapes import REGISTER
    from history.record.validation import written_values

    parts = run.history.registers.parts("f", *(column for _, column in REGISTER.written))
    values, counts = np.unique(
        np.concatenate([written_values(part, REGISTER.written) for part in parts]), return_counts=True
    )
    return int(values[counts > 1][0])


def _may_be_explained(run: CheckedRun, anomaly: Anomaly) -> bool:
    """Whether an unrecorded write would explain an anomaly: it may have written a value that was read, and it may have
    occurred between any two operations. It cannot explain that an older value replaced a newer one."""
    if anomaly.name == PHANTOM_READ:
        *refused, shown = anomaly.witness
        value = shown["value"] if shown.get("expected") is None else shown["expected"]
        return not refused and run.may_have_written(int(value))  # a witness has values as text
    return anomaly.name == UNEXPLAINED and run.may_lack_writes


def _doubts(run: CheckedRun, report: RegisterReport) -> list[str]:
    """Why a pass cannot be believed."""
    stats = report.stats
    doubts: list[str] = []
    if not stats["reads"]:
        doubts.append(NOTHING_READ.says("no read of a register was answered: nothing was checked"))
    planned = (key_name(number) for number in range(run.description.workload.keys))
    if untouched := [key for key in planned if key not in report.keys]:
        text = f"no client operated on these planned registers: {first_of(untouched, ', ')}"
        doubts.append(NOTHING_READ.says(text))
    doubts += NOT_READ.say(
        f"register {key} was not read after healing"
        for key, counts in sorted(report.keys.items())
        if not counts["final_reads"]
    )
    return doubts


def certify(run: CheckedRun) -> Outcome:
    """Write the certificate with the orders that explain the registers and have it confirmed by the verifier."""
    from analysis.engines.register import write_register_certificate
    from analysis.verifiers.log import CertificateError
    from analysis.verifiers.register import verify_registers

    plan, _, parts = run.register_orders
    path = write_register_certificate(run.directory / CERTIFICATE, run.directory, plan, parts)
    try:
        return Outcome(PASS, verify_registers(path.parent, run.directory, spread=run.spread(plan.weight)))
    except CertificateError as error:
        return Outcome(UNKNOWN, f"the verifier refused the certificate: {error}")


CHECKER: Final = Checker(
    "registers",
    "Do the clients' observations of each key form one linearizable register?",
    10,
    ANOMALIES,
    check,
    (UNDECIDED, NOTHING_READ, NOT_READ),
    judge="register",
    certify=certify,
    reads="|".join((PLAN, JOURNAL, OPERATIONS)),
)
