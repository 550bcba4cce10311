"""A changed certificate of a real run is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.verifiers.log import CertificateError, verify
from history.record.schemas import INF
from tests.mutations.bench import Bench

Change = Callable[[pa.Table], pa.Table]
MIDDLE = 7


def setting(name: str, value: Callable[[int], int], index: int = MIDDLE) -> Change:
    """A change of one number of the linearization."""

    def change(table: pa.Table) -> pa.Table:
        column = table[name].to_numpy().copy()
        column[index] = value(int(column[index]))
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(column, field.type))

    return change


def taken(order: Callable[[int], list[int]]) -> Change:
    return lambda table: table.take(order(table.num_rows))


def exchanged(rows: int) -> list[int]:
    return [0, 2, 1, *range(3, rows)]


ENTRIES: dict[str, Change] = {
    "another value": setting("value", lambda value: value + 1),
    "an unsent value": setting("value", lambda _: 9 << 48),
    "another offset": setting("offset", lambda offset: offset + 1),
    "a negative offset": setting("offset", lambda _: -1, 0),
    "a moment long before": setting("at", lambda at: at - 10**12, 0),
    "a moment long after": setting("at", lambda at: at + 10**12, -1),
    "a moment at no time": setting("at", lambda _: INF, -1),
    "the first entry missing": taken(lambda rows: list(range(1, rows))),
    "an entry missing": taken(lambda rows: [row for row in range(rows) if row != MIDDLE]),
    "the last entry missing": taken(lambda rows: list(range(rows - 1))),
    "no entry": lambda table: table.slice(0, 0),
    "an entry twice": taken(lambda rows: [*range(MIDDLE), MIDDLE, *range(MIDDLE, rows)]),
    "two entries exchanged": taken(exchanged),
    "a column missing": lambda table: table.drop_columns(["at"]),
}

CLAIMS: dict[str, dict[str, Any]] = {
    "another format": {"format": 99},
    "weaker bounds": {"upper_bound": "lower-bound-only"},
    "bounds without a meaning": {"upper_bound": "firm"},
    "another number of operations": {"operations": 7},
    "another history": {"streams": "0" * 64},
    "other tables": {"tables": "0" * 64},
    "other lengths": {"lengths": {"log-0": 7, "log-1": 7}},
    "a partition fewer": {"lengths": {"log-0": 7}},
    "no parts": {"parts": []},
    "more than is verified": {"confirmed_by": "everybody"},
}


PARTS: dict[str, dict[str, Any]] = {
    "another topic": {"topic": "other"},
    "another partition": {"partition": 1},
    "a partition that there is not": {"partition": 9},
    "another start": {"start": 1},
    "another length": {"length": 3},
    "another file": {"file": "part-00001.parquet"},
    "a file elsewhere": {"file": "../tables/index.parquet"},
    "another digest": {"sha256": "0" * 64},
    "a field more": {"rows": 7},
}


@pytest.fixture
def run(bench: Bench, tmp_path: Path) -> Path:
    base = bench.bases["log"]
    for name in ("certificate", "tables", "history"):
        shutil.copytree(base / name, tmp_path / "run" / name)
    return tmp_path / "run"


def claim(run: Path, **fields: Any) -> None:
    path = run / "certificate" / "certificate.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def claim_of_part(run: Path, **fields: Any) -> None:
    first, *rest = json.loads((run / "certificate" / "certificate.json").read_text())["parts"]
    claim(run, parts=[first | fields, *rest])


def test_the_real_one_is_confirmed(run: Path) -> None:
    assert "are linearizable (strict)" in verify(run / "certificate", run)


@pytest.mark.parametrize("name", ENTRIES)
def test_other_entries_are_refused(run: Path, name: str) -> None:
    """Though the digest is that of the changed file."""
    path = run / "certificate" / "part-00000.parquet"
    pq.write_table(ENTRIES[name](pq.read_table(path)), path)
    claim_of_part(run, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(CertificateError):
        verify(run / "certificate", run)


@pytest.mark.parametrize("name", PARTS)
def test_another_claim_of_a_part_is_refused(run: Path, name: str) -> None:
    claim_of_part(run, **PARTS[name])
    with pytest.raises(CertificateError):
        verify(run / "certificate", run)


@pytest.mark.parametrize("name", CLAIMS)
def test_another_claim_is_refused(run: Path, name: str) -> None:
    claim(run, **CLAIMS[name])
    with pytest.raises(CertificateError):
        verify(run / "certificate", run)


@pytest.mark.parametrize("name", ["format", "upper_bound", "operations", "streams", "tables", "lengths", "parts"])
def test_an_incomplete_claim_is_refused(run: Path, name: str) -> None:
    path = run / "certificate" / "certificate.json"
    content = json.loads(path.read_text())
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(CertificateError):
        verify(run / "certificate", run)


@pytest.mark.parametrize("name", ["inv", "ret", "value", "process", "acks"])
def test_the_certificate_does_not_prove_a_history_with_one_changed_operation(run: Path, name: str) -> None:
    path = min((run / "tables" / "operations").rglob("*.parquet"))
    operations = pq.read_table(path)
    column = operations[name].to_numpy().copy()
    column[0] += 1
    field = operations.schema.field(name)
    other = operations.set_column(operations.schema.get_field_index(name), field, pa.array(column, field.type))
    pq.write_table(other, path)
    with pytest.raises(CertificateError, match="other tables"):
        verify(run / "certificate", run)


def test_the_certificate_does_not_prove_a_changed_stream(run: Path) -> None:
    stream = min((run / "history" / "operations").iterdir())
    stream.write_bytes(stream.read_bytes() + b"x")
    with pytest.raises(CertificateError, match="another history"):
        verify(run / "certificate", run)
