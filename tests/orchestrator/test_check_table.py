"""`brownout check` of many small histories of each kind: pass, fail, unknown or refused."""

import json
import random
from pathlib import Path

import pytest

from analysis.core.model_search import search
from orchestrator.command import line
from tests.analysis.foreign_files import edn, polls, porcupine, sends

PASS, FAIL, UNKNOWN, REFUSED = 0, 1, 2, 64

Events = list[tuple[int, str, str, str]]


def wrote(value: str, *, process: int = 0, answer: str | None = None) -> Events:
    return [(process, "invoke", "write", value), (process, "ok", "write", value if answer is None else answer)]


def read(value: str, *, process: int = 1, asked: str = "nil") -> Events:
    return [(process, "invoke", "read", asked), (process, "ok", "read", value)]


def did(f: str, asked: str, kind: str, answer: str, *, process: int = 0) -> Events:
    return [(process, "invoke", f, asked), (process, kind, f, answer)]


SENT_ONE_REFUSED = did("send", "[[:send :x 1]]", "fail", "[[:send :x 1]]")
SENT_TWO = sends(":x 0 1", ":x 1 2", ":x 2 3")

EDN: dict[str, tuple[Events | str, tuple[str, ...], int, str]] = {
    # registers: equality is that of EDN
    "maps in another order are equal": ([*wrote("{:a 1, :b 2}"), *read("{:b 2, :a 1}")], (), PASS, ""),
    "sets in another order are equal": ([*wrote("#{1 2 3}"), *read("#{3 2 1}")], (), PASS, ""),
    "a list equals a vector": ([*wrote("(1 2 3)"), *read("[1 2 3]")], (), PASS, ""),
    "a nested map in another order is equal": (
        [*wrote("[{:a #{1 2}} 3]", answer="[{:a #{2 1}} 3]"), *read("({:a #{2 1}} 3)")],
        ("--no-independent",),
        PASS,
        "",
    ),
    "an integer is no float": ([*wrote("1"), *read("1.0")], (), FAIL, "register-phantom"),
    "an integer is no boolean": ([*wrote("#{1}"), *read("#{true}")], (), FAIL, "register-phantom"),
    "a text is no keyword": ([*wrote('"a"'), *read(":a")], (), FAIL, "register-phantom"),
    "a character is no text": ([*wrote('"a"'), *read("\\a")], (), FAIL, "register-phantom"),
    "a long integer is the same integer": ([*wrote("1"), *read("1N")], (), PASS, ""),
    "a tag belongs to the value": ([*wrote("#a 1"), *read("#b 1")], (), FAIL, "register-phantom"),
    "an escaped text is the same text": ([*wrote('"A"'), *read('"\\u0041"')], (), PASS, ""),
    "a discarded form is no value": ([*wrote("1"), *read("#_ 7 1")], (), PASS, ""),
    # registers: a completion repeats its invocation
    "a write that fails with a vector for an error": (
        [*did("write", "1", "fail", "[:negative 2 -1]"), *wrote("3"), *read("3")],
        (),
        PASS,
        "",
    ),
    "a write that fails with another value": (did("write", "1", "fail", "2"), (), REFUSED, "the completion of write"),
    "a transfer that fails with a vector for an error": (
        [
            *did("read", "nil", "ok", "{0 5, 1 5}"),
            *did("transfer", "{:from 0, :to 1, :amount 9}", "fail", "[:negative 0 -4]"),
            *did("transfer", "{:from 0, :to 1, :amount 1}", "ok", "{:from 0, :to 1, :amount 1}"),
            *did("read", "nil", "ok", "{0 4, 1 6}"),
        ],
        ("--model", "bank"),
        PASS,
        "",
    ),
    "a transfer that is acknowledged with another value": (
        did("transfer", "{:from 0, :to 1, :amount 9}", "ok", "[:negative 0 -4]"),
        ("--model", "bank"),
        REFUSED,
        "the completion of transfer",
    ),
    "a long fork in reads and writes that are transactions": (
        [
            (0, "invoke", "write", "[[:w 1 1]]"),
            (1, "invoke", "write", "[[:w 2 1]]"),
            *did("read", "[[:r 1 nil] [:r 2 nil]]", "ok", "[[:r 1 1] [:r 2 nil]]", process=2),
            *did("read", "[[:r 2 nil] [:r 1 nil]]", "ok", "[[:r 2 1] [:r 1 nil]]", process=3),
            (0, "ok", "write", "[[:w 1 1]]"),
            (1, "ok", "write", "[[:w 2 1]]"),
        ],
        ("--model", "rw-register", "--consistency-model", "snapshot-isolation"),
        FAIL,
        "G-nonadjacent",
    ),
    "reads and writes in one order that are transactions": (
        [
            *did("write", "[[:w 1 1]]", "ok", "[[:w 1 1]]"),
            *did("read", "[[:r 1 nil] [:r 2 nil]]", "ok", "[[:r 1 1] [:r 2 nil]]", process=2),
            *did("write", "[[:w 2 1]]", "ok", "[[:w 2 1]]"),
            *did("read", "[[:r 2 nil] [:r 1 nil]]", "ok", "[[:r 2 1] [:r 1 1]]", process=3),
        ],
        ("--model", "rw-register"),
        PASS,
        "",
    ),
    "a write that completes with another value": (
        wrote("1", answer="2"),
        (),
        REFUSED,
        "h.edn:2: the completion of write",
    ),
    "a cas that completes with other values": (did("cas", "[1 2]", "ok", "[1 3]"), (), REFUSED, "invoked [1 2]"),
    "a write that completes with another key": (wrote("[:x 1]", answer="[:y 1]"), (), REFUSED, "invoked [:x 1]"),
    "a read that completes with another key": (read("[:y nil]", asked="[:x nil]"), (), REFUSED, "invoked [:x nil]"),
    "a failed write with another value": (did("write", "1", "fail", "2"), (), REFUSED, "has 2"),
    "a read that was invoked with a value": ([*wrote("1"), *read("1", asked="2")], (), REFUSED, "invoked 2"),
    "a completion with an error in place of the value": (
        [*wrote("1"), *did("write", "2", "info", ":timed-out"), *read("1")],
        (),
        PASS,
        "",
    ),
    "a completion in another notation": (wrote("{:a 1, :b 2}", answer="{:b 2, :a 1}"), (), PASS, ""),
    # registers: pairs
    "pairs as values, guessed to be keys": (
        [*wrote("[1 2]"), *wrote("[3 4]"), *read("[1 2]")],
        (),
        REFUSED,
        "--no-independent",
    ),
    "pairs as values": (
        [*wrote("[1 2]"), *wrote("[3 4]"), *read("[1 2]")],
        ("--no-independent",),
        FAIL,
        "stale-register-read",
    ),
    "pairs as keys and values": ([*wrote("[1 2]"), *read("[1 2]", asked="[1 nil]")], ("--independent",), PASS, ""),
    "keys of three types are three keys": (
        [
            *wrote("[0 1]"),
            *wrote('["0" 2]'),
            *wrote("[:0 3]"),
            *read("[0 1]", asked="[0 nil]"),
            *read('["0" 2]', asked='["0" nil]'),
            *read("[:0 3]", asked="[:0 nil]"),
        ],
        (),
        PASS,
        "are one key: they differ",
    ),
    # registers: the initial value
    "an initial value that is not stated": (read("0"), (), FAIL, "register-phantom"),
    "an initial value": ([*read("0"), *did("cas", "[0 1]", "ok", "[0 1]"), *read("1")], ("--initial", "0"), PASS, ""),
    "a register that is not at its initial value": (read("nil"), ("--initial", "0"), FAIL, ""),
    "an initial map": (read("{:b 2, :a 1}"), ("--initial", "{:a 1, :b 2}"), PASS, ""),
    "an initial value of each key": (
        [*read("[:x 0]", asked="[:x nil]"), *read("[:y 0]", asked="[:y nil]")],
        ("--initial", "0"),
        PASS,
        "2 registers",
    ),
    "an initial value without an answer": (did("write", "1", "info", "1"), ("--initial", "0"), UNKNOWN, "no answered"),
    "an initial value that is no EDN": (read("0"), ("--initial", "{"), REFUSED, "--initial {"),
    "a log with an initial value": (SENT_TWO, ("--initial", "0"), REFUSED, "is of a log"),
    # kinds of histories that are not judged
    "a queue": (did("enqueue", "1", "ok", "1"), (), REFUSED, "of a queue: judge it with --model fifo-queue or"),
    "a set": (did("add", "1", "ok", "1"), (), REFUSED, ":f add is of a set or a counter: judge it with --model"),
    "a bank": (did("transfer", "{:from 0}", "ok", "{:from 0}"), (), REFUSED, ":f transfer is of a bank"),
    "a mutex": (did("acquire", "nil", "ok", "nil"), (), REFUSED, ":f acquire is of a mutex"),
    "list-append": (did("txn", "[[:append 1 2]]", "ok", "[[:append 1 2]]"), (), REFUSED, "(list-append)"),
    "rw-register": (did("txn", "[[:w 1 2]]", "ok", "[[:w 1 2]]"), (), REFUSED, "(rw-register)"),
    "an unknown operation": (did("frob", "1", "ok", "1"), (), REFUSED, ":f frob is of no known kind"),
    "the reads of a bank": ([*read("{0 10, 1 20}"), *wrote("1")], (), REFUSED, "the answer is of a bank"),
    "the reads of a set": (read("#{1 2}"), (), REFUSED, "the answer is of a set"),
    # the order of lines
    "an index that falls": (
        edn(*wrote("1")).replace(":index 1", ":index 9") + edn(*read("1")),
        (),
        REFUSED,
        "h.edn:3: :index 0 stands behind",
    ),
    "a time that contradicts the lines": (
        edn(*wrote("1"), *read("1")).replace(":time 2", ":time 0"),
        (),
        UNKNOWN,
        "in line 3 is before :time 1",
    ),
    "times that contradict a stale read": (
        edn(*wrote("1"), *wrote("2"), *read("1")).replace(":time 4", ":time 0"),
        (),
        UNKNOWN,
        "in line 5",
    ),
    "times of two invocations in another order": (
        edn((0, "invoke", "write", "1"), (1, "invoke", "read", "nil"), (0, "ok", "write", "1"), (1, "ok", "read", "1"))
        .replace(":time 0", ":time 1")
        .replace(":index 1, :time 1", ":index 1, :time 0"),
        (),
        PASS,
        "",
    ),
    "a text with a control character and an escape": (
        edn(*wrote('"\x1b[2J\\n"'), *read('"\x1b[2J\\n"')),
        (),
        PASS,
        "",
    ),
    # Knossos
    "one vector of events": (f"; a comment\n[{edn(*wrote('1'), *read('1'))}]", (), PASS, ""),
    "one list of events": (f"({edn(*wrote('1'), *wrote('2'), *read('1'))})", (), FAIL, "stale-register-read"),
    "events over several lines": (edn(*wrote("1"), *read("1")).replace(", ", ",\n  "), (), PASS, ""),
    "several events in a line": (edn(*wrote("1"), *read("1")).replace("\n", " "), (), PASS, ""),
    "a vector that does not end": (f"[{edn(*wrote('1'))}", (), REFUSED, "does not end"),
    "a map with a key twice": ("{:type :invoke, :type :ok, :process 0, :f :read}\n", (), REFUSED, "a key twice"),
    "a closing bracket too many": (f"{edn(*wrote('1'))}]", (), REFUSED, "h.edn:3: is not EDN"),
    # logs: polls of operations that did not succeed
    "a refused send that an unknown poll shows": (
        [*SENT_ONE_REFUSED, *did("poll", "[[:poll]]", "info", "[[:poll {:x [[0 1]]}]]", process=1)],
        (),
        FAIL,
        "aborted-read",
    ),
    "a refused send that a failed transaction shows": (
        [
            *SENT_ONE_REFUSED,
            *did("txn", "[[:poll] [:send :x 9]]", "fail", "[[:poll {:x [[0 1]]}] [:send :x 9]]", process=1),
        ],
        (),
        FAIL,
        "aborted-read",
    ),
    "a phantom in a failed poll": (
        [*SENT_TWO, *did("poll", "[[:poll]]", "fail", "[[:poll {:x [[7 7]]}]]", process=1)],
        (),
        FAIL,
        "phantom",
    ),
    "a skip in a failed poll": (
        [
            *SENT_TWO,
            *did("poll", "[[:poll] [:poll]]", "fail", "[[:poll {:x [[0 1]]}] [:poll {:x [[2 3]]}]]", process=1),
        ],
        (),
        FAIL,
        "poll-skip",
    ),
    "a poll after an unknown one may start anywhere": (
        [
            *SENT_TWO,
            *did("poll", "[[:poll]]", "info", "[[:poll {:x [[0 1]]}]]", process=1),
            *polls("{:x [[0 1] [1 2] [2 3]]}"),
        ],
        (),
        PASS,
        "",
    ),
    "a failed poll with an error in place of its records": (
        [*SENT_TWO, *did("poll", "[[:poll]]", "fail", ":timeout", process=1), *polls("{:x [[0 1] [1 2] [2 3]]}")],
        (),
        PASS,
        "",
    ),
    # logs: a completion repeats its invocation
    "a send that completes with another value": (
        did("send", "[[:send :x 1]]", "ok", "[[:send :x [0 2]]]"),
        (),
        REFUSED,
        "invoked [:send :x 1]",
    ),
    "a send that completes with another key": (
        did("send", "[[:send :x 1]]", "ok", "[[:send :y [0 1]]]"),
        (),
        REFUSED,
        "invoked [:send :x 1]",
    ),
    "a send that completes as a poll": (did("txn", "[[:send :x 1]]", "ok", "[[:poll {}]]"), (), REFUSED, "invoked"),
    "an operation that completes with fewer steps": (
        did("send", "[[:send :x 1] [:send :x 2]]", "ok", "[[:send :x [0 1]]]"),
        (),
        REFUSED,
        "invoked",
    ),
    "an operation that completes with more steps": (
        did("send", "[[:send :x 1]]", "info", "[[:send :x 1] [:send :x 2]]"),
        (),
        REFUSED,
        "invoked",
    ),
    "a pair that is sent": (
        [*did("send", "[[:send :x [1 2]]]", "ok", "[[:send :x [0 [1 2]]]]"), *polls("{:x [[0 (1 2)]]}")],
        (),
        PASS,
        "",
    ),
    "a pair that is sent, without an offset": (
        [*did("send", "[[:send :x [1 2]]]", "ok", "[[:send :x [1 2]]]"), *polls("{:x [[0 [1 2]]]}")],
        (),
        PASS,
        "",
    ),
    # logs: the order of the sends of one operation
    "two sends of an operation in order": (
        [
            *did("send", "[[:send :x 1] [:send :x 2]]", "ok", "[[:send :x [0 1]] [:send :x [1 2]]]"),
            *polls("{:x [[0 1] [1 2]]}"),
        ],
        (),
        PASS,
        "",
    ),
    "two sends of an operation in the wrong order": (
        did("send", "[[:send :x 1] [:send :x 2]]", "ok", "[[:send :x [1 1]] [:send :x [0 2]]]"),
        (),
        FAIL,
        "producer-order",
    ),
    "three sends, the last one first, around another key": (
        did(
            "send",
            "[[:send :x 1] [:send :y 9] [:send :x 2] [:send :x 3]]",
            "ok",
            "[[:send :x [1 1]] [:send :y [0 9]] [:send :x [2 2]] [:send :x [0 3]]]",
        ),
        (),
        FAIL,
        "producer-order: value 3",
    ),
    "sends whose order a poll shows": (
        [
            *did("send", "[[:send :x 1] [:send :x 2]]", "ok", "[[:send :x 1] [:send :x 2]]"),
            *polls("{:x [[0 2] [1 1]]}"),
        ],
        (),
        FAIL,
        "producer-order",
    ),
    "sends of different keys have no order": (
        did("send", "[[:send :x 1] [:send :y 2]]", "ok", "[[:send :x [1 1]] [:send :y [0 2]]]"),
        (),
        PASS,
        "",
    ),
    "keys 0, text 0 and keyword 0": (
        [*sends("0 0 a", '"0" 0 a', ":0 0 a"), *polls('{0 [[0 a]], "0" [[0 a]], :0 [[0 a]]}')],
        (),
        PASS,
        "3 partitions",
    ),
    "a number and the symbol key": (
        [*sends("0 0 a", "key 0 b"), *polls("{0 [[0 a]], key [[0 b]]}")],
        (),
        PASS,
        "2 partitions",
    ),
}


