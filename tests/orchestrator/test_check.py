"""`brownout check`: histories that Brownout did not record, from the file to the exit code."""

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.verifiers.log import verify
from analysis.verifiers.register import verify_registers
from history.foreign import porcupine as porcupine_log
from history.foreign.history import ForeignHistory
from orchestrator.command import line
from tests.analysis.foreign_files import edn, polls, porcupine, sends

READS_WHAT_WAS_WRITTEN = porcupine("0 invoke write 1", "0 ok write 1", "1 invoke read nil", "1 ok read 1")
READS_WHAT_IS_GONE = porcupine(
    *("0 invoke write 1", "0 ok write 1", "0 invoke write 2", "0 ok write 2"),
    *("1 invoke read nil", "1 ok read 1"),
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("checks", name, "result.json").read_text())
    return content


def check(text: str, name: str, *options: str) -> int:
    Path(name).write_text(text)
    return line.main(["check", name, *options])


def test_a_linearizable_register_has_a_certificate_that_the_verifier_confirms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check(READS_WHAT_WAS_WRITTEN, "h.log") == 0
    printed = capsys.readouterr().out
    assert "linearizable: 2 operations on 1 register" in printed
    assert "these operations only; completeness, faults and replicas were not judged" in printed
    assert "2 operations" in verify_registers(Path("checks/h/certificate"), Path("checks/h"))


def test_a_contradiction_is_named_with_the_files_values_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(READS_WHAT_IS_GONE, "h.log") == 1
    assert "process 1 read register = 1" in capsys.readouterr().out
    assert result("h")["verdict"] == "fail"
    assert Path("checks/h/anomaly-0.png").read_bytes().startswith(b"\x89PNG")
    assert not Path("checks/h/certificate").exists()


@pytest.mark.parametrize("history", [READS_WHAT_WAS_WRITTEN, READS_WHAT_IS_GONE], ids=["passes", "fails"])
def test_worker_processes_give_a_register_the_same_result(monkeypatch: pytest.MonkeyPatch, history: str) -> None:
    here = check(history, "h.log"), result("h")
    monkeypatch.setattr("analysis.engines.task_map.ROWS_FOR_PROCESSES", 0)
    assert (check(history, "h.log"), result("h")) == here


def test_values_that_repeat_are_decided() -> None:
    back = porcupine(
        *("0 invoke write 1", "0 ok write 1", "0 invoke write 2", "0 ok write 2", "0 invoke write 1", "0 ok write 1"),
        *("1 invoke read nil", "1 ok read 1", "1 invoke cas [1 1]", "1 ok cas [1 1]"),
    )
    assert check(back, "back.log") == 0
    assert check(back.replace(":ok\t:read\t1", ":ok\t:read\t2"), "wrong.log") == 1
    assert result("wrong")["anomalies"][0]["name"] == "stale-register-read"


def test_a_failed_cas_returns_a_value_in_porcupine_logs_but_not_in_jepsen_logs() -> None:
    events = ["0 invoke write 1", "0 ok write 1", "0 invoke cas [1 2]", "0 fail cas [1 2]"]
    assert check(porcupine(*events), "h.log") == 1
    of_jepsen = [tuple(event.split(" ", 3)[1:]) for event in events]
    assert check(edn(*[(0, kind, f, value) for kind, f, value in of_jepsen]), "h.edn") == 0


def test_a_search_that_exceeds_its_budget_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    writes = [f"{process} invoke write {process % 3}" for process in range(9)]
    ends = [f"{process} ok write {process % 3}" for process in range(9)]
    reads = [text for value in "0120" for text in ("9 invoke read nil", f"9 ok read {value}")]
    assert check(porcupine(*writes, *reads, *ends), "h.log", "--budget", "1") == 2
    assert "could not be decided" in capsys.readouterr().out


