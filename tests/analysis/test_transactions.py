"""Transactions: verdicts agree with all orders of small histories, plain lines with EDN, certificates are verified."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.core.consistency_models import PROHIBITED
from analysis.core.transaction_check import components, peeled
from analysis.core.transactions import TransactionTable
from analysis.verdict import FAIL, PASS, UNKNOWN
from analysis.verifiers.log import CertificateError
from analysis.verifiers.transactions import verify_serial_order
from history.foreign.kinds import TRANSACTION_NAMES
from history.foreign.operation_files import OPERATIONS_FILE
from history.foreign.transaction_rows import LIST_APPEND, RW_REGISTER, WRITES, read_transactions, transaction_parts
from tests.analysis.foreign_files import edn
from tests.analysis.transaction_histories import drawn, edn_of, has_order, judged, lines

SEEDS = range(0, 160, 16)
MODELS = ("serializable", "strict-serializable")


@pytest.mark.parametrize("first", SEEDS)
@pytest.mark.parametrize("workload", WRITES)
def test_verdict_agrees_with_all_orders_of_small_histories(workload: str, first: int, tmp_path: Path) -> None:
    """A fail has no order, and a pass has one. Each history is decided that has an answer from outside its transaction,
    unless an allowed anomaly keeps the search for an order of registers from starting."""
    for seed in range(first, first + 16):
        transactions = drawn(random.Random(seed), workload)
        text = edn_of(transactions, workload)
        for model in MODELS:
            judgement = judged(text, workload, tmp_path / f"{seed}-{model}", consistency=model)
            is_explained = has_order(transactions, workload, real_time=model == "strict-serializable")
            assert judgement.verdict != (FAIL if is_explained else PASS), text
            shows_nothing = any("shows no state" in doubt for doubt in judgement.doubts)
            if not shows_nothing:
                assert judgement.verdict != UNKNOWN, text


def test_random_histories_have_each_verdict(tmp_path: Path) -> None:
    verdicts = {
        judged(edn_of(drawn(random.Random(seed), LIST_APPEND), LIST_APPEND), LIST_APPEND, tmp_path / str(seed)).verdict
        for seed in range(40)
    }
    assert verdicts == {PASS, FAIL, UNKNOWN}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("workload", WRITES)
def test_a_weaker_model_never_fails_where_a_stronger_one_passes(workload: str, seed: int, tmp_path: Path) -> None:
    for number in range(4):
        text = edn_of(drawn(random.Random(1000 + 4 * seed + number), workload), workload)
        verdicts = {
            model: judged(text, workload, tmp_path / f"{number}-{model}", consistency=model).verdict
            for model in PROHIBITED
        }
        if verdicts["serializable"] == PASS:
            assert FAIL not in [verdicts[model] for model in PROHIBITED if not model.startswith("str")]
        if verdicts["strict-serializable"] == PASS:
            assert FAIL not in verdicts.values()


@pytest.mark.parametrize("workload", WRITES)
def test_plain_lines_are_read_as_edn(workload: str, tmp_path: Path) -> None:
    """The same history in a notation that the reader of plain lines leaves to the reader of EDN."""
    plain = list(lines(400, workload))
    other = [line.replace("[[", "[ [").replace(" :value", ", :value") for line in plain]
    tables = []
    for name, text in (("plain", plain), ("other", other)):
        place = tmp_path / name
        place.mkdir()
        (place / "h.edn").write_text("".join(text))
        read_transactions(place / "h.edn", place, workload)
        tables.append(pq.read_table(place / OPERATIONS_FILE))
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize(
    "step",
    ["[:append 1 01]", "[:append 1 1.0]", '[:append 1 "nil"]', "[:append 1 9223372036854775808]", "[:append 1 -0]"],
)
def test_numbers_that_json_and_edn_write_differently_are_read_as_edn(step: str, tmp_path: Path) -> None:
    read = step.replace("append", "r").replace("1 ", "1 [", 1).removesuffix("]") + "]]"
    events = [(0, "invoke", "txn", f"[{step}]"), (0, "ok", "txn", f"[{step}]")]
    events += [(0, "invoke", "txn", "[[:r 1 nil]]"), (0, "ok", "txn", f"[{read}]")]
    if step == "[:append 1 01]":
        with pytest.raises(Exception, match="is not EDN"):
            judged(edn(*events), LIST_APPEND, tmp_path / "h")
    else:
        assert judged(edn(*events), LIST_APPEND, tmp_path / "h").verdict == PASS


def table_of(path: Path, text: str) -> TransactionTable:
    path.mkdir()
    (path / "h.edn").write_text(text)
    read_transactions(path / "h.edn", path, LIST_APPEND)
    return TransactionTable.of(lambda *columns: transaction_parts(path, *columns))


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ((0, 1, 2), None),
        ((0, 2, 1), "returned before an earlier one"),
        ((1, 0, 2), "returned before an earlier one"),
        ((0, 1), "is missing"),
        ((0, 1, 2, 2), "is in it twice"),
        ((0, 1, 2, 3), "failed"),
        ((0, 1, 2, 9), "does not have"),
    ],
)
def test_verifier_refuses_each_other_order(order: tuple[int, ...], problem: str | None, tmp_path: Path) -> None:
    steps = ("ok", "[[:append 1 1]]"), ("ok", "[[:r 1 [1]]]"), ("ok", "[[:append 1 2]]"), ("fail", "[[:append 1 3]]")
    events = [(0, kind, "txn", value) for outcome, value in steps for kind in ("invoke", outcome)]
    table = table_of(
        tmp_path / "h", edn(*[(p, k, f, v.replace("[1]]", "nil]") if k == "invoke" else v) for p, k, f, v in events])
    )
    if problem is None:
        assert "2 answers" not in verify_serial_order(table, order, is_list=True, process=True, real_time=True)
    else:
        with pytest.raises(CertificateError, match=problem):
            verify_serial_order(table, order, is_list=True, process=False, real_time=True)
    if order in ((0, 2, 1), (1, 0, 2)):
        with pytest.raises(CertificateError, match="does not explain"):
            verify_serial_order(table, order, is_list=True, process=False, real_time=False)


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_of_reachability(seed: int) -> None:
    generator = np.random.default_rng(seed)
    nodes, edges = 9, int(generator.integers(0, 18))
    source, target = (generator.integers(0, nodes, edges, np.int32) for _ in range(2))
    reaches = np.eye(nodes, dtype=bool)
    reaches[source, target] = True
    for middle in range(nodes):
        reaches |= reaches[:, [middle]] & reaches[[middle], :]
    both = reaches & reaches.T
    expected = {frozenset(np.flatnonzero(row).tolist()) for row in both if row.sum() > 1}
    assert {frozenset(group) for group in components(nodes, source, target)} == expected
    is_loop = source == target
    order, is_missing = peeled(nodes, source[~is_loop], target[~is_loop])
    assert bool(is_missing.any()) == bool(expected)
    assert len(order) + int(is_missing.sum()) == nodes


def test_the_workloads_have_the_names_of_the_command_line() -> None:
    assert tuple(WRITES) == TRANSACTION_NAMES == (LIST_APPEND, RW_REGISTER)


def test_a_large_history_has_a_certificate(tmp_path: Path) -> None:
    """More than one row group of lists, by 20 processes at once."""
    judgement = judged(
        "".join(lines(3000, LIST_APPEND)), LIST_APPEND, tmp_path / "h", consistency="strict-serializable"
    )
    assert (judgement.verdict, "3,000 transactions" in judgement.certified) == (PASS, True)
    assert pa.types.is_int64(pq.read_table(tmp_path / "h" / "certificate" / "order.parquet").schema.field("id").type)


def test_registers_without_a_known_cycle_may_have_no_serial_order(tmp_path: Path) -> None:
    """The last transaction reads key 0 from the second and overwrites it. The first one overwrites it, too, and reads
    key 1 from the second, which the last one writes. Whichever of these two is first hides a version from the other."""
    text = edn(
        *((0, "invoke", "txn", "[[:w 0 7] [:r 1 nil]]"), (0, "ok", "txn", "[[:w 0 7] [:r 1 6]]")),
        *((1, "invoke", "txn", "[[:w 0 4] [:w 1 6]]"), (1, "ok", "txn", "[[:w 0 4] [:w 1 6]]")),
        *((2, "invoke", "txn", "[[:w 1 2] [:r 0 nil]]"), (2, "ok", "txn", "[[:w 1 2] [:r 0 4]]")),
    )
    judgement = judged(text, RW_REGISTER, tmp_path / "h")
    (anomaly,) = judgement.anomalies
    assert (judgement.verdict, anomaly.name) == (FAIL, "no-serial-order")
    assert {row["line"] for row in anomaly.witness} == {1, 5}
    assert judged(text, RW_REGISTER, tmp_path / "weaker", consistency="read-committed").verdict == PASS