ACQUIRED = did("acquire", "nil", "ok", "nil")
QUEUED = [*did("enqueue", "1", "ok", "1"), *did("enqueue", "2", "ok", "2")]
HEAD_LAST = [*QUEUED, *did("dequeue", "nil", "ok", "2"), *did("dequeue", "nil", "ok", "1")]
MODELS: dict[str, tuple[str, Events | str, tuple[str, ...], int, str]] = {
    "a mutex that is free again": ("mutex", [*ACQUIRED, *did("release", "nil", "ok", "nil"), *ACQUIRED], (), PASS, ""),
    "a mutex that two take": (
        "mutex",
        [*ACQUIRED, *ACQUIRED],
        (),
        FAIL,
        "no order explains acquire of process 0 (line 3)",
    ),
    "a mutex that a lost release may have freed": (
        "mutex",
        [*ACQUIRED, *did("release", "nil", "info", "nil", process=1), *ACQUIRED],
        (),
        PASS,
        "certificate confirmed",
    ),
    "a refused acquire did not happen": ("mutex", [*did("acquire", "nil", "fail", "nil"), *ACQUIRED], (), PASS, ""),
    "a set that loses an element": ("set", [*did("add", "1", "ok", "1"), *read("#{}")], (), FAIL, "the set: no order"),
    "a set as a vector": ("set", [*did("add", "1", "ok", "1"), *read("[1]")], (), PASS, ""),
    "a set that shows a lost add": ("set", [*did("add", "1", "info", "1", process=2), *read("#{1}")], (), PASS, ""),
    "a queue in order": ("fifo-queue", [*QUEUED, *did("dequeue", "nil", "ok", "1")], (), PASS, ""),
    "a queue out of order": ("fifo-queue", HEAD_LAST, (), FAIL, "no order explains dequeue = 2"),
    "a queue without order": ("unordered-queue", HEAD_LAST, (), PASS, ""),
    "a queue that gives an element twice": (
        "unordered-queue",
        [*QUEUED, *did("dequeue", "nil", "ok", "1"), *did("dequeue", "nil", "ok", "1")],
        (),
        FAIL,
        "line 7",
    ),
    "a queue that is said to be empty": ("fifo-queue", [*QUEUED, *did("dequeue", "nil", "ok", "nil")], (), FAIL, "nil"),
    "a counter": ("counter", [*did("add", "2", "ok", "2"), *did("add", "-1", "ok", "-1"), *read("1")], (), PASS, ""),
    "a counter that loses an add": ("counter", [*did("add", "2", "ok", "2"), *read("0")], (), FAIL, "read = 0"),
    "a counter with an initial value": ("counter", read("5"), ("--initial", "5"), PASS, ""),
    "registers read at once": (
        "multi-register",
        [
            *did("txn", "[[:write :x 1] [:w :y 1]]", "ok", "[[:write :x 1] [:w :y 1]]"),
            *did("txn", "[[:read :x nil] [:r :y nil]]", "ok", "[[:read :x 1] [:r :y 1]]"),
        ],
        (),
        PASS,
        "",
    ),
    "registers of which half is read": (
        "multi-register",
        [
            *did("txn", "[[:w :x 1] [:w :y 1]]", "ok", "[[:w :x 1] [:w :y 1]]"),
            *did("txn", "[[:r :x nil] [:r :y nil]]", "ok", "[[:r :x 1] [:r :y 0]]"),
        ],
        ("--initial", "{:x 0 :y 0}"),
        FAIL,
        "not-linearizable",
    ),
    "one txn in a vector around the history": (
        "multi-register",
        f"[{edn(*did('txn', '[[:r :x nil]]', 'ok', '[[:r :x 0]]'))}]",
        ("--initial", "{:x 0}"),
        PASS,
        "",
    ),
    "a key-value log of Porcupine's": (
        "key-value",
        edn(*did("append", '"a"', "ok", '"a"'), *did("get", "nil", "ok", '"b"')).replace(":value", ':key "k", :value'),
        (),
        FAIL,
        'key-value "k": no order explains get = b',
    ),
    "keys as jepsen.independent writes them": (
        "set",
        [*did("add", "[7 1]", "ok", "[7 1]"), *did("read", "[8 nil]", "ok", "[8 #{}]")],
        (),
        PASS,
        "on 2 objects of the model set",
    ),
    "pairs that are no keys": ("fifo-queue", did("enqueue", "[7 1]", "ok", "[7 1]"), ("--no-independent",), PASS, ""),
    "an operation without a key": (
        "set",
        [*did("add", "[7 1]", "ok", "[7 1]"), *did("add", "1", "ok", "1")],
        (),
        REFUSED,
        "say --no-independent",
    ),
    "another key in the completion": ("set", did("add", "[7 1]", "ok", "[8 1]"), (), REFUSED, "invoked [7 1]"),
    "another value in the completion": ("set", did("add", "1", "ok", "2"), (), REFUSED, "invoked 1"),
    "an unknown outcome with an answer": (
        "set",
        [*did("add", "1", "ok", "1"), *did("read", "nil", "info", "#{2}", process=1)],
        (),
        UNKNOWN,
        "line 4 has an answer, but its type is not ok",
    ),
    "an unknown outcome with an error": (
        "set",
        [*did("add", "1", "ok", "1"), *did("read", "nil", "info", ":timeout", process=1)],
        (),
        PASS,
        "",
    ),
    "an unknown outcome with another value": ("set", did("add", "1", "info", "2"), (), REFUSED, "invoked 1"),
    "a read without elements": ("set", read("nil"), (), REFUSED, "nil is not a set"),
    "a read without a number": ("counter", read("nil"), (), REFUSED, "the answer of read is nil"),
    "a txn without steps in its completion": (
        "multi-register",
        did("txn", "[[:w :x 1]]", "ok", "nil"),
        (),
        REFUSED,
        "nil is not a step",
    ),
    "an answer that is missing": (
        "set",
        "{:process 0, :type :invoke, :f :read}\n{:process 0, :type :ok, :f :read}",
        (),
        REFUSED,
        ":value of an answered read is missing",
    ),
    "an operation of another model": (
        "mutex",
        did("add", "1", "ok", "1"),
        (),
        REFUSED,
        "the model mutex has only the operations acquire, release",
    ),
    "a value of another model": (
        "counter",
        did("add", ":a", "ok", ":a"),
        (),
        REFUSED,
        "h.edn:2: the argument of add is :a",
    ),
    "an initial value of another model": ("counter", read("1"), ("--initial", ":a"), REFUSED, "--initial :a"),
    "an initial value of a mutex": ("mutex", ACQUIRED, ("--initial", "1"), REFUSED, "leave it out"),
    "nothing was answered": ("mutex", did("acquire", "nil", "info", "nil"), (), UNKNOWN, "no answered operation"),
    "no operation": ("mutex", "", (), REFUSED, "has no operation of a client"),
    "times against the order of lines": (
        "counter",
        edn(*read("0")).replace(":time 0", ":time 9"),
        (),
        UNKNOWN,
        "the order of operations is not known",
    ),
    "a search that ends with its budget": ("fifo-queue", HEAD_LAST[:6], ("--budget", "1"), UNKNOWN, "(--budget)"),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def require(
    name: str, text: str, options: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text)
    was = line.main(["check", name, *options])
    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert (was, message in printed) == (code, True), printed


@pytest.mark.parametrize("name", EDN)
def test_check_decides_histories_in_edn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    history, options, code, message = EDN[name]
    require("h.edn", history if isinstance(history, str) else edn(*history), options, code, message, capsys)


@pytest.mark.parametrize("name", MODELS)
def test_check_decides_histories_of_models(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model, history, options, code, message = MODELS[name]
    text = history if isinstance(history, str) else edn(*history)
    require("h.edn", text, ("--model", model, *options), code, message, capsys)


def test_a_model_is_for_histories_in_edn(capsys: pytest.CaptureFixture[str]) -> None:
    require("h.log", porcupine("0 invoke write 1"), ("--model", "set"), REFUSED, "--format jepsen-edn", capsys)


def test_the_certificate_of_a_model_is_compared_with_the_operations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The search is not trusted: its order is read back and replayed."""
    monkeypatch.setattr("analysis.core.object_judgement.search", lambda *given: list(reversed(search(*given) or [])))
    options = ("--model", "fifo-queue")
    require("h.edn", edn(*QUEUED), options, UNKNOWN, "the verifier refused the certificate: the order of", capsys)


PORCUPINE: dict[str, tuple[tuple[str, ...], tuple[str, ...], int, str]] = {
    "a compare-and-set that found another value": (
        ("0 invoke write 1", "0 ok write 1", "1 invoke cas [1 2]", "1 fail cas [1 2]"),
        (),
        FAIL,
        "reported a mismatch",
    ),
    "a refused compare-and-set": (
        (
            "0 invoke write 1",
            "0 ok write 1",
            "1 invoke cas [1 2]",
            "1 fail cas :connection-refused",
            "0 invoke read nil",
            "0 ok read 1",
        ),
        (),
        PASS,
        "",
    ),
    "a failed compare-and-set with other values": (
        ("0 invoke cas [1 2]", "0 fail cas [1 3]"),
        (),
        REFUSED,
        "invoked [1 2]",
    ),
    "a write that completes with another value": (("0 invoke write 1", "0 ok write 2"), (), REFUSED, "invoked 1"),
    "an initial value": (("0 invoke read nil", "0 ok read 5"), ("--initial", "5"), PASS, ""),
    "an initial value that is no integer": (
        ("0 invoke read nil", "0 ok read 5"),
        ("--initial", ":a"),
        REFUSED,
        "integers",
    ),
    "keys of independent registers": (("0 invoke read nil", "0 ok read 5"), ("--independent",), REFUSED, "jepsen-edn"),
    "a queue": (("0 invoke enqueue 1", "0 ok enqueue 1"), (), REFUSED, "the operation enqueue is of a queue"),
}


@pytest.mark.parametrize("name", PORCUPINE)
def test_check_decides_histories_of_porcupine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    events, options, code, message = PORCUPINE[name]
    require("h.log", porcupine(*events), options, code, message, capsys)


def append(value: int, offset: int, at: int) -> dict[str, object]:
    times = {"inv": at, "ret": at + 1}
    return {"f": "append", "type": "ok", "topic": "t", "partition": 0, "value": value, "offset": offset, **times}


def reads(start: int, *records: tuple[int, int], at: int = 90, **more: int) -> dict[str, object]:
    times = {"inv": at, "ret": at + 1}
    return {"f": "read", "type": "ok", "topic": "t", "partition": 0, "from": start, "records": records, **times, **more}


def absent(why: str, first: int, last: int | None = None, **more: object) -> dict[str, object]:
    end = {} if last is None else {"last": last}
    return {"absent": why, "topic": "t", "partition": 0, "first": first, **end, **more}


def on_register(f: str, value: int | None, at: int) -> dict[str, object]:
    return {"f": f, "type": "ok", "key": "k", "value": value, "inv": at, "ret": at + 1}


SPARSE = [append(0, 0, 1), append(1, 2, 3)]
FOUR = [append(number, number, 2 * number) for number in range(4)]

JSONL: dict[str, tuple[list[dict[str, object]], tuple[str, ...], int, str]] = {
    "a marker that is not stated": ([*SPARSE, reads(0, (0, 0), (2, 1))], (), FAIL, "gap"),
    "a marker": ([*SPARSE, reads(0, (0, 0), (2, 1)), absent("marker", 1)], (), PASS, "to be absent"),
    "a marker at another offset": ([*SPARSE, reads(0, (0, 0), (2, 1)), absent("marker", 3)], (), FAIL, "gap"),
    "a marker of another partition": (
        [*SPARSE, reads(0, (0, 0), (2, 1)), {**absent("marker", 1), "partition": 1}],
        (),
        FAIL,
        "gap",
    ),
    "a marker where a record is": ([*FOUR, absent("marker", 1)], (), REFUSED, "offset 1 of t-0 is stated as a marker"),
    "a marker at the end of the log": (
        [
            *FOUR,
            {"f": "end", "type": "ok", "topic": "t", "partition": 0, "end": 5, "inv": 80, "ret": 81},
            absent("marker", 4),
        ],
        (),
        PASS,
        "",
    ),
    "a read that starts at a marker": ([*SPARSE, reads(1, (2, 1)), absent("marker", 1)], (), PASS, ""),
    "a read that skips a record beside a marker": (
        [*SPARSE, reads(0, (2, 1)), absent("marker", 1)],
        (),
        FAIL,
        "poll-skip",
    ),
    "a read of a compacted log": ([*FOUR, reads(0, (0, 0), (3, 3)), absent("compacted", 1, 2)], (), PASS, ""),
    "a read that starts in compacted records": (
        [*FOUR, reads(0, (2, 2), (3, 3)), absent("compacted", 0, 1)],
        (),
        PASS,
        "",
    ),
    "a read of records before they were compacted": (
        [*FOUR, reads(0, (0, 0), (1, 1), (2, 2), (3, 3)), absent("compacted", 0, 2)],
        (),
        PASS,
        "",
    ),
    "a read that skips more than was compacted": (
        [*FOUR, reads(0, (0, 0), (3, 3)), absent("compacted", 1)],
        (),
        FAIL,
        "poll-skip",
    ),
    "a wrong value behind compacted records": (
        [*FOUR, reads(0, (0, 0), (3, 7)), absent("compacted", 1, 2)],
        (),
        FAIL,
        "shows value 7 there",
    ),
    "markers and compacted records": (
        [
            append(0, 0, 1),
            append(1, 1, 3),
            append(2, 3, 5),
            reads(0, (0, 0), (3, 2)),
            absent("compacted", 1),
            absent("marker", 2),
        ],
        (),
        PASS,
        "",
    ),
    "compacted records that nobody appended": (
        [append(9, 5, 1), reads(0, (5, 9)), absent("compacted", 0, 4)],
        (),
        PASS,
        "",
    ),
    "absent offsets without a place": (
        [*FOUR, {"absent": "marker", "first": 1}],
        (),
        REFUSED,
        'h.jsonl:5: "topic" is missing',
    ),
    "absent offsets of an unknown reason": (
        [*FOUR, absent("lost", 1)],
        (),
        REFUSED,
        'neither "marker" nor "compacted"',
    ),
    "absent offsets that end before they start": ([*FOUR, absent("marker", 5, 4)], (), REFUSED, "is below"),
    "absent offsets with another field": ([*FOUR, absent("marker", 5, f="x")], (), REFUSED, "is not a field"),
    "absent offsets of registers": (
        [on_register("read", None, 0), absent("marker", 5)],
        (),
        REFUSED,
        "registers do not have",
    ),
    "an initial value": (
        [on_register("read", 5, 0), on_register("write", 6, 2), on_register("read", 6, 4)],
        ("--initial", "5"),
        PASS,
        "",
    ),
    "a read that returns to the initial value": (
        [on_register("write", 6, 2), on_register("read", 5, 4)],
        ("--initial", "5"),
        FAIL,
        "",
    ),
    "a log with an initial value": (FOUR, ("--initial", "5"), REFUSED, "no initial value"),
    "a queue": (
        [{"f": "enqueue", "type": "ok", "value": 1, "inv": 1, "ret": 2}],
        (),
        REFUSED,
        '"f" enqueue is of a queue',
    ),
}


@pytest.mark.parametrize("name", JSONL)
def test_check_decides_histories_in_json_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines, options, code, message = JSONL[name]
    require("h.jsonl", "".join(f"{json.dumps(each)}\n" for each in lines), options, code, message, capsys)


def _notations(value: object, generator: random.Random) -> str:
    """A value as EDN, in one of its notations."""
    if isinstance(value, dict):
        items = [f"{_notations(key, generator)} {_notations(each, generator)}" for key, each in value.items()]
        generator.shuffle(items)
        return "{" + ", ".join(items) + "}"
    if isinstance(value, frozenset):
        items = [_notations(each, generator) for each in value]
        generator.shuffle(items)
        return "#{" + " ".join(items) + "}"
    if isinstance(value, tuple):
        opened, closed = generator.choice(("[]", "()"))
        return f"{opened}{' '.join(_notations(each, generator) for each in value)}{closed}"
    return f"{value}{generator.choice(('', 'N'))}"


def _value(generator: random.Random, depth: int = 2) -> object:
    kind = generator.randrange(4 if depth else 1)
    parts = [_value(generator, depth - 1) for _ in range(generator.randrange(3))] if kind else []
    if kind == 1:
        return tuple(parts)
    if kind == 2:
        return frozenset(parts) if all(isinstance(each, int) for each in parts) else tuple(parts)
    return dict(enumerate(parts)) if kind else generator.randrange(5)


@pytest.mark.parametrize("seed", range(25))
def test_check_compares_values_as_edn_does(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Operations one after another, each value in another notation; in half of the histories one read is stale."""
    generator = random.Random(seed)
    events, state = [], None
    for _ in range(12):
        if state is None or generator.random() < 0.5:
            state = _value(generator)
            text = _notations(state, generator), _notations(state, generator)
            events += wrote(text[0], answer=text[1])
        else:
            events += read(_notations(state, generator))
    is_wrong = seed % 2 == 1
    if is_wrong:
        events += [*wrote('"last"'), *read(_notations(state, generator))]
    require("h.edn", edn(*events), ("--no-independent",), FAIL if is_wrong else PASS, "", capsys)