@pytest.mark.parametrize("tag", ["", "#jepsen.history.Op"])
def test_independent_registers_of_jepsen_are_keys(tag: str) -> None:
    events = [
        (0, "invoke", "write", "[:x 1]"),
        (0, "ok", "write", "[:x 1]"),
        (1, "invoke", "cas", "[:x [1 3]]"),
        (1, "ok", "cas", "[:x [1 3]]"),
        (2, "invoke", "read", '["y" nil]'),
        (2, "ok", "read", '["y" nil]'),
        (3, "invoke", "write", "[:x :gone]"),
        (3, "info", "write", "[:x :gone]"),
    ]
    assert check(edn(*events, tag=tag), "h.edn") == 0
    assert "on 2 registers" in result("h")["sentence"]
    seen = [*events, (4, "invoke", "read", "[:x nil]"), (4, "ok", "read", "[:x :never]")]
    assert check(edn(*seen, tag=tag), "h.edn") == 1
    assert "read :x = :never" in result("h")["anomalies"][0]["sentence"]


def test_a_log_of_jepsens_kafka_test_has_a_certificate_that_the_verifier_confirms() -> None:
    history = edn(*sends("3 0 a", "3 1 b", "4 7 c"), *polls("{3 [[0 a] [1 b]]}", "{4 [[7 c]]}"))
    assert check(history, "h.edn") == 0
    assert verify(Path("checks/h/certificate"), Path("checks/h")) == result("h")["certified"]
    assert result("h")["certified"].startswith("5 operations are linearizable")


KAFKA = {
    "an aborted read": (
        [(0, "invoke", "send", "[[:send 1 a]]"), (0, "fail", "send", "[[:send 1 a]]"), *polls("{1 [[0 a]]}")],
        "aborted-read",
    ),
    "two values at one offset": ([*sends("11 537 641", "11 537 645")], "offset-mismatch"),
    "a value at two offsets": ([*sends("1 0 a", "1 1 b"), *polls("{1 [[0 a] [1 b] [2 a]]}")], "duplicate"),
    "a poll that skips a record": (
        [*sends("1 0 a", "1 1 b", "1 2 c"), *polls("{1 [[0 a]]}", "{1 [[2 c]]}")],
        "poll-skip",
    ),
    "a poll that goes back": (
        [*sends("1 0 a", "1 1 b", "1 2 c"), *polls("{1 [[0 a] [1 b]]}", "{1 [[1 b] [2 c]]}")],
        "poll-regression",
    ),
    "sends out of order": ([*sends("1 1 a", "1 0 b"), *polls("{1 [[0 b] [1 a]]}")], "append-reorder"),
    "a transaction that one of its values shows to have happened": (
        [
            (0, "invoke", "send", "[[:send 1 a] [:send 2 b]]"),
            (0, "info", "send", "[[:send 1 [0 a]] [:send 2 b]]"),
            *sends("1 0 c", process=2),
            *polls("{2 [[5 b]]}"),
        ],
        "offset-mismatch",
    ),
    "a poll from the start that lacks an acknowledged record": (
        [
            *sends("1 0 a", "1 1 b"),
            (1, "invoke", "assign", "[1], :seek-to-beginning? true"),
            (1, "ok", "assign", "[1], :seek-to-beginning? true"),
            *polls("{1 [[1 b]]}"),
        ],
        "poll-skip",
    ),
}


@pytest.mark.parametrize("name", KAFKA)
def test_an_anomaly_of_a_log_is_found(name: str) -> None:
    events, anomaly = KAFKA[name]
    assert check(edn(*events), "h.edn") == 1
    assert anomaly in [each["name"] for each in result("h")["anomalies"]]


NO_ANOMALY = {
    "offsets that markers of transactions have": [*sends("1 0 a", "1 3 b"), *polls("{1 [[0 a] [3 b]]}")],
    "a consumer that the service moved": [
        *sends("1 0 a", "1 1 b"),
        (1, "invoke", "subscribe", "[1]"),
        (1, "ok", "subscribe", "[1]"),
        *polls("{1 [[0 a] [1 b]]}", "{1 [[0 a]]}"),
    ],
    "a transaction that failed and was polled again": [
        *sends("1 0 a", "1 1 b"),
        *polls("{1 [[0 a]]}"),
        (1, "invoke", "txn", "[[:poll]]"),
        (1, "fail", "txn", "[[:poll {1 [[1 b]]}]]"),
        *polls("{1 [[1 b]]}"),
    ],
    "an offset of a transaction that may not have happened": [
        (0, "invoke", "send", "[[:send 1 a]]"),
        (0, "info", "send", "[[:send 1 [0 a]]]"),
        *sends("1 0 c", process=2),
        *polls("{1 [[0 c]]}"),
    ],
}


