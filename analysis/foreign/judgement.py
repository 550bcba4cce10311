"""Judges a foreign history: the checkers of logs and registers, the certificate and its verification.

The code is the same as for a run. The inputs lack a plan, faults and replicas, so the result is about the operations
only. Values were renumbered when the history was read; `shown` puts the file's texts into sentences and witnesses.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.core.anomaly import Anomaly, anomaly_count
from analysis.core.register_operations import Operation, by_key
from analysis.core.registers import RegisterReport, check_keys
from analysis.core.rows import DamagedError
from analysis.engines.log import LogPlan, check_ranges, report_of
from analysis.engines.log_certificate import write_certificate
from analysis.engines.register import RegisterPlan, check_and_order
from analysis.engines.register_certificate import write_register_certificate
from analysis.engines.task_map import task_map
from analysis.verdict import FAIL, PASS, UNKNOWN
from analysis.verifiers.log import CertificateError, verify
from analysis.verifiers.register import verify_registers
from history.foreign.history import REGISTER, ForeignHistory
from history.foreign.operation_files import TABLES
from history.register_tables import STORED, read_register_index, read_register_parts
from history.values import SESSION_SHIFT
from installation.counted import counted

SCOPE: Final = "these operations only; completeness, faults and replicas were not judged"
CERTIFICATE: Final = "certificate"
_RECORD: Final = re.compile(r"record (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class ForeignJudgement:
    """`verdict`: of the operations; `sentence`: the result with its size; `doubts`: why it is unknown.

    `certified`: what the verifier confirmed, empty without a certificate. `anomalies` have the numbers of values
    (`shown`)."""

    verdict: str
    sentence: str
    anomalies: tuple[Anomaly, ...] = ()
    doubts: tuple[str, ...] = ()
    certified: str = ""


def judge(history: ForeignHistory, *, upper_bound: str, budget: int) -> ForeignJudgement:
    """Judges the history. A pass writes its certificate next to the tables that the certificate is about; otherwise the
    tables are removed. `budget`: the configurations that the search of one register may visit."""
    try:
        if history.model == REGISTER:
            return _judge_registers(history, budget)
        return _judge_log(history, upper_bound)
    except DamagedError as error:
        return ForeignJudgement(UNKNOWN, f"the operations cannot be checked: {error}")


def _judge_log(history: ForeignHistory, upper_bound: str) -> ForeignJudgement:
    root, directory = history.directory, history.directory / CERTIFICATE
    plan = LogPlan.of(root / TABLES)
    spread = task_map(None, plan.rows)
    checked = check_ranges(plan, spread, upper_bound)
    report = report_of(checked, plan, spread, upper_bound=upper_bound)
    subject = counted(len(report.partitions), "partition")
    size = f"{counted(history.rows, 'operation')} on {subject}; upper bounds {upper_bound}"
    doubts = (*(in_texts(sentence, history.names) for sentence in report.undecided), *history.doubts)
    if report.anomalies or doubts or not history.is_answered:
        shutil.rmtree(root / TABLES)
        return _without_certificate(size, report.anomalies, doubts)
    write_certificate(directory, root, plan, checked, spread, upper_bound=upper_bound)
    return _certified(size, lambda: verify(directory, root, upper_bound=upper_bound, spread=spread))


def _judge_registers(history: ForeignHistory, budget: int) -> ForeignJudgement:
    root, directory = history.directory, history.directory / CERTIFICATE
    plan = RegisterPlan.of(root / TABLES, budget=budget)
    spread = task_map(None, plan.weight)
    report, parts = check_and_order(plan, spread, directory)
    size = f"{counted(plan.rows, 'operation')} on {counted(len(report.keys), 'register')}"
    doubts = (*report.undecided, *history.doubts)
    if report.anomalies or doubts or not history.is_answered:
        anomalies = _with_texts(history, report, budget)
        for folder in (root / TABLES, directory):
            shutil.rmtree(folder)
        return _without_certificate(size, anomalies, doubts)
    write_register_certificate(directory, root, plan, parts)
    return _certified(size, lambda: verify_registers(directory, root, spread=spread))


def _with_texts(history: ForeignHistory, report: RegisterReport, budget: int) -> tuple[Anomaly, ...]:
    """The anomalies of a report, with the texts of their values: their keys are checked again, with named values."""
    if not history.names or not report.anomalies:
        return report.anomalies
    refuted = pa.array(sorted({anomaly.topic for anomaly in report.anomalies}), pa.string())
    tables = history.directory / TABLES
    parts = read_register_parts(tables, read_register_index(tables), STORED.names)
    rows = pa.concat_tables(part.filter(pc.is_in(part["key"], refuted)) for part in parts)
    keys = {
        key: [_named(operation, history.names) for operation in operations] for key, operations in by_key(rows).items()
    }
    return check_keys(keys, budget=budget).anomalies


def _without_certificate(size: str, anomalies: tuple[Anomaly, ...], doubts: tuple[str, ...]) -> ForeignJudgement:
    if anomalies:
        return ForeignJudgement(FAIL, f"not linearizable: {anomaly_count(anomalies)}; {size}", anomalies, doubts)
    return ForeignJudgement(UNKNOWN, f"undecided: {size}", (), doubts or ("the history has no answered operation",))


def _certified(size: str, verifies: Callable[[], str]) -> ForeignJudgement:
    try:
        return ForeignJudgement(PASS, f"linearizable: {size}", certified=verifies())
    except CertificateError as error:
        return ForeignJudgement(UNKNOWN, f"undecided: {size}", (), (f"the verifier refused the certificate: {error}",))


class _NamedValue(int):
    """The number of a value, which prints as the text that it has in the file."""

    text: str

    def __str__(self) -> str:
        return self.text


def _named(operation: Operation, names: Mapping[int, str]) -> Operation:
    def named(number: int | None) -> int | None:
        if number is None:
            return None
        value = _NamedValue(number)
        value.text = names[number]
        return value

    return operation._replace(
        value=named(operation.value), expected=named(operation.expected), new=named(operation.new)
    )


def in_texts(sentence: str, names: Mapping[int, str]) -> str:
    """A sentence about a log, with the texts of its values."""

    def text(match: re.Match[str]) -> str:
        session, producer, sequence = map(int, match.groups())
        number = session << SESSION_SHIFT | producer << 32 | sequence
        return f"value {names[number]}" if number in names else match[0]

    return _RECORD.sub(text, sentence)


def shown(anomaly: Anomaly, names: Mapping[int, str]) -> Anomaly:
    """An anomaly with the texts of its values, for people and documents."""
    witness = tuple({name: _cell(name, value, names) for name, value in row.items()} for row in anomaly.witness)
    return replace(anomaly, sentence=in_texts(anomaly.sentence, names), witness=witness)


def _cell(name: str, cell: Any, names: Mapping[int, str]) -> Any:
    if name == "value" and isinstance(cell, int):
        return names.get(cell, cell)
    if name == "records":
        return [(at, names.get(value, value)) for at, value in cell]
    return cell
