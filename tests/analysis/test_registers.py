"""The verdicts of the register checker on small histories, their reasons, and the certificate of a pass."""

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.core.registers import RegisterReport, check
from analysis.engines.register import ORDER
from analysis.verifiers.log import CertificateError
from analysis.verifiers.register import verify_registers
from history.record.schemas import INFO, READ
from history.regular_files import sha256_of
from tests.analysis.register_histories import (
    Op,
    cas,
    explicable,
    mismatch,
    read,
    refused,
    table,
    true_history,
    write,
)
from tests.analysis_pipeline.register_tables import certified, stored

LINEARIZABLE = {
    "nothing": [],
    "an absent key": [read(None, 0, 1)],
    "one after the other": [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)],
    "a read during a write may be early": [write(1, 0, 10), read(None, 2, 3), read(1, 4, 5)],
    "a return at the moment of an invocation is concurrent": [write(1, 0, 5), read(None, 5, 6)],
    "two writes at once take effect in either order": [
        write(1, 0, 9),
        write(2, 0, 9),
        read(2, 10, 11),
        read(2, 12, 13),
    ],
    "a write of unknown outcome is seen late": [write(1, 0), read(None, 5, 6), read(1, 7, 8)],
    "a write of unknown outcome is never seen": [write(1, 0), write(2, 1, 2), read(2, 5, 6)],
    "a write of unknown outcome before another": [write(1, 0), write(2, 1, 2), read(2, 3, 4), read(1, 5, 6)],
    "a refused write is not there": [refused(write(1, 0, 1)), read(None, 2, 3)],
    "a swap": [write(1, 0, 1), cas(1, 2, 2, 3), read(2, 4, 5)],
    "a swap of an absent key": [cas(None, 1, 0, 1), read(1, 2, 3), mismatch(None, 2, 4, 5)],
    "a mismatch during the write it needs": [write(1, 0, 1), write(2, 2, 9), mismatch(1, 3, 3, 4), read(2, 10, 11)],
    "a mismatch that a write of unknown outcome explains": [write(1, 0, 1), write(2, 2), mismatch(1, 3, 4, 5)],
    "a swap of unknown outcome is seen": [write(1, 0, 1), cas(1, 2, 2), read(1, 3, 4), read(2, 5, 6)],
    "a chain of swaps of unknown outcome": [cas(None, 1, 0), cas(1, 2, 0), cas(2, 3, 0), read(3, 5, 6)],
    "a read without an answer": [dataclasses.replace(read(9, 0, 1), type=INFO), write(1, 2, 3)],
    "a swap that was refused says nothing": [write(1, 0, 1), refused(cas(1, 2, 2, 3)), read(1, 4, 5)],
}

CONTRADICTIONS: dict[str, tuple[list[Op], str, int, str]] = {
    "read of nothing's value": (
        [write(1, 0, 1), read(7, 2, 3)],
        "register-phantom",
        1,
        "reader read k = 7, which was never written",
    ),
    "read of a refused write": (
        [write(1, 0, 1), refused(write(7, 1, 2), "no quorum"), read(7, 2, 3)],
        "register-phantom",
        2,
        "only writer's write of k = 7 would have written, which certainly did not happen (no quorum)",
    ),
    "read of a swap that mismatched": (
        [mismatch(3, 7, 1, 2), write(3, 1, 2), read(7, 4, 5)],
        "register-phantom",
        2,
        "from 3 to 7 would have written, which certainly did not happen (mismatch)",
    ),
    "swap of nothing's value": ([cas(7, 8, 2, 3)], "register-phantom", 1, "from 7 to 8, which was never written"),
    "an acknowledged write is not seen": (
        [write(1, 0, 1), read(1, 2, 3), write(18, 1_000_000, 2_000_000), read(1, 3_200_000, 4_000_000), read(1, 1, 2)],
        "stale-register-read",
        3,
        "reader read k = 1, invoked 1.200 ms after writer's write of k = 18 had returned, though 18 is newer than 1",
    ),
    "an acknowledged write is gone": (
        [write(1, 0, 1), read(None, 2, 3)],
        "stale-register-read",
        2,
        "reader read k = nil, invoked 0.000 ms after writer's write of k = 1 had returned, though 1 is newer than nil",
    ),
    "back to the older of two writes at once": (
        [write(1, 0, 90), write(2, 0, 90), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)],
        "stale-register-read",
        3,
        "invoked 0.000 ms after reader read k = 2 had returned, though 2 is newer than 1",
    ),
    "an unsure write seen, then not": (
        [write(1, 0), read(1, 2, 3), read(None, 4, 5)],
        "stale-register-read",
        2,
        "though 1 is newer than nil",
    ),
    "read before it was written": (
        [read(1, 0, 1), write(1, 2, 3), read(1, 4, 5)],
        "non-linearizable-register",
        2,
        "reader read k = 1, and returned 0.000 ms before writer's write of k = 1 was invoked",
    ),
    "two swaps of one value": (
        [write(1, 0, 1), cas(1, 2, 2, 9), cas(1, 3, 2, 9), write(4, 20, 21)],
        "non-linearizable-register",
        2,
        "no order explains 2 operations: swapper's compare-and-set of k from 1 to 2",
    ),
    "a swap of a value that was replaced": (
        [write(1, 0, 1), write(2, 2, 3), cas(1, 3, 4, 5)],
        "non-linearizable-register",
        3,
        "no order explains 3 operations",
    ),
    "a mismatch though nothing else was there": (
        [write(5, 0, 1), write(1, 2, 3), mismatch(1, 2, 4, 5)],
        "non-linearizable-register",
        2,
        "from 1 to 2 reported a mismatch",
    ),
    "a mismatch of an absent key": (
        [mismatch(None, 2, 4, 5), write(1, 6, 7)],
        "non-linearizable-register",
        1,
        "reported a mismatch",
    ),
}