@pytest.mark.parametrize("name", NO_ANOMALY)
def test_no_anomaly_is_made_of(name: str) -> None:
    assert check(edn(*NO_ANOMALY[name]), "h.edn") == 0, result("h")


def test_a_record_that_no_poll_returned_leaves_a_doubt() -> None:
    """Jepsen calls it lost, if its consumers together read the whole log: the history does not show that they did."""
    assert check(edn(*sends("1 0 a", "1 1 b", "1 2 c"), *polls("{1 [[2 c]]}")), "h.edn") == 2
    assert "no poll returned a at offset 0, b at offset 1" in result("h")["doubts"][0]


def test_json_lines_are_the_clients_of_one_history() -> None:
    Path("a.jsonl").write_text(
        '{"f": "append", "topic": "t", "partition": 0, "value": 0, "type": "ok", "inv": 1, "ret": 2, "offset": 0}\n'
        '{"f": "append", "topic": "t", "partition": 0, "value": 1, "type": "ok", "inv": 3, "ret": 4, "offset": 1}\n'
    )
    reads = '{"f": "read", "topic": "t", "partition": 0, "from": 0, "records": %s, "type": "ok", "inv": 5, "ret": 6}\n'
    Path("b.jsonl").write_text(reads % "[[0, 0], [1, 1]]")
    assert line.main(["check", "a.jsonl", "b.jsonl"]) == 0
    assert result("a")["certified"].startswith("3 operations")
    Path("b.jsonl").write_text(reads % "[[0, 0], [1, 7]]")
    assert line.main(["check", "a.jsonl", "b.jsonl"]) == 1
    assert "value 7" in json.dumps(result("a")["anomalies"])


def test_json_lines_by_a_wall_clock_are_placed() -> None:
    wall = 1_790_000_000_000_000_000
    lines = (
        '{"clock": "wall", "error_ns": 0}\n'
        f'{{"f": "write", "key": "k", "value": 1, "type": "ok", "inv": {wall}, "ret": {wall + 5}}}\n'
        f'{{"f": "write", "key": "k", "value": 1, "type": "ok", "inv": {wall + 7}, "ret": {wall + 9}}}\n'
    )
    assert check(lines, "w.jsonl") == 0
    Path("m.jsonl").write_text('{"f": "read", "key": "k", "value": 1, "type": "ok", "inv": 1, "ret": 2}\n')
    assert line.main(["check", "w.jsonl", "m.jsonl"]) == 64


