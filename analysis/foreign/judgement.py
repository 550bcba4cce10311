"""Judges a foreign history: the checkers of logs and registers, the certificate and its verification; those of
sequential models; and the promises of sets, queues, counters and banks, which have no certificate.

The code for logs and registers is that of a run. The inputs lack a plan, faults and replicas, so the result is about
the operations only. Values of logs and registers were renumbered when the history was read; `shown` puts the file's
texts into sentences and witnesses.

    result.json            the verdict, its scope, anomalies and doubts
    operations.parquet     the operations as they were judged, values renumbered; the reader of the history writes it
    values.parquet         the text of each renumbered value; the reader writes it, too
    certificate/           of a pass: the order that explains the operations
    anomaly-N.png          of a fail: the operations that contradict each other

The files are made in a draft directory beside the final one, which then takes its place.
"""

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.core.anomaly import Anomaly, anomaly_count
from analysis.core.model_search import WrongOrderError, require_order
from analysis.core.models import MODELS, Model, ModelOperation
from analysis.core.object_judgement import judge_object, model_of, words
from analysis.core.register_operations import RegisterOperation, by_key
from analysis.core.registers import RegisterReport, check_keys
from analysis.core.rows import DamagedError
from analysis.core.workload_promises import PROMISES, WorkloadPromises
from analysis.engines.log import LogPlan, check_ranges, report_of, write_certificate
from analysis.engines.register import RegisterPlan, check_and_order, write_register_certificate
from analysis.engines.task_map import task_map
from analysis.page.witness_text import operation_text
from analysis.plots.render import operations_of
from analysis.verdict import FAIL, PASS, UNKNOWN
from analysis.verifiers.log import CertificateError, verify
from analysis.verifiers.register import verify_registers
from history.foreign.edn import form_of
from history.foreign.history import ForeignHistory
from history.foreign.operation_files import OPERATIONS_FILE, TABLES
from history.journal.timeline import RunClock
from history.record.operations import Operations
from history.record.schemas import FAIL as FAILED
from history.record.shapes import REGISTER
from history.record.values import SESSION_SHIFT
from history.regular_files import read_bytes, require_regular, sha256_of
from history.strict_json import decode
from installation.counted import counted

SCOPE: Final = "these operations only; completeness, faults and replicas were not judged"
CERTIFICATE: Final = "certificate"
ORDER_FILE: Final = "order.parquet"
"""Of the certificate for a model: the ids of the operations of each object, in an order that the model allows."""
NOT_ANSWERED: Final = "the history has no answered operation"
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


def judge(history: ForeignHistory, *, upper_bound: str, budget: int, failing: Collection[str] = ()) -> ForeignJudgement:
    """Judges the history. A pass writes its certificate next to the tables that the certificate is about; otherwise the
    tables are removed. `budget`: the configurations that the search of one register may visit; `failing`: the names of
    anomalies that fail a history of `PROMISES`."""
    try:
        if history.model == REGISTER.name:
            return _judge_registers(history, budget)
        if history.model in MODELS or history.model in PROMISES:
            return _judge_objects(history, budget, failing)
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


def _judge_objects(history: ForeignHistory, budget: int, failing: Collection[str]) -> ForeignJudgement:
    """By a sequential model, whose orders are the certificate, or by the promises of a workload."""
    model, anomalies, orders, doubts = model_of(history.model), [], {}, list(history.doubts)
    objects, is_search = _objects(history, model), isinstance(model, Model)
    size = f"{counted(history.rows, 'operation')} on {counted(len(objects), 'object')} of the model {history.model}"
    for key, operations in objects.items():
        judgement = judge_object(model, history.initial, operations, budget=budget, failing=failing)
        name = _object(history.model, key)
        for case in judgement.contradictions:
            rows = tuple(map(_witness_row, case.operations))
            anomalies.append(Anomaly(case.anomaly, key, -1, f"{name}: {case.sentence}", rows, case.count))
        doubts += [f"{name}: {doubt}{' (--budget)' if is_search else ''}" for doubt in judgement.doubts]
        remarks = judgement.remarks if len(objects) == 1 else ()
        size += "".join(f"; {remark}" for remark in (*remarks, *judgement.allowed))
        orders[key] = judgement.order
    if anomalies or doubts or not history.is_answered:
        return _without_certificate(
            size, tuple(anomalies), tuple(doubts), is_broken=isinstance(model, WorkloadPromises)
        )
    if isinstance(model, WorkloadPromises):
        return ForeignJudgement(PASS, f"no promise is broken: {size}")
    directory = history.directory / CERTIFICATE
    directory.mkdir()
    ids = [(key, operation.id) for key, order in orders.items() for operation in order]
    columns = {"key": pa.array([key for key, _ in ids], pa.string()), "id": pa.array([id for _, id in ids], pa.int64())}
    pq.write_table(pa.table(columns), directory / ORDER_FILE)
    return _certified(size, lambda: verify_orders(history))


def verify_orders(history: ForeignHistory) -> str:
    """Compares the orders of a certificate with the operations, as both are on the disk. Raises CertificateError."""
    model = MODELS[history.model]
    ids: dict[str, list[int]] = {}
    for row in _rows(history.directory / CERTIFICATE / ORDER_FILE):
        ids.setdefault(row["key"], []).append(row["id"])
    objects = _objects(history, model)
    for key, operations in objects.items():
        by_id = {operation.id: operation for operation in operations}
        try:
            require_order(model, history.initial, operations, [by_id[number] for number in ids.pop(key, [])])
        except (KeyError, WrongOrderError) as error:
            raise CertificateError(f"the order of {_object(history.model, key)}: {error}") from error
    if ids:
        raise CertificateError(f"it has the object {min(ids)}, which the history does not have")
    count = counted(sum(map(len, objects.values())), "operation")
    return f"{count} on {counted(len(objects), 'object')} have an order that the model {history.model} allows"


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(require_regular(path)).read().to_pylist()
    return rows


