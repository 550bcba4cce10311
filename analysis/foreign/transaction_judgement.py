"""Judges a foreign history of transactions by a consistency model, and proves the result.

A pass has a serial order if one explains the history, which the verifier replays from the files. Weaker models than
serializability also pass without one, if no anomaly that they prohibit exists.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.core.anomaly import Anomaly, anomaly_count
from analysis.core.consistency_models import (
    has_process_order,
    has_real_time_order,
    ruled_out,
)
from analysis.core.object_judgement import MOST_SHOWN
from analysis.core.transaction_check import TransactionReport, check_transactions
from analysis.core.transactions import OF_LINE, Finding, TransactionTable
from analysis.foreign.judgement import CERTIFICATE, ORDER_FILE, ForeignJudgement
from analysis.verdict import FAIL, PASS, UNKNOWN
from analysis.verifiers.log import CertificateError
from analysis.verifiers.transactions import verify_serial_order
from history.foreign.history import ForeignHistory
from history.foreign.transaction_rows import LIST_APPEND, WRITES, transaction_parts
from history.record.schemas import INFO, OK
from history.regular_files import require_regular
from installation.counted import counted

MOST_ELEMENTS: Final = 12
"""Elements of a list in a witness."""


def judge_transactions(
    history: ForeignHistory, *, consistency: str, key_order: str | None = None, title: str = OF_LINE
) -> ForeignJudgement:
    """Judges by a model of `PROHIBITED`. `key_order`: what is assumed of each register (`KEY_ORDERS`); `title`: as
    `TransactionTable.of` takes it."""
    table = TransactionTable.of(lambda *columns: transaction_parts(history.directory, *columns), title)
    is_list = history.model == LIST_APPEND
    report = check_transactions(table, consistency, history.names, is_list=is_list, key_order=key_order)
    subject = f"{counted(history.rows, 'transaction')} on {counted(len(table.keys), 'key')}"
    size = f"{subject}, {counted(report.unread, 'write')} that no answer shows"
    size += f"; assumed: {key_order} keys" if key_order else ""
    names = [finding.name for finding in report.prohibited + report.allowed]
    excluded = f"; ruled out: {', '.join(ruled_out(names))}" if names else ""
    has_time = has_process_order(consistency) or key_order is not None
    doubts = (*history.doubts, *(history.time_doubts if has_time else ()), *report.doubts)
    if report.prohibited:
        anomalies = tuple(_anomaly(history, finding) for finding in report.prohibited)
        sentence = f"not {consistency}: {anomaly_count(anomalies)}; {size}{excluded}"
        return ForeignJudgement(FAIL, sentence, anomalies, doubts)
    if doubts:
        return ForeignJudgement(UNKNOWN, f"undecided: {size}{excluded}", (), doubts)
    if report.order is None:
        allowed_text = f"; found and allowed: {', '.join(names)}{excluded}" if names else ""
        return ForeignJudgement(PASS, f"no anomaly that {consistency} prohibits: {size}{allowed_text}")
    return _certified(history, table, report, f"{consistency}: {size}", consistency)


def _certified(
    history: ForeignHistory, table: TransactionTable, report: TransactionReport, sentence: str, consistency: str
) -> ForeignJudgement:
    path = history.directory / CERTIFICATE / ORDER_FILE
    path.parent.mkdir()
    pq.write_table(pa.table({"id": pa.array(report.order, pa.int64())}), path)
    order = pq.ParquetFile(require_regular(path)).read()["id"].to_numpy()
    orders = {"process": has_process_order(consistency), "real_time": has_real_time_order(consistency)}
    try:
        certified = verify_serial_order(table, order, is_list=history.model == LIST_APPEND, **orders)
    except CertificateError as error:
        doubt = f"the verifier refused the certificate: {error}"
        return ForeignJudgement(UNKNOWN, f"undecided: {sentence}", (), (doubt,))
    return ForeignJudgement(PASS, sentence, certified=certified)


def _anomaly(history: ForeignHistory, finding: Finding) -> Anomaly:
    shown = finding.transactions[:MOST_SHOWN]
    rows = {row["id"]: row for row in _rows(history, shown)}
    witness = tuple(_witness_row(history, rows[number]) for number in shown)
    return Anomaly(finding.name, "", -1, finding.sentence, witness, finding.number)


def _rows(history: ForeignHistory, ids: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    columns = ("id", "line", "process", "type", "inv", "ret", "is_write", "key", "elements")
    for table in transaction_parts(history.directory, *columns):
        yield from table.filter(pc.is_in(table["id"], pa.array(ids, pa.int64()))).to_pylist()


def _witness_row(history: ForeignHistory, row: dict[str, Any]) -> dict[str, Any]:
    steps = zip(row["is_write"], row["key"], row["elements"], strict=True)
    text = f"[{' '.join(_step(history, *step) for step in steps)}]"
    outcome = {OK: "ok", INFO: "info"}.get(row["type"], "fail")
    client = f"process {row['process']}"
    times = {"inv": row["inv"], "ret": row["ret"]}
    return {"op": "txn", "client": client, "type": outcome, "line": row["line"], "text": text} | times


def _step(history: ForeignHistory, is_write: bool, key: int, elements: list[int] | None) -> str:
    """A step as EDN. The first elements of a long list are left out."""
    texts = [history.names.get(number, str(number)) for number in (elements or ())]
    key_text = history.names.get(key, str(key))
    if is_write:
        return f"[:{WRITES[history.model]} {key_text} {texts[0]}]"
    if elements is None or (not texts and history.model != LIST_APPEND):
        return f"[:r {key_text} nil]"
    if history.model != LIST_APPEND:
        return f"[:r {key_text} {texts[0]}]"
    hidden = ["..."] if len(texts) > MOST_ELEMENTS else []
    return f"[:r {key_text} [{' '.join(hidden + texts[-MOST_ELEMENTS:])}]]"
