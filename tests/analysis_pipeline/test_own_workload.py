"""Runs with a workload of the user's own: judged by the user's checkers, on a whole record with a final read."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.verdict import Verdict
from history.journal.writer import Journal
from history.record.operations import OF_ALL_SHAPES, parts_of_all_shapes
from history.record.shapes import FREE
from history.record.writer import OperationWriter
from history.seal import FILE_NAME, seal
from orchestrator.campaign import toml_text
from tests.analysis_pipeline.page_words import words_of_kafka
from tests.analysis_pipeline.stored_registers import Held, StoredRegisters

USE = "bank.py:Balance"
CHECKER = """
from brownout_api import HistoryChecker

class Balance(HistoryChecker):
    promise = "every read shows the total"
    anomalies = {"wrong-total": "Another total."}
    needs = {"read": 10, "transfer": 10}

    def check(self, history):
        for read in history.ok("read"):
            if sum(read.result) != history.workload.total:
                yield self.anomaly("wrong-total", f"{read.client} read {read.result}", read)
"""


@dataclass
class StoredBank(StoredRegisters):
    """Two clients transfer and read in turn; the total is 30. `wrong`: the last read under load shows another one."""

    use: tuple[str, ...] = (USE,)
    model: str = ""
    initial: str = ""
    allow: tuple[str, ...] = ()
    prohibit: tuple[str, ...] = ()
    consistency_model: str = ""
    wrong: bool = False

    def write(self) -> Path:
        path = super().write()
        description = tomllib.loads((path / "run.toml").read_text())
        description["workload"] = {"kind": "bank.py:Bank", "judge": "own", "own": {"total": 30}}
        description["plan"] |= {"changes": 24, "queries": 24}
        chosen = {"use": list(self.use), "allow": list(self.allow), "prohibit": list(self.prohibit)}
        description["checks"] |= {
            key: value
            for key, value in (
                *chosen.items(),
                ("model", self.model),
                ("initial", self.initial),
                ("consistency_model", self.consistency_model),
            )
            if value
        }
        description["checkers"] = {"bank.py": CHECKER}
        (path / "run.toml").write_text(toml_text.dump(description))
        (path / "history" / FILE_NAME).unlink()
        seal(path)
        return path

    def _work(self, journal: Journal) -> tuple[list[OperationWriter], Held, Held]:
        (self.path / "clients").mkdir()
        directory, clients = self.path / "history" / "operations", []
        for n in (0, 1):
            (self.path / "clients" / f"c{n}.log").touch()
            journal.client(f"c{n}", process=n, role="client", session=1, producers=(0, 0))
            clients.append(OperationWriter(FREE, directory, client=f"c{n}", session=1, process=n, clock=self._tick))
        for number in range(24):
            client, is_last = clients[number % 2], number == 23
            transfer = client.start("call", function="transfer", argument=json.dumps({"amount": number}))
            client.end(transfer, "ok", result="null", endpoint="n1:9")
            shown = [10, 10, 11 if self.wrong and is_last else 10]
            client.end(client.start("query", function="read"), "ok", result=json.dumps(shown), endpoint="n2:9")
        return clients, {}, {}

    def _final(self, client: OperationWriter, first: Held, held: Held) -> None:
        del first, held
        client.phase = "final"
        if self.final_reads:
            client.end(client.start("query", function="read"), "ok", result="[10, 10, 10]")


def judged(path: Path, **fields: Any) -> Verdict:
    return analyze(StoredBank(path / "run", **fields).write(), engine="in-process", plots=False)


def test_a_run_that_its_checker_finds_right_passes(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    assert verdict.verdict == "pass", verdict.reasons
    stats = verdict.stats
    assert (stats["operations"], stats["acknowledged"], stats["queries_under_load"], stats["failed"]) == (49, 24, 24, 0)
    seconds = pq.read_table(tmp_path / "run" / "tables" / "seconds.parquet").to_pylist()
    assert {(row["shape"], row["f"]) for row in seconds} == {("free", 5), ("free", 6)}


def test_a_contradiction_fails_the_run_and_its_page_shows_the_operation(tmp_path: Path) -> None:
    verdict = judged(tmp_path, wrong=True)
    assert verdict.verdict == "fail"
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.sentence) == ("wrong-total", "bank.py:Balance: c1 read [10, 10, 11]")
    assert anomaly.witness[0]["text"] == "read = [10, 10, 11]"
    page = render_run(tmp_path / "run").read_text()
    assert "c1: read = [10, 10, 11]: ok" in page
    assert "history/operations/c1-1.calls" in page
    assert "n2 gave all contradicting answers at " in page.lower()


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "no checker": ({"use": ()}, "no checker judges the operations: [checks] use names none"),
    "a checker without text": ({"use": ("other.py:X",)}, "other.py:X: run.toml does not have the text of its file"),
    "no final read": ({"final_reads": False}, "no operation of the final read was answered after healing"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_run_that_is_not_judged_or_not_read_is_unknown(tmp_path: Path, case: str) -> None:
    fields, reason = UNKNOWN[case]
    verdict = judged(tmp_path, **fields)
    assert verdict.verdict == "unknown"
    assert any(reason in each for each in (*verdict.reasons, *verdict.doubts)), verdict.reasons
    assert words_of_kafka(render_run(tmp_path / "run").read_text()) == []


def test_a_contradiction_beside_a_lost_record_is_a_doubt(tmp_path: Path) -> None:
    path = StoredBank(tmp_path / "run", wrong=True).write()
    for name in ("c0-1.called", "c0-1.calls"):
        (path / "history" / "operations" / name).unlink()
    verdict = analyze(path, engine="in-process", plots=False)
    assert verdict.verdict == "unknown"
    assert any(
        "wrong-total: bank.py:Balance: c1 read [10, 10, 11]: the record of a client" in each for each in verdict.doubts
    )


def test_the_tables_of_all_operations_have_the_calls(tmp_path: Path) -> None:
    judged(tmp_path)
    parts = parts_of_all_shapes(tmp_path / "run" / "tables", OF_ALL_SHAPES.names)
    rows = [row for part in parts for row in part.to_pylist()]
    assert {(row["shape"], row["function"], row["topic"]) for row in rows} == {
        ("free", "transfer", None),
        ("free", "read", None),
    }


Call = tuple[str, Any, Any, str]
"""The function, the argument, the result and the outcome."""
Final = tuple[str, Any] | tuple[str, Any, Any]
"""The function and the result of the final call, and its argument if it has one."""


def modelled(
    path: Path,
    model: str,
    calls: Sequence[Call],
    final: Final,
    **chosen: Any,
) -> Verdict:
    """The verdict on these calls in sequence, and on a final one. `chosen`: in [checks]."""

    class Calls(StoredBank):
        def _work(self, journal: Journal) -> tuple[list[OperationWriter], Held, Held]:
            (self.path / "clients").mkdir()
            (self.path / "clients" / "c0.log").touch()
            journal.client("c0", process=0, role="client", session=1, producers=(0, 0))
            directory = self.path / "history" / "operations"
            client = OperationWriter(FREE, directory, client="c0", session=1, process=0, clock=self._tick)
            for function, argument, result, outcome in calls:
                self._call(client, function, argument, result, outcome)
            return [client], {}, {}

        def _final(self, client: OperationWriter, first: Held, held: Held) -> None:
            del first, held
            client.phase = "final"
            self._call(client, final[0], final[2] if len(final) == 3 else None, final[1], "ok")

        @staticmethod
        def _call(client: OperationWriter, function: str, argument: Any, result: Any, outcome: str) -> None:
            call = client.start("call", function=function, argument=json.dumps(argument))
            shown = {"result": json.dumps(result)} if outcome == "ok" else {"error": "lost"}
            client.end(call, outcome, **shown)

    run = Calls(path / "run", use=(), min_ok=1, model=model, **chosen).write()
    description = tomllib.loads((run / "run.toml").read_text())
    description["plan"] |= {"clients": ["c0"], "changes": 1, "queries": 0}
    (run / "run.toml").write_text(toml_text.dump(description))
    (run / "history" / FILE_NAME).unlink()
    seal(run)
    return analyze(run, engine="in-process", plots=False)


ADDS = [("add", number, None, "ok") for number in range(3)]
GIVE = ("transfer", {"from": 0, "to": 1, "amount": 5}, None, "ok")
HISTORIES: dict[str, tuple[str, list[Call], Final, str, str]] = {
    "a set": ("set", ADDS, ("read", [2, 0, 1]), "pass", "set: 4 operations"),
    "a set with a loss": ("set", ADDS, ("read", [0, 1]), "fail", "set: no order explains read = {0, 1}"),
    "a set with an open add": ("set", [*ADDS, ("add", 9, None, "info")], ("read", [0, 1, 2]), "pass", "5 operations"),
    "a queue": ("fifo-queue", [("enqueue", "a", None, "ok")], ("dequeue", "a"), "pass", "fifo-queue: 2 operations"),
    "a queue out of order": (
        *("fifo-queue", [("enqueue", each, None, "ok") for each in "ab"], ("dequeue", "b"), "fail"),
        "fifo-queue: no order explains dequeue",
    ),
    "a counter": ("counter", [("add", 2, None, "ok")], ("read", 2), "pass", "counter: 2 operations"),
    "a set whose loss needs no search": ("set-full", ADDS, ("read", [0, 1]), "fail", "lost-element: set-full: "),
    "a bank": (
        "bank",
        [("read", {"0": 9, "1": 1}, {"0": 9, "1": 1}, "ok"), GIVE],
        ("read", {"0": 4, "1": 6}),
        "pass",
        "",
    ),
    "a bank with a loss": (
        "bank",
        [("read", None, {"0": 9, "1": 1}, "ok"), GIVE],
        ("read", {"0": 4, "1": 1}),
        "fail",
        "bank: ",
    ),
    "a set of pairs": ("set", [("add", ["a", 1], None, "ok")], ("read", [["a", 1]]), "pass", "set: 2 operations"),
    "several registers": (
        "multi-register",
        [("txn", [["write", "x", 1]], [["write", "x", 1]], "ok"), ("txn", [["w", "x", 2]], None, "info")],
        ("txn", [["read", "x", 3]], [["read", "x", None]]),
        "fail",
        "multi-register: no order explains txn",
    ),
    "another function": (
        "set",
        [("put", 1, None, "ok")],
        ("read", []),
        "unknown",
        "only the functions add, remove, read",
    ),
    "another result": ("counter", [("add", 1, None, "ok")], ("read", "x"), "unknown", "an integer is needed"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_model_judges_the_calls(tmp_path: Path, name: str) -> None:
    model, calls, final, expected, text = HISTORIES[name]
    verdict = modelled(tmp_path, model, calls, final)
    assert verdict.verdict == expected, verdict.reasons
    details = [check.detail for check in verdict.checks if check.name == "own workload"]
    assert any(text in each for each in (*details, *verdict.reasons, *verdict.doubts)), (details, verdict.reasons)
    page = render_run(tmp_path / "run").read_text()
    assert words_of_kafka(page) == []
    assert ("The contradicting operation" in page) == (expected == "fail"), "the clients recorded no node"


INITIAL: dict[str, tuple[str, str, list[Call], tuple[str, Any], str]] = {
    "a set that has what it had": ("set", '#{9 "a"}', ADDS, ("read", [0, 1, 2, 9, "a"]), "pass"),
    "a set that lost what it had": ("set-full", "#{9}", ADDS, ("read", [0, 1, 2]), "fail"),
    "a counter": ("counter", "40", [("add", 2, None, "ok")], ("read", 42), "pass"),
    "a counter without what it had": ("counter", "40", [("add", 2, None, "ok")], ("read", 2), "fail"),
    "a text": ("key-value", '"x"', [("append", "y", None, "ok")], ("get", "xy"), "pass"),
    "a bank with the total": ("bank", "10", [GIVE], ("read", {"0": 4, "1": 6}), "pass"),
    "a bank with another total": ("bank", "11", [GIVE], ("read", {"0": 4, "1": 6}), "fail"),
}


@pytest.mark.parametrize("name", INITIAL)
def test_objects_may_have_an_initial_value(tmp_path: Path, name: str) -> None:
    model, initial, calls, final, expected = INITIAL[name]
    verdict = modelled(tmp_path, model, calls, final, initial=initial)
    assert verdict.verdict == expected, verdict.reasons


LATE: list[Call] = [("add", 1, None, "ok"), ("read", None, [], "ok")]
CHOSEN: dict[str, tuple[dict[str, Any], list[Call], tuple[str, Any], str]] = {
    "a loss that is allowed": ({"allow": ("lost-element",)}, ADDS, ("read", [0, 1]), "pass"),
    "another anomaly is allowed": ({"allow": ("duplicate-element",)}, ADDS, ("read", [0, 1]), "fail"),
    "a late read": ({}, LATE, ("read", [1]), "pass"),
    "a late read that is prohibited": ({"prohibit": ("stale-read",)}, LATE, ("read", [1]), "fail"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_campaign_decides_which_anomaly_of_a_model_fails(tmp_path: Path, name: str) -> None:
    chosen, calls, final, expected = CHOSEN[name]
    assert modelled(tmp_path, "set-full", calls, final, **chosen).verdict == expected


def txn(outcome: str, *steps: tuple[str, int, Any]) -> Call:
    """A transaction: the steps as they were answered."""
    asked = [(f, key, None if f == "r" else value) for f, key, value in steps]
    return "txn", asked, [*steps], outcome


A: tuple[str, int, Any] = ("append", 1, "a")
TRANSACTIONS: dict[str, tuple[str, str, list[Call], Any, str, str]] = {
    "a list": ("list-append", "", [txn("ok", A, ("r", 1, ["a"]))], ["a"], "pass", "have a serial order"),
    "a list with a loss": (
        "list-append",
        "",
        [txn("ok", A)],
        [],
        "fail",
        "T1 is transaction 2, T2 is transaction 1",
    ),
    "a loss that an order of transactions explains": ("list-append", "serializable", [txn("ok", A)], [], "pass", ""),
    "a failed transaction is read": ("list-append", "read-committed", [txn("fail", A)], ["a"], "fail", "G1a: "),
    "a transaction of unknown outcome happens later": (
        *("list-append", "", [txn("info", A), txn("ok", ("r", 1, []))], ["a"], "pass", "have a serial order"),
    ),
    "registers": ("rw-register", "", [txn("ok", ("w", 1, "a"))], "a", "pass", "have a serial order"),
    "a register with a loss": ("rw-register", "", [txn("ok", ("w", 1, "a"))], None, "fail", "rw-register: T1 "),
    "another function": ("list-append", "", [("get", None, None, "ok")], [], "unknown", "only the functions txn"),
    "an answer to another question": (
        *("list-append", "", [("txn", [A], [("append", 1, "b")], "ok")], [], "unknown"),
        'transaction:1: the completion of txn has [[:append 1 "b"]]',
    ),
    "an answer that is no list of steps": (
        *("list-append", "", [("txn", [A], True, "ok")], [], "unknown"),
        "the value of txn is true: a list of steps",
    ),
    "no answer that shows something": ("list-append", "", [], None, "unknown", "the history shows no state"),
}


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_a_consistency_model_judges_transactions(tmp_path: Path, name: str) -> None:
    model, consistency, calls, shown, expected, text = TRANSACTIONS[name]
    steps = [] if not calls else [("r", 1, shown)]
    final = "txn", steps, [("r", 1, None) for _ in steps]
    verdict = modelled(tmp_path, model, calls, final, consistency_model=consistency)
    assert verdict.verdict == expected, verdict.reasons
    details = [check.detail for check in verdict.checks if check.name == "own workload"]
    sentences = [f"{anomaly.name}: {anomaly.sentence}" for anomaly in verdict.anomalies]
    assert any(text in each for each in (*details, *sentences, *verdict.doubts)), (details, sentences, verdict.doubts)
    assert words_of_kafka(render_run(tmp_path / "run").read_text()) == []