def _objects(history: ForeignHistory, model: Model | WorkloadPromises) -> dict[str, list[ModelOperation]]:
    """The operations of each object that happened or may have happened, as `operations.parquet` has them."""
    objects: dict[str, list[ModelOperation]] = {}
    for row in _rows(history.directory / OPERATIONS_FILE):
        operations = objects.setdefault(row["key"], [])
        if row["type"] == FAILED:
            continue
        is_answered = row["answer"] is not None
        answer = form_of(row["answer"]) if is_answered else None
        values = model.values(row["f"], form_of(row["argument"]), answer, is_answered=is_answered)
        of_operation = row["id"], row["process"], row["f"]
        operations.append(ModelOperation(*of_operation, *values, row["inv"], row["ret"], row["line"]))
    return objects


def _object(model: str, key: str) -> str:
    return f"{model} {key}" if key else f"the {model}"


def _witness_row(operation: ModelOperation) -> dict[str, Any]:
    outcome = "ok" if operation.is_answered else "info"
    times = {"inv": operation.inv, "ret": operation.ret}
    client = f"process {operation.process}"
    return {
        "op": operation.f,
        "client": client,
        "type": outcome,
        "line": operation.line,
        "text": words(operation),
    } | times


def _with_texts(history: ForeignHistory, report: RegisterReport, budget: int) -> tuple[Anomaly, ...]:
    """The anomalies of a report, with the texts of their values: their keys are checked again, with named values."""
    if not history.names or not report.anomalies:
        return report.anomalies
    refuted = pa.array(sorted({anomaly.topic for anomaly in report.anomalies}), pa.string())
    parts = Operations(REGISTER, history.directory / TABLES).parts(*REGISTER.stored.names)
    rows = pa.concat_tables(part.filter(pc.is_in(part["key"], refuted)) for part in parts)
    keys = {
        key: [_named(operation, history.names) for operation in operations] for key, operations in by_key(rows).items()
    }
    return check_keys(keys, budget=budget).anomalies


def _without_certificate(
    size: str, anomalies: tuple[Anomaly, ...], doubts: tuple[str, ...], *, is_broken: bool = False
) -> ForeignJudgement:
    """`is_broken`: anomalies break a promise other than linearizability."""
    if anomalies:
        summary = "a promise is broken" if is_broken else "not linearizable"
        return ForeignJudgement(FAIL, f"{summary}: {anomaly_count(anomalies)}; {size}", anomalies, doubts)
    return ForeignJudgement(UNKNOWN, f"undecided: {size}", (), doubts or (NOT_ANSWERED,))


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


def _named(operation: RegisterOperation, names: Mapping[int, str]) -> RegisterOperation:
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


# ---- Writes what was found of a foreign history into a directory: all of it or nothing.

RESULT: Final = "result.json"
FORMAT: Final = 1
MOST_PLOTS: Final = 6


class PlaceError(Exception):
    """A directory cannot be replaced; the message names it and the remedy."""


@contextmanager
def replaced(place: Path) -> Iterator[Path]:
    """A draft directory that becomes `place` at the end, and is removed if the block raises.

    Raises PlaceError if `place` exists and is not the result of an earlier check.
    """
    if (place.exists() or place.is_symlink()) and not _is_result(place):
        raise PlaceError(f"{place} exists and is not the result of a check: name another directory with --out")
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    for abandoned in place.parent.glob(f".{glob.escape(place.name)}.[0-9]*"):
        if not abandoned.suffix[1:].isdecimal():
            continue
        with contextlib.suppress(OSError), _locked(abandoned):  # a check that runs holds the lock of its draft
            shutil.rmtree(abandoned)
    draft.mkdir()
    try:
        with _locked(draft):
            yield draft
        if place.is_dir():
            shutil.rmtree(place)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory. Raises `BlockingIOError` when another process holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_result(place: Path) -> bool:
    """Whether a check wrote this directory: other programs write a result.json too."""
    try:
        content = decode(read_bytes(place / RESULT).decode())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("scope") == SCOPE and "file_format" in content


def write(paths: Sequence[Path], form: str, history: ForeignHistory, judgement: ForeignJudgement) -> dict[str, Any]:
    """Writes the plots and the result, beside the operations, and returns the result. `form`: the name of the files'
    format."""
    plots = list(_plots(history, judgement))
    anomalies = [asdict(shown(anomaly, history.names)) for anomaly in judgement.anomalies]
    content: dict[str, Any] = {
        "format": FORMAT,
        "verdict": judgement.verdict,
        "sentence": judgement.sentence,
        "scope": SCOPE,
        "not_judged": list(history.not_judged),
        "files": {str(path): sha256_of(path) for path in paths},
        "file_format": form,
        "model": history.model,
        "certified": judgement.certified,
        "anomalies": anomalies,
        "doubts": list(judgement.doubts),
        "plots": plots,
    }
    text = json.dumps(content, indent=1) + "\n"
    (history.directory / RESULT).write_text(text, encoding="utf-8")
    stored: dict[str, Any] = decode(text)
    return stored


def _plots(history: ForeignHistory, judgement: ForeignJudgement) -> Iterator[str]:
    for index, anomaly in enumerate(judgement.anomalies[:MOST_PLOTS]):
        plot = operations_of(
            anomaly, RunClock(history.start), (), lambda row: in_texts(operation_text(row), history.names)
        )
        if plot is not None:
            (history.directory / f"anomaly-{index}.png").write_bytes(plot)
            yield f"anomaly-{index}.png"