def judged(history: list[Op]) -> RegisterReport:
    return check(table({"k": history}))


@pytest.mark.parametrize("history", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_answers_of_a_single_register_are_linearizable(history: list[Op]) -> None:
    assert explicable(history)
    report = judged(history)
    assert (report.anomalies, report.undecided) == ((), ())


@pytest.mark.parametrize(("history", "name", "size", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_is_named_and_shown_by_its_smallest_set(
    history: list[Op], name: str, size: int, sentence: str
) -> None:
    assert not explicable(history)
    (anomaly,) = judged(history).anomalies
    assert (anomaly.name, len(anomaly.witness)) == (name, size)
    assert sentence in anomaly.sentence
    assert anomaly.where == "register k"
    assert not explicable([history[row["id"]] for row in anomaly.witness])


def test_keys_are_checked_separately() -> None:
    report = check(table({"a": [write(1, 0, 1), read(None, 2, 3)], "b": [write(2, 0, 1), read(2, 2, 3)]}))
    assert [anomaly.topic for anomaly in report.anomalies] == ["a"]
    assert list(report.orders) == ["b"]
    assert report.stats["operations"] == 4
    assert (report.stats["keys"], report.stats["acknowledged"], report.stats["reads"]) == (2, 2, 2)


def test_a_contradiction_in_a_long_history_is_shown_by_few_operations() -> None:
    rng = random.Random("long")
    history = true_history(rng, 2_000, 8, swaps=True)
    ordered = sorted(history, key=lambda op: op.inv)
    last = max(op.ret for op in history if op.ret < 1 << 60)
    seen = [op.value for op in ordered if op.f == READ and op.value is not None]
    (anomaly,) = judged([*history, read(seen[0], last + 1, last + 2, "late")]).anomalies
    assert anomaly.name == "stale-register-read"
    assert len(anomaly.witness) <= 4
    assert "late read k" in anomaly.sentence


def test_a_search_that_is_too_long_is_undecided_never_guessed() -> None:
    history = [write(n, 0, 100) for n in range(12)] + [mismatch(n, 50 + n, 0, 100) for n in range(12)]
    report = check(table({"k": [*history, mismatch(None, 90, 0, 100)]}), budget=3)
    assert (report.anomalies, dict(report.orders)) == ((), {})
    assert report.undecided == (
        "register k could not be decided: 3 configurations of its 25 operations were not enough",
    )


@pytest.mark.parametrize(("swaps", "budget"), [(False, 1), (True, 10_000)], ids=["sorted", "searched"])
def test_ten_thousand_operations_of_twenty_clients_take_one_configuration_each(swaps: bool, budget: int) -> None:
    """Without compare-and-set operations the histories are sorted and take no configuration."""
    operations = table({"k": true_history(random.Random("many"), 10_000, 20, swaps=swaps, infos=0.01)})
    assert list(check(operations, budget=budget).orders) == ["k"]


@pytest.mark.rotating(12, among="random histories")
def test_a_wrong_read_among_many_swaps_is_found_without_a_long_search() -> None:
    rng = random.Random("20True0.1")
    history = true_history(rng, 10_000, 20, swaps=True, infos=0.1)
    seen = [at for at in range(4_000, 6_000) if history[at].f == READ and history[at].value is not None]
    wrong, other = seen[len(seen) // 3], seen[-1]
    history[wrong] = dataclasses.replace(history[wrong], value=history[other].value)
    report = check(table({"k": history}), budget=20_000)
    assert report.undecided == ()
    assert len(report.anomalies[0].witness) <= 4
    assert not explicable([history[row["id"]] for row in report.anomalies[0].witness])


def confirmed(run: Path, operations: pa.Table) -> Path:
    """The certificate of these operations, which are in the tables of a run."""
    assert check(operations).ok
    return certified(stored(run, operations))


def test_every_order_is_confirmed_by_the_verifier(tmp_path: Path) -> None:
    rng = random.Random("certificates")
    drawn = {f"k{n}": true_history(rng, 30, 4, swaps=n % 2 == 0, infos=0.2) for n in range(300)}
    operations = table({**drawn, **LINEARIZABLE})
    proven = verify_registers(confirmed(tmp_path, operations), tmp_path)
    assert proven == f"{operations.num_rows:,} operations on {300 + len(LINEARIZABLE) - 1} registers are linearizable"


STORY = [
    write(1, 0, 10),
    read(1, 11, 20),
    cas(1, 2, 21, 30),
    mismatch(1, 3, 31, 40),
    refused(write(4, 41, 50)),
    write(5, 41),
    read(5, 51, 60),
]


def _swapped(rows: list[dict[str, int]]) -> None:
    rows[0]["id"], rows[1]["id"] = rows[1]["id"], rows[0]["id"]


FORGERIES: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "an order that is not legal": (_swapped, "outside its interval|read another value"),
    "a read left out": (lambda rows: rows.pop(1), "operation 1 happened and is left out"),
    "a mismatch left out": (lambda rows: rows.pop(3), "operation 3 happened and is left out"),
    "a needed unsure write left out": (lambda rows: rows.pop(4), "operation 6 read another value"),
    "an operation twice": (lambda rows: rows.append(rows[-1]), "is missing, or there twice"),
    "a refused operation": (lambda rows: rows.insert(4, {**rows[3], "id": 4, "at": 41}), "was refused"),
    "a moment before the invocation": (lambda rows: rows[0].update(at=-5), "outside its interval"),
    "a moment after the return": (lambda rows: rows[1].update(at=21), "outside its interval"),
    "moments that go back": (
        lambda rows: rows[0].update(at=10) or rows[1].update(at=9),
        "earlier than the entry before it",
    ),
    "an entry without a moment": (lambda rows: rows[2].update(at=None), "an entry lacks a field"),
    "another key's operation": (lambda rows: rows[0].update({"key": "other"}), "is missing"),
}


def forged(directory: Path, **changes: object) -> None:
    """Changes fields of a certificate, and of its part."""
    path = directory / "registers.json"
    claim = json.loads(path.read_text())
    part = claim["parts"][0]
    part |= {name: value for name, value in changes.items() if name in part}
    claim |= {name: value for name, value in changes.items() if name not in part}
    path.write_text(json.dumps(claim))


@pytest.mark.parametrize(("forge", "complaint"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_certificate_is_refused(
    tmp_path: Path, forge: Callable[[list[dict[str, Any]]], object], complaint: str
) -> None:
    directory = confirmed(tmp_path, table({"k": STORY}))
    part = directory / "registers-00000.parquet"
    rows = pq.read_table(part).to_pylist()
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 5, 6]
    forge(rows)
    pq.write_table(pa.Table.from_pylist(rows, ORDER), part)
    with pytest.raises(CertificateError, match="is not the file it was made for"):
        verify_registers(directory, tmp_path)
    forged(directory, sha256=sha256_of(part))
    with pytest.raises(CertificateError, match=complaint):
        verify_registers(directory, tmp_path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": 2}, "its format is unknown"),
        ({"operations": 6}, "another number of operations"),
        ({"streams": "0" * 64}, "another history"),
        ({"tables": "0" * 64}, "other tables of operations"),
        ({"upper_bound": "strict"}, "its fields are not those of a certificate"),
        ({"parts": []}, "its files are not those that it states"),
        ({"file": "registers-00001.parquet"}, "its files are not those that it states"),
        ({"start": "l"}, "is missing"),
        ({"start": "j"}, None),
    ],
)
def test_every_field_of_a_certificate_counts(tmp_path: Path, changes: dict[str, object], complaint: str | None) -> None:
    directory = confirmed(tmp_path, table({"k": STORY}))
    forged(directory, **changes)
    if complaint is None:
        assert verify_registers(directory, tmp_path)
        return
    with pytest.raises(CertificateError, match=complaint):
        verify_registers(directory, tmp_path)


def test_a_certificate_that_leaves_out_keys_is_refused(tmp_path: Path) -> None:
    directory = confirmed(tmp_path, table({"a": STORY, "k": STORY}))
    forged(directory, start="b")
    with pytest.raises(CertificateError, match="is missing"):
        verify_registers(directory, tmp_path)
    part = directory / "registers-00000.parquet"
    rows = [row for row in pq.read_table(part).to_pylist() if row["key"] == "k"]
    pq.write_table(pa.Table.from_pylist(rows, ORDER), part)
    forged(directory, sha256=sha256_of(part))
    with pytest.raises(CertificateError, match="no part has some of the operations"):
        verify_registers(directory, tmp_path)


@pytest.mark.parametrize("place", ["tables/registers/more.parquet", "tables/registers.parquet"])
def test_a_table_that_cannot_be_read_makes_the_certificate_invalid(tmp_path: Path, place: str) -> None:
    directory = confirmed(tmp_path, table({"k": STORY}))
    path = tmp_path / place
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(CertificateError, match="cannot be read"):
        verify_registers(directory, tmp_path)


def test_the_certificate_of_another_history_is_refused(tmp_path: Path) -> None:
    directory = confirmed(tmp_path, table({"k": STORY}))
    stored(tmp_path, table({"k": [*STORY[:-1], read(5, 51, 61)]}))
    with pytest.raises(CertificateError, match="made for other tables"):
        verify_registers(directory, tmp_path)
    with pytest.raises(CertificateError, match="cannot be read"):
        verify_registers(tmp_path / "nowhere", tmp_path)
