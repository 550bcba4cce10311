"""A pass has a proof that an independent verifier confirms; no other verdict has one."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.engines.log import LINEARIZATION, LogPlan, check_ranges, write_certificate
from analysis.engines.task_map import in_sequence
from analysis.verifiers.log import CertificateError, verify
from history.record.operation_digest import digest_of_tables
from history.record.schemas import INF, READ
from history.record.shapes import LOG
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import check, undecided_partitions
from tests.analysis.log_histories import Op, end, info, ok, random_history, read, stored, table, v

HISTORY: list[Op] = [
    ok(1, 10, 20, 0),
    ok(2, 10, 25, 1),
    info(3, 30),
    info(4, 30),
    read(0, [1, 2, 3], 35, 45),
    ok(5, 50, 60, 4),  # so one of the appends that timed out is at offset 3
    end(5, 70, 80),
    read(3, [], 82, 84),
]


def certified(operations: pa.Table, run: Path, upper_bound: str = "strict", *, span: int = 2) -> pa.Table:
    """Stores the operations and the certificate of the run; the entries of all its parts."""
    shutil.rmtree(run / "certificate", ignore_errors=True)
    plan = LogPlan.of(stored(run, operations, 5), span=span)
    checked = check_ranges(plan, in_sequence, upper_bound)
    write_certificate(run / "certificate", run, plan, checked, in_sequence, upper_bound=upper_bound)
    parts = sorted((run / "certificate").glob("*.parquet"))
    return pa.concat_tables([LINEARIZATION.empty_table(), *map(pq.read_table, parts)])


def verified(run: Path, upper_bound: str = "strict") -> str:
    return verify(run / "certificate", run, upper_bound=upper_bound)


@pytest.mark.parametrize("span", [1, 3, 1 << 20])
def test_a_certificate_is_confirmed(tmp_path: Path, span: int) -> None:
    rows = certified(table(HISTORY, [], HISTORY), tmp_path, span=span)
    assert rows["offset"].to_pylist() == [0, 1, 2, 3, 4] * 2
    assert rows["at"].to_pylist()[:5] == [10, 10, 30, 30, 50]
    assert verified(tmp_path) == "16 operations are linearizable (strict): 10 records in order"
    content = json.loads((tmp_path / "certificate" / "certificate.json").read_text())
    assert content["lengths"] == {"log-0": 5, "log-2": 5}


@pytest.mark.parametrize("history", [[read(0, [], 1, 2)], [info(1, 10)]], ids=["an empty read", "an open append"])
def test_the_certificate_of_a_partition_without_shown_records_is_confirmed(tmp_path: Path, history: list[Op]) -> None:
    certified(table(history), tmp_path, "session")
    assert verified(tmp_path, "session") == "1 operation is linearizable (session): 0 records in order"


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("resends", [0.0, 0.4])
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_every_history_that_passes_has_a_certificate_that_verifies(
    tmp_path: Path, upper_bound: str, resends: float
) -> None:
    rng = random.Random(f"certificates {upper_bound}")
    histories = [random_history(rng, resends=resends) for _ in range(24 if resends else 12)]
    report = check(table(*histories), upper_bound=upper_bound)
    bad = {anomaly.partition for anomaly in report.anomalies}
    bad |= undecided_partitions(report)
    operations = table(*(history for i, history in enumerate(histories) if i not in bad))
    expected = certified(operations, tmp_path, upper_bound, span=1 << 20)
    assert certified(operations, tmp_path, upper_bound, span=2).equals(expected)
    verified(tmp_path, upper_bound)


def swap(column: str, i: int, j: int) -> Callable[[pa.Table], pa.Table]:
    def tamper(rows: pa.Table) -> pa.Table:
        values = rows[column].to_numpy().copy()
        values[[i, j]] = values[[j, i]]
        return rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), pa.array(values))

    return tamper


def put(column: str, i: int, value: int) -> Callable[[pa.Table], pa.Table]:
    def tamper(rows: pa.Table) -> pa.Table:
        values = rows[column].to_numpy().copy()
        values[i] = value
        return rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), pa.array(values))

    return tamper


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (swap("value", 0, 1), "an append is not where it was acknowledged"),
        (swap("value", 2, 3), "a read shows another record"),
        (put("value", 3, 99), "not appended"),
        (put("value", 3, ok(1, 0, 0, 0).value), "a value twice"),
        (put("offset", 4, 5), "offsets are not 0, 1, 2"),
        (put("at", 1, 9), "moments go back"),
        (put("at", 0, 9), "before its invocation"),
        (put("at", 4, 61), "after its return"),
        (lambda rows: rows.slice(0, 4), "an acknowledged append is missing"),
        (lambda rows: rows.set_column(2, "at", pa.array(np.array([10, 15, 50, 55, 58]))), "a length"),
    ],
)
def test_a_tampered_certificate_is_refused(tmp_path: Path, tamper: Callable[[pa.Table], pa.Table], why: str) -> None:
    rows = certified(table(HISTORY), tmp_path, span=1 << 20)
    data = tmp_path / "certificate" / "part-00000.parquet"
    pq.write_table(tamper(rows), data)
    with pytest.raises(CertificateError, match="not the file it was made for"):
        verified(tmp_path)
    (part,) = json.loads((tmp_path / "certificate" / "certificate.json").read_text())["parts"]
    changed = {"sha256": hashlib.sha256(data.read_bytes()).hexdigest(), "length": pq.read_table(data).num_rows}
    claim(tmp_path, parts=[part | changed])
    with pytest.raises(CertificateError, match=why):
        verified(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        [*HISTORY[:-1], end(4, 90, 95)],  # the same number of operations; the certificate does not explain one of them
        [*HISTORY[:4], read(0, [1, 2, 4], 35, 45), *HISTORY[5:]],
        [ok(9, 1, 2, 0), *HISTORY[1:]],
        HISTORY[1:],
    ],
)
def test_a_certificate_does_not_prove_another_history(tmp_path: Path, other: list[Op]) -> None:
    certified(table(HISTORY), tmp_path)
    stored(tmp_path, table(other), 5)
    with pytest.raises(CertificateError, match="other tables"):
        verified(tmp_path)
    claim(tmp_path, tables=digest_of_tables(LOG, tmp_path / "tables"), operations=len(other))
    with pytest.raises(CertificateError):
        verified(tmp_path)


@pytest.mark.parametrize(
    "beyond", [ok(6, 70, 80, INF), ok(6, 70, 80, INF + 3), read(INF, [6], 70, 80), end(INF + 2, 70, 80)]
)
def test_an_operation_beyond_every_part_is_unexplained(tmp_path: Path, beyond: Op) -> None:
    """Also if it is alone in its row group."""
    history = [ok(number, 10 * number, 10 * number + 5, number - 1) for number in range(1, 6)]
    certified(table(history), tmp_path)
    stored(tmp_path, table([*history, beyond]), 5)
    claim(tmp_path, tables=digest_of_tables(LOG, tmp_path / "tables"), operations=6)
    with pytest.raises(CertificateError):
        verified(tmp_path)


def claim(directory: Path, **changes: object) -> None:
    """The certificate says something else from now on."""
    path = directory / "certificate" / "certificate.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": 2}, "its format is unknown"),
        ({"upper_bound": "exact"}, "has no meaning"),
        ({"upper_bound": "session"}, "it proves session bounds only, not strict ones"),
        ({"operations": 7}, "another number of operations"),
        ({"streams": "0" * 64}, "another history"),
        ({"tables": "0" * 64}, "other tables"),
        ({"lengths": {"log-0": 5}}, "the partitions and lengths"),
        ({"lengths": {"log-0": 5, "log-1": 0, "log-2": 5, "log-3": 1}}, "the partitions and lengths"),
        ({"lengths": {"log-0": 5, "log-1": 1, "log-2": 5}}, "the partitions and lengths"),
        ({"seed": 1}, "its fields are not those of a certificate"),
    ],
)
def test_every_field_of_a_certificate_counts(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    certified(table(HISTORY, [end(0, 1, 2)], HISTORY), tmp_path)
    verified(tmp_path)
    claim(tmp_path, **changes)
    with pytest.raises(CertificateError, match=why):
        verified(tmp_path)


def test_a_certificate_may_prove_more_than_is_required(tmp_path: Path) -> None:
    operations = table(HISTORY)
    certified(operations, tmp_path, "strict")
    assert "(strict)" in verified(tmp_path, "session")
    certified(operations, tmp_path, "lower-bound-only")
    with pytest.raises(CertificateError, match="lower-bound-only bounds only, not session ones"):
        verified(tmp_path, "session")


@pytest.mark.parametrize("span", [1, 1 << 20])
def test_a_value_in_two_parts_is_refused(tmp_path: Path, span: int) -> None:
    """Even if no operation contradicts it."""
    history = [info(1, 10), info(2, 10), info(3, 10), ok(9, 20, 30, 3)]
    rows = certified(table(history), tmp_path, span=span)
    assert rows.num_rows == 4
    parts = json.loads((tmp_path / "certificate" / "certificate.json").read_text())["parts"]
    for part in parts:
        data = tmp_path / "certificate" / part["file"]
        entries = pq.read_table(data)
        values = [v(1) if value == v(2) else value for value in entries["value"].to_pylist()]
        pq.write_table(entries.set_column(1, "value", pa.array(values, pa.int64())), data)
        part["sha256"] = hashlib.sha256(data.read_bytes()).hexdigest()
    claim(tmp_path, parts=parts)
    with pytest.raises(CertificateError, match="a value twice"):
        verified(tmp_path)


def test_records_shown_to_a_session_raise_its_bound(tmp_path: Path) -> None:
    """The certificate states the evidence of the checker. The verifier must compare the session with its own
    observations."""
    shown = Op(READ, 30, 40, values=(v(1), v(2)), offsets=(0, 1), offset=0, process=5)
    history = [ok(1, 10, 20, 0), ok(2, 10, 25, 1), shown]
    for session, holds in ((1, False), (2, True)):
        operations = table([*history, Op(READ, 50, 60, offset=1, hi=1, process=5, session=session)])
        certified(table(history), tmp_path, "session")
        stored(tmp_path, operations, 1)
        claim(tmp_path, tables=digest_of_tables(LOG, tmp_path / "tables"), operations=4)
        assert check(operations, upper_bound="session").ok == holds
        if holds:
            verified(tmp_path, "session")
        else:
            with pytest.raises(CertificateError, match="shorter log than before"):
                verified(tmp_path, "session")


def test_a_table_that_cannot_be_read_makes_the_certificate_invalid(tmp_path: Path) -> None:
    certified(table(HISTORY), tmp_path)
    (index,) = (tmp_path / "tables").glob("index.parquet")
    index.unlink()
    index.mkdir()
    with pytest.raises(CertificateError, match="cannot be read"):
        verified(tmp_path)


def test_a_lost_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="cannot be read"):
        verified(tmp_path)
