"""`brownout check` of transactions: each anomaly, a history beside it that passes, and input that is refused."""

import json
import re
from pathlib import Path

import pytest

from history.foreign.transaction_rows import LIST_APPEND, RW_REGISTER, WRITES
from orchestrator.command import line
from tests.analysis.foreign_files import edn

PASSED, FAILED, UNKNOWN, REFUSED = 0, 1, 2, 64
Events = list[tuple[int, str, str, str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _steps(text: str, workload: str, *, is_known: bool) -> str:
    """`wx1 rx12`: writes 1 to x, reads 1 and 2 (list-append) or the last of them (rw-register); `rx`: nothing there."""
    steps = []
    for step in text.split():
        f, key, values = step[0], step[1], step[2:]
        if f == "w":
            steps.append(f"[:{WRITES[workload]} :{key} {values}]")
        elif not is_known or (not values and workload == RW_REGISTER):
            steps.append(f"[:r :{key} nil]")
        else:
            answer = f"[{' '.join(values)}]" if workload == LIST_APPEND else values[-1]
            steps.append(f"[:r :{key} {answer}]")
    return f"[{' '.join(steps)}]"


def history(workload: str, *transactions: str, at_once: bool = True) -> str:
    """A transaction for each text `OUTCOME STEPS`, all at once or one after another."""
    invoked: Events = []
    completed: Events = []
    for process, transaction in enumerate(transactions):
        kind, _, steps = transaction.partition(" ")
        invoked.append((process, "invoke", "txn", _steps(steps, workload, is_known=False)))
        completed.append((process, kind, "txn", _steps(steps, workload, is_known=kind == "ok")))
    if at_once:
        return edn(*invoked, *completed)
    return edn(*(event for pair in zip(invoked, completed, strict=True) for event in pair))


def checked(text: str, *options: str, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    Path("h.edn").write_text(text)
    was = line.main(["check", "h.edn", *options])
    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert was == code, printed
    return printed


Case = tuple[tuple[str, ...], tuple[str, ...]]

LISTS: dict[str, Case] = {
    "G0": (("ok wx1 wy1", "ok wx2 wy2", "ok rx12 ry21"), ("ok wx1 wy1", "ok wx2 wy2", "ok rx12 ry12")),
    "G1a": (("fail wx1", "ok rx1"), ("info wx1", "ok rx1")),
    "G1b": (("ok wx1 wx2", "ok rx1"), ("ok wx1 wx2", "ok rx12")),
    "G1c": (("ok wx1 ry1", "ok wy1 rx1"), ("ok wx1 ry", "ok rx1 wy1")),
    "G-single": (("ok rx ry1", "ok wx1", "ok rx1 wy1"), ("ok rx1 ry1", "ok wx1", "ok rx1 wy1")),
    "G-nonadjacent": (
        ("ok rx rc1", "ok wx1 wa1", "ok ra1 rb", "ok wb1 wc1"),
        ("ok rx rc1", "ok wx1 wa1", "ok ra1 rb1", "ok wb1 wc1"),
    ),
    "G2-item": (("ok rx wy1", "ok ry wx1"), ("ok rx wy1", "ok ry1 wx1")),
    "lost-update": (("ok rx wx1", "ok rx wx2"), ("ok rx wx1", "ok rx1 wx2")),
    "fractured-read": (("ok wx1 wy1", "ok ry rx1"), ("ok wx1 wy1", "ok ry1 rx1")),
    "observed-transaction-vanishes": (("ok wx1 wy1", "ok rx1 ry"), ("ok wx1 wy1", "ok rx1 ry1")),
    "internal": (("ok rx wx1 rx", "ok rx1"), ("ok rx wx1 rx1", "ok rx1")),
    "future-read": (("ok rx1 wx1", "ok rx1"), ("ok rx wx1", "ok rx1")),
    "incompatible-order": (("ok wx1", "ok wx2", "ok rx21", "ok rx1"), ("ok wx1", "ok wx2", "ok rx21", "ok rx2")),
    "duplicate-elements": (("ok wx1", "ok rx11"), ("ok wx1", "ok rx1")),
    "garbage-read": (("ok wx1", "ok rx2"), ("ok wx1", "ok rx1")),
}
REGISTERS: dict[str, Case] = {
    "G1a": LISTS["G1a"],
    "G1b": LISTS["G1b"],
    "G1c": LISTS["G1c"],
    "G-single": LISTS["G-single"],
    "G2-item": LISTS["G2-item"],
    "lost-update": LISTS["lost-update"],
    "fractured-read": LISTS["fractured-read"],
    "observed-transaction-vanishes": LISTS["observed-transaction-vanishes"],
    "internal": LISTS["internal"],
    "future-read": LISTS["future-read"],
    "garbage-read": LISTS["garbage-read"],
}
IN_ORDER: dict[str, tuple[str, str, Case]] = {
    "G-single-realtime": (
        LIST_APPEND,
        "serializable",
        (("ok wx1", "ok rx", "ok rx1"), ("ok wx1", "ok rx1", "ok rx1")),
    ),
    "G2-item-realtime": (
        LIST_APPEND,
        "serializable",
        (("ok rx wy1", "ok wz1", "ok ry rz1", "ok wx1", "ok rz1"), ("ok rx wy1", "ok wz1", "ok ry1 rz1", "ok rz1")),
    ),
    "G0-realtime": (
        LIST_APPEND,
        "serializable",
        (("ok wx1", "ok wx2", "ok rx21"), ("ok wx1", "ok wx2", "ok rx12")),
    ),
    "a stale read of a register": (
        RW_REGISTER,
        "serializable",
        (("ok wx1", "ok wx2", "ok rx1"), ("ok wx1", "ok wx2", "ok rx2")),
    ),
}


@pytest.mark.parametrize(
    ("workload", "name", "case"),
    [(LIST_APPEND, *case) for case in LISTS.items()] + [(RW_REGISTER, *case) for case in REGISTERS.items()],
)
def test_check_finds_each_anomaly(workload: str, name: str, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, right = (history(workload, *each) for each in case)
    printed = checked(wrong, "--model", workload, code=FAILED, capsys=capsys)
    assert f"  {name}: " in printed, printed
    checked(right, "--model", workload, code=PASSED, capsys=capsys)
    witness = json.loads(Path("checks/h/result.json").read_text())
    assert witness["certified"]


@pytest.mark.parametrize("name", IN_ORDER)
def test_check_keeps_real_time_if_the_model_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    workload, weaker, (wrong, right) = IN_ORDER[name]
    in_time = [history(workload, *each, at_once=False) for each in (wrong, right)]
    printed = checked(in_time[0], "--model", workload, code=FAILED, capsys=capsys)
    assert "-realtime: " in printed, printed
    checked(in_time[0], "--model", workload, "--consistency-model", weaker, code=PASSED, capsys=capsys)
    checked(in_time[1], "--model", workload, code=PASSED, capsys=capsys)


def test_check_keeps_the_order_of_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    """One process appends and then misses its element, or another one does."""
    events = [(0, "invoke", "[[:append 1 1]]"), (0, "ok", "[[:append 1 1]]")]
    last = [(3, "invoke", "[[:r 1 nil]]"), (3, "ok", "[[:r 1 [1]]]")]
    for process, code in ((0, FAILED), (1, PASSED)):
        missed = [(process, "invoke", "[[:r 1 nil]]"), (process, "ok", "[[:r 1 []]]")]
        text = edn(*((number, kind, "txn", value) for number, kind, value in [*events, *missed, *last]))
        options = "--model", LIST_APPEND, "--consistency-model"
        printed = checked(text, *options, "strong-session-serializable", code=code, capsys=capsys)
        assert ("G-single-process" in printed) == (code == FAILED)
        checked(text, *options, "serializable", code=PASSED, capsys=capsys)


@pytest.mark.parametrize(
    ("model", "transactions", "code"),
    [
        ("read-uncommitted", LISTS["G0"][0], FAILED),
        ("read-uncommitted", LISTS["G1c"][0], PASSED),
        ("read-committed", LISTS["G1c"][0], FAILED),
        ("read-committed", LISTS["observed-transaction-vanishes"][0], PASSED),
        ("monotonic-atomic-view", LISTS["observed-transaction-vanishes"][0], FAILED),
        ("monotonic-atomic-view", LISTS["fractured-read"][0], PASSED),
        ("read-atomic", LISTS["fractured-read"][0], FAILED),
        ("read-atomic", LISTS["lost-update"][0], PASSED),
        ("snapshot-isolation", LISTS["lost-update"][0], FAILED),
        ("snapshot-isolation", LISTS["G-nonadjacent"][0], FAILED),
        ("snapshot-isolation", LISTS["G2-item"][0], PASSED),
        ("repeatable-read", LISTS["G2-item"][0], FAILED),
        ("serializable", LISTS["G2-item"][0], FAILED),
    ],
)
def test_a_model_prohibits_its_anomalies_only(
    model: str, transactions: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text = history(LIST_APPEND, *transactions)
    checked(text, "--model", LIST_APPEND, "--consistency-model", model, code=code, capsys=capsys)


UNDECIDED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "an element that was appended twice": (
        LIST_APPEND,
        ("ok wx1", "ok wx1", "ok rx1"),
        "again by the transaction",
    ),
    "no answer": (LIST_APPEND, ("ok wx1", "ok wx2"), "shows no state"),
    "an unknown outcome alone": (LIST_APPEND, ("info wx1 rx",), "shows no state"),
    "a failed transaction alone": (RW_REGISTER, ("fail wx1",), "shows no state"),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_check_is_undecided_without_evidence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    workload, transactions, message = UNDECIDED[name]
    text = history(workload, *transactions)
    assert message in checked(text, "--model", workload, code=UNKNOWN, capsys=capsys)


def test_an_answer_of_an_unknown_outcome_leaves_a_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    text = history(LIST_APPEND, "ok wx1", "ok rx1")
    more = edn((9, "invoke", "txn", "[[:r :x nil]]"), (9, "info", "txn", "[[:r :x [1]]]")).replace(
        ":index ", ":index 9"
    )
    assert "its type is not ok" in checked(text + more, "--model", LIST_APPEND, code=UNKNOWN, capsys=capsys)


@pytest.mark.parametrize(
    ("model", "code"),
    [("serializable", PASSED), ("snapshot-isolation", PASSED), ("strict-serializable", UNKNOWN)],
)
def test_times_that_contradict_their_lines_leave_a_doubt_if_the_model_has_time(
    model: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text = re.sub(r":time \d+", ":time 999999999999", history(LIST_APPEND, "ok wx1", "ok rx1"), count=1)
    printed = checked(text, "--model", LIST_APPEND, "--consistency-model", model, code=code, capsys=capsys)
    assert ("times and lines contradict each other" in printed) == (code == UNKNOWN)


@pytest.mark.parametrize(
    ("transactions", "code"),
    [
        (("ok wx1", "info wx2", "ok rx12"), PASSED),
        (("ok wx1", "info wx2 wy1", "ok rx12 ry"), FAILED),
        (("ok wx1", "info wx2 wy1", "ok rx1 ry"), PASSED),
    ],
)
def test_a_transaction_of_unknown_outcome_happened_if_it_was_read(
    transactions: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(history(LIST_APPEND, *transactions), "--model", LIST_APPEND, code=code, capsys=capsys)


@pytest.mark.parametrize("model", ["strong-session-snapshot-isolation", "strict-serializable"])
@pytest.mark.parametrize("workload", WRITES)
def test_a_transaction_of_unknown_outcome_may_happen_while_its_process_goes_on(
    workload: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = history(workload, "info wx1", "ok rx", "ok rx1", at_once=False).replace(":process 1", ":process 0")
    checked(text, "--model", workload, "--consistency-model", model, code=PASSED, capsys=capsys)
    text = text.replace(":info", ":ok")
    checked(text, "--model", workload, "--consistency-model", model, code=FAILED, capsys=capsys)


def test_an_assumption_orders_registers(capsys: pytest.CaptureFixture[str]) -> None:
    """Serializability alone allows a stale read; with keys that are linearizable one by one it shows a cycle."""
    stale = history(RW_REGISTER, "ok wx1", "ok wx2 wy1", "ok ry1 rx1", at_once=False)
    options = "--model", RW_REGISTER, "--consistency-model", "serializable"
    printed = checked(stale, *options, "--keys", "linearizable", code=FAILED, capsys=capsys)
    assert "assumed: linearizable keys" in printed
    fresh = history(RW_REGISTER, "ok wx1", "ok wx2 wy1", "ok ry1 rx2", at_once=False)
    checked(fresh, *options, "--keys", "linearizable", code=PASSED, capsys=capsys)


@pytest.mark.parametrize("model", ["read-committed", "serializable"])
def test_an_assumption_that_the_history_contradicts_is_unknown(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = history(RW_REGISTER, "ok wx1", "ok rx", at_once=False)
    options = "--model", RW_REGISTER, "--consistency-model", model
    checked(text, *options, code=PASSED, capsys=capsys)
    printed = checked(text, *options, "--keys", "linearizable", code=UNKNOWN, capsys=capsys)
    assert "key :x: its initial state was read after 1, so that keys are not linearizable; omit --keys" in printed


def test_an_initial_value_of_registers_is_stated(capsys: pytest.CaptureFixture[str]) -> None:
    text = history(RW_REGISTER, "ok rx7 wx1", "ok rx1")
    assert "garbage-read" in checked(text, "--model", RW_REGISTER, code=FAILED, capsys=capsys)
    checked(text, "--model", RW_REGISTER, "--initial", "7", code=PASSED, capsys=capsys)
    printed = checked(
        history(RW_REGISTER, "ok rx"), "--model", RW_REGISTER, "--initial", "7", code=FAILED, capsys=capsys
    )
    assert "read nil that no transaction wrote" in printed


GOOD = history(LIST_APPEND, "ok wx1", "ok rx1")
BAD: dict[str, tuple[str, tuple[str, ...], str]] = {
    "another step": (GOOD.replace(":append", ":cas"), (LIST_APPEND,), "h.edn:1: [:cas :x 1] is not a step"),
    "a write to a register": (history(RW_REGISTER, "ok wx1"), (LIST_APPEND,), "is not a step of list-append"),
    "a list in a register": (GOOD, (RW_REGISTER,), "h.edn:1: [:append :x 1] is not a step of rw-register"),
    "a step without a value": (GOOD.replace(" 1]]", "]]"), (LIST_APPEND,), "[:append :x] is not a step"),
    "a value that is no list of steps": (GOOD.replace("[[:append :x 1]]", "3"), (LIST_APPEND,), "a list of steps"),
    "an answer that is no list": (GOOD.replace("[1]", "1"), (LIST_APPEND,), "read no list"),
    "a write of nil": (GOOD.replace(":x 1", ":x nil"), (LIST_APPEND,), "writes nil"),
    "a completion of another step": (
        GOOD.replace(":append :x 1", ":append :x 2", 1),
        (LIST_APPEND,),
        "but line 1 invoked",
    ),
    "another operation": (GOOD.replace(":f :txn", ":f :read"), (LIST_APPEND,), "has only the operations txn"),
    "no operation": ("", (LIST_APPEND,), "has no operation of a client"),
    "a write of the initial value": (
        history(RW_REGISTER, "ok wx1", "ok wx7", "ok rx7"),
        (RW_REGISTER, "--initial", "7"),
        "h.edn:2: writes 7, which is the initial value",
    ),
    "an initial value of lists": (GOOD, (LIST_APPEND, "--initial", "1"), "omit --initial"),
    "an assumption about lists": (GOOD, (LIST_APPEND, "--keys", "sequential"), "--keys"),
    "an assumption about a set": (GOOD, ("set", "--keys", "sequential"), "omit --keys"),
    "independent keys": (GOOD, (LIST_APPEND, "--independent"), "omit --independent"),
    "another format": (GOOD, (LIST_APPEND, "--format", "porcupine"), "is for the formats jepsen-edn, jepsen-json, "),
    "EDN as JSON": (GOOD, (LIST_APPEND, "--format", "jsonl"), "h.edn:1: is not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_check_refuses_other_histories(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, message = BAD[name]
    printed = checked(text, "--model", *options, code=REFUSED, capsys=capsys)
    assert message in printed, printed