BAD = {
    "no format": ("h.txt", "", "name it with --format"),
    "no event": ("h.log", "hello\n", "h.log:1: is not an event of such a log"),
    "a completion without its invocation": ("h.log", porcupine("3 ok read 1"), "h.log:1: process 3 completes"),
    "a process with two operations": (
        "h.log",
        porcupine("3 invoke read nil", "3 invoke read nil"),
        "h.log:2: process 3 invokes an operation while that of line 1 is not completed",
    ),
    "an operation of another model": ("h.log", porcupine("3 invoke push 1"), "h.log:1: the operation push"),
    "no text": ("h.log", "\udcff\n", "h.log:1: is not text in UTF-8"),
    "a torn line": ("h.edn", edn((0, "invoke", "read", "nil")) + "{:type :ok, :f :re", "h.edn:2: is not EDN"),
    "no operation": ("h.edn", "{:type :ok}\n", "h.edn:1: is not an operation"),
    "no client": ("h.edn", "", "h.edn: has no operation of a client"),
    "registers and logs": (
        "h.edn",
        edn((0, "invoke", "read", "nil"), (0, "ok", "read", "nil"), (1, "invoke", "poll", "[[:poll]]")),
        "h.edn:3: :f poll in a history of registers",
    ),
    "a value sent twice": ("h.edn", edn(*sends("1 0 a", "1 1 a")), "h.edn:3: a was sent to 1 before, in line 1"),
    "a defect of JSON lines": ("h.jsonl", '{"f": "reed"}\n', 'h.jsonl:1: "f" is "reed"'),
    "a client whose process is text": (
        "h.edn",
        edn((0, "invoke", "read", "nil"), (0, "ok", "read", "nil")).replace(":process 0", ':process "0"'),
        'h.edn:1: :process "0" is neither the number of a client',
    ),
    "a client whose process is a fraction": (
        "h.edn",
        edn((0, "invoke", "read", "nil"), (0, "ok", "read", "nil")).replace(":process 0", ":process 0.0"),
        "h.edn:1: :process 0.0 is neither the number of a client",
    ),
    "a negative process": ("h.edn", edn((-1, "invoke", "read", "nil")), "h.edn:1: the process -1 is not a number in 0"),
    "an answer without its value": (
        "h.edn",
        edn((0, "invoke", "read", "nil"), (0, "ok", "read", "nil")).replace(
            "ok, :process 0, :f :read, :value nil", "ok, :process 0, :f :read"
        ),
        "h.edn:2: :value of an answered read is missing",
    ),
    "half a character": (
        "h.edn",
        edn((0, "invoke", "write", r'"\ud800"'), (0, "ok", "write", r'"\ud800"')),
        "h.edn:1: is not EDN (it has an escape in",
    ),
    "a worker of a log without a number": ("h.log", porcupine("w1 invoke write 1"), "h.log:1: is not an event of such"),
    "a negative worker of a log": ("h.log", porcupine("-1 invoke write 1"), "h.log:1: is not an event of such a log"),
    "a worker of a log with a large number": (
        "h.log",
        porcupine("9999999999 invoke write 1"),
        "h.log:1: the process 99",
    ),
    "an answer of a log without its value": (
        "h.log",
        porcupine("3 invoke read nil", "3 ok read "),
        "h.log:2: the value of an answered read is missing",
    ),
    "an empty file": ("h.jsonl", "", "has no operation of a client"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_file_line_and_remedy(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file, text, message = BAD[name]
    Path(file).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert line.main(["check", file]) == 64
    assert message in capsys.readouterr().err
    assert not Path("checks").exists() or os.listdir("checks") == []


def test_other_histories_are_checked_beside_a_bad_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.log").write_text("hello\n")
    Path("good.log").write_text(READS_WHAT_WAS_WRITTEN)
    assert line.main(["check", "bad.log", "good.log", "missing.log"]) == 64
    printed = capsys.readouterr()
    assert "bad.log:1" in printed.err
    assert "missing.log: cannot be read" in printed.err
    assert result("good")["verdict"] == "pass"


def test_a_pipe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h.log", "h.edn", "h.jsonl"):
        os.mkfifo(name)
        assert line.main(["check", name]) == 64
        assert "h." in capsys.readouterr().err


def test_standard_input_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert line.main(["check", "-", "--format", "jepsen-edn"]) == 64
    assert "-: standard input is not read; name a file" in capsys.readouterr().err


def test_without_files_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert line.main(["check"]) == 64
    assert "FILE" in capsys.readouterr().err


def test_a_directory_that_no_check_made_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("checks/h").mkdir(parents=True)
    Path("checks/h/mine").write_text("x")
    assert check(READS_WHAT_WAS_WRITTEN, "h.log") == 64
    assert "checks/h exists and is not the result of a check" in capsys.readouterr().err
    assert Path("checks/h/mine").read_text() == "x"


def test_an_interrupted_check_keeps_the_earlier_result(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(READS_WHAT_WAS_WRITTEN, "h.log") == 0
    before = result("h")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("analysis.foreign.judgement._plots", interrupted)
    assert check(READS_WHAT_IS_GONE, "h.log") == 130
    assert result("h") == before
    assert os.listdir("checks") == ["h"]


def test_the_draft_of_a_killed_check_is_removed_by_the_next_one() -> None:
    Path("checks/.h.4711/tables").mkdir(parents=True)
    Path("checks/.h.4712").mkdir()
    running = os.open("checks/.h.4712", os.O_RDONLY)
    fcntl.flock(running, fcntl.LOCK_EX)
    assert check(READS_WHAT_WAS_WRITTEN, "h.log") == 0
    os.close(running)
    assert sorted(os.listdir("checks")) == [".h.4712", "h"]


def grows(path: Path) -> None:
    with path.open("a") as file:
        file.write(porcupine("1 invoke read nil", "1 ok read 7"))


@pytest.mark.parametrize("changes", [grows, Path.unlink])
def test_a_file_that_changes_during_the_check_is_refused(
    changes: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = porcupine_log.read

    def reads_then_changes(path: Path, directory: Path, **options: Any) -> ForeignHistory:
        history = read(path, directory, **options)
        changes(path)
        return history

    monkeypatch.setattr(porcupine_log, "read", reads_then_changes)
    assert check(READS_WHAT_WAS_WRITTEN, "h.log") == 64
    assert "h.log: changed while it was read" in capsys.readouterr().err
    assert os.listdir("checks") == []


def test_histories_of_one_name_have_a_directory_each() -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "h.log").write_text(READS_WHAT_WAS_WRITTEN)
    assert line.main(["check", "a/h.log", "b/h.log", "--json"]) == 0
    assert sorted(os.listdir("checks")) == ["h", "h-2"]


@pytest.mark.parametrize(
    "text", ["", "INFO  jepsen.util - :nemesis :info :start nil\n", porcupine("0 invoke read nil")]
)
def test_a_register_history_without_operations_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(text, "h.log") == 64
    assert "h.log: has no operation" in capsys.readouterr().err


def test_registers_without_an_answer_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(porcupine("0 invoke write 1", "0 info write :timed-out"), "h.log") == 2
    assert "no answered operation" in capsys.readouterr().out


def test_a_log_without_an_answer_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    append = '{"f": "append", "topic": "log", "partition": 0, "value": 3, "type": "info", "inv": 3}\n'
    assert check(append, "h.jsonl") == 2
    assert "no answered operation" in capsys.readouterr().out


def test_a_mark_of_the_byte_order_is_skipped() -> None:
    assert check(f"\ufeff{READS_WHAT_WAS_WRITTEN}", "h.log") == 0
    assert check("\ufeff" + edn(*sends("1 0 a")), "h.edn") == 0


def test_an_escaped_backslash_before_a_number_is_accepted() -> None:
    assert (
        check(edn((0, "invoke", "write", r'"\\ud800 \u00fc"'), (0, "ok", "write", r'"\\ud800 \u00fc"')), "h.edn") == 0
    )


def test_a_value_that_is_nested_too_deep_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    value = "[" * 5000 + "1" + "]" * 5000
    assert check(f"{{:type :invoke, :f :write, :value {value}, :process 0}}\n", "h.edn") == 64
    assert "h.edn:1: is not EDN (a value is nested too deep" in capsys.readouterr().err


def test_a_directory_with_the_result_of_another_program_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("checks/h").mkdir(parents=True)
    Path("checks/h/result.json").write_text('{"mine": 1}')
    assert check(READS_WHAT_WAS_WRITTEN, "h.log") == 64
    assert "is not the result of a check" in capsys.readouterr().err
    assert Path("checks/h/result.json").read_text() == '{"mine": 1}'


def test_the_result_is_never_outside_of_the_given_directory() -> None:
    assert check(READS_WHAT_WAS_WRITTEN, "...log") == 0
    assert result("history")["verdict"] == "pass"


def test_a_name_that_is_not_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(READS_WHAT_WAS_WRITTEN, os.fsdecode(b"h\xff.log")) == 64
    assert "is not text in UTF-8; rename it" in capsys.readouterr().err


def test_a_defect_of_json_lines_names_the_file_as_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("{\n", "h.jsonl") == 64
    assert "brownout: h.jsonl:1: not JSON" in capsys.readouterr().err
