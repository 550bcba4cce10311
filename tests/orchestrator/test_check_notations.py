"""`brownout check` of one history in each notation of Jepsen's, and of stores of Maelstrom."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.foreign.edn import FormMap, Keyword, form_of, plain_map, text_of
from history.foreign.events import TYPES, Event
from history.foreign.jepsen_events import events_of
from history.foreign.kinds import EDN, JSON, TEXT
from orchestrator.command import line

PASS, FAIL, UNKNOWN, REFUSED = 0, 1, 2, 64
Row = tuple[int | str, str, str, Any]
"""Process, type, operation and value; a text in a value is a keyword."""

MODELS: dict[str, tuple[list[Row], Any, Any]] = {
    "register": ([(0, "invoke", "write", 1), (0, "ok", "write", 1), (1, "invoke", "read", None)], 1, None),
    "cas-register": ([(0, "invoke", "cas", [None, 1]), (0, "ok", "cas", [None, 1]), (1, "invoke", "read", None)], 1, 2),
    "log": (
        [
            *((0, "invoke", "send", [["send", 5, 7]]), (0, "ok", "send", [["send", 5, [0, 7]]])),
            *((1, "invoke", "assign", [5]), (1, "ok", "assign", [5]), (1, "invoke", "poll", [["poll"]])),
        ],
        [["poll", {5: [[0, 7]]}]],
        [["poll", {5: [[0, 8]]}]],
    ),
    "set": ([(0, "invoke", "add", 1), (0, "ok", "add", 1), (1, "invoke", "read", None)], [1], []),
    "counter": ([(0, "invoke", "add", 3), (0, "info", "add", None), (1, "invoke", "read", None)], 3, 2),
    "fifo-queue": (
        [
            *((0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1), (0, "invoke", "enqueue", 2)),
            *((0, "ok", "enqueue", 2), (1, "invoke", "dequeue", None)),
        ],
        1,
        2,
    ),
    "multi-register": (
        [(0, "invoke", "txn", [["w", 1, 2]]), (0, "ok", "txn", [["w", 1, 2]]), (1, "invoke", "txn", [["r", 1, None]])],
        [["r", 1, 2]],
        [["r", 1, 3]],
    ),
    "list-append": (
        [
            *((0, "invoke", "txn", [["append", 1, 2]]), (0, "ok", "txn", [["append", 1, 2]])),
            (1, "invoke", "txn", [["r", 1, None]]),
        ],
        [["r", 1, [2]]],
        [["r", 1, []]],
    ),
    "rw-register": (
        [(0, "invoke", "txn", [["w", 1, 2]]), (0, "ok", "txn", [["w", 1, 2]]), (1, "invoke", "txn", [["r", 1, None]])],
        [["r", 1, 2]],
        [["r", 1, None]],
    ),
    "set-full": (
        [(0, "invoke", "add", 1), (0, "ok", "add", 1), (1, "invoke", "read", None)],
        [1],
        [],
    ),
    "total-queue": (
        [(0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1), (1, "invoke", "drain", None)],
        [1],
        [],
    ),
    "counter-bounds": ([(0, "invoke", "add", 1), (0, "ok", "add", 1), (1, "invoke", "read", None)], 1, 0),
    "eventual-counter": ([(0, "invoke", "add", 1), (0, "ok", "add", 1), (1, "invoke", "read", None)], 1, 2),
    "bank": (
        [
            *((0, "invoke", "read", None), (0, "ok", "read", {0: 5, 1: 5})),
            *((0, "invoke", "transfer", {"amount": 5}), (0, "ok", "transfer", {"amount": 5})),
            (1, "invoke", "read", None),
        ],
        {0: 0, 1: 10},
        {0: 0, 1: 5},
    ),
    "unique-ids": (
        [(0, "invoke", "generate", None), (0, "ok", "generate", 1), (1, "invoke", "generate", None)],
        2,
        1,
    ),
    "echo": ([(1, "invoke", "echo", 7)], {"echo": 7}, {"echo": 8}),
}
"""By model: the first events of a history, and the answer to the last of them with which it passes or fails."""
TAKEN_TWICE: list[Row] = [
    *((0, "invoke", "acquire", None), (0, "ok", "acquire", None)),
    *((1, "invoke", "acquire", None), (1, "ok", "acquire", None)),
]
NEMESIS: Row = ("nemesis", "info", "start-partition", None)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def with_answer(rows: list[Row], answer: Any) -> list[Row]:
    process, _, f, _ = rows[-1]
    return [NEMESIS, *rows, (process, "ok", f, answer)]


def form(value: Any) -> Any:
    if isinstance(value, list):
        return [form(element) for element in value]
    if isinstance(value, dict):
        return FormMap({text_of(key): (key, form(element)) for key, element in value.items()})
    return Keyword(value) if isinstance(value, str) else value


def written(rows: list[Row], notation: str) -> str:
    """The rows in a notation: a line for each event."""
    lines = []
    for process, kind, f, value in rows:
        name = process if isinstance(process, int) else f":{process}"
        if notation == EDN:
            lines.append(f"{{:process {name}, :type :{kind}, :f :{f}, :value {text_of(form(value))}}}")
        elif notation == TEXT:
            lines.append(f"{name}\t:{kind}\t:{f}\t{text_of(form(value))}")
        else:
            lines.append(json.dumps({"process": process, "type": kind, "f": f, "value": value}))
    return "".join(f"{line}\n" for line in lines)


def in_array(rows: list[Row]) -> str:
    """The rows as one array, over several lines each."""
    objects = [json.loads(line) for line in written(rows, JSON).splitlines()]
    return json.dumps(objects, indent=1)


def checked(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = line.main(["check", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("notation", ["h.edn", "h.json", "array.json", "h.jsonl", "h.txt"])
def test_every_notation_gives_a_model_the_same_verdict(
    model: str, notation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, right, wrong = MODELS[model]
    options = ["--no-independent"] if model in ("register", "cas-register") else []
    if notation == "h.txt":
        options += ["--format", TEXT]
    elif notation == "h.jsonl" and model in ("register", "cas-register", "log"):
        options += ["--format", JSON]  # the name stands for lines of Brownout's own clients
    for answer, expected in ((right, PASS), (wrong, FAIL)):
        history = with_answer(rows, answer)
        kind = {"h.edn": EDN, "h.txt": TEXT}.get(notation, JSON)
        Path(notation).write_text(in_array(history) if notation == "array.json" else written(history, kind))
        code, printed = checked(notation, "--model", model, *options, capsys=capsys)
        assert code == expected, printed


def test_transactions_in_json_may_have_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    rows, right, wrong = MODELS["multi-register"]
    for answer, expected in ((right, PASS), (wrong, FAIL)):
        keyed = [(process, kind, f, [["k", 1], value]) for process, kind, f, value in with_answer(rows, answer)[1:]]
        Path("h.json").write_text(written(keyed, JSON))
        code, printed = checked("h.json", "--model", "multi-register", "--independent", capsys=capsys)
        assert code == expected, printed


STORES = {
    "lin-kv": "register",
    "txn-list-append": "list-append",
    "txn-rw-register": "rw-register",
    "kafka": "log",
    "g-set": "set-full",
    "pn-counter": "eventual-counter",
    "unique-ids": "unique-ids",
    "echo": "echo",
}


@pytest.mark.parametrize("name", ["history.edn", "history.txt"])
@pytest.mark.parametrize("workload", STORES)
def test_a_store_states_its_model(workload: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows, right, wrong = MODELS[STORES[workload]]
    run = Path("store", workload, "20260102T030405.000Z")
    run.mkdir(parents=True)
    Path("store", workload, "latest").symlink_to(run.name)
    for answer, expected in ((right, PASS), (wrong, FAIL)):
        (run / name).write_text(written(with_answer(rows, answer), EDN if name.endswith("edn") else TEXT))
        code, printed = checked(f"store/{workload}/latest", capsys=capsys)
        assert code == expected, printed
        assert Path("checks", workload, "result.json").exists()


def test_the_workload_of_a_renamed_store_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("store", "my-test", "1")
    run.mkdir(parents=True)
    (run / "history.txt").write_text(written(TAKEN_TWICE, TEXT))
    assert checked(str(run), "--workload", "lin-mutex", capsys=capsys)[0] == FAIL
    (run / "history.txt").write_text(written(TAKEN_TWICE[:2], TEXT))
    assert checked(str(run), "--workload", "lin-mutex", capsys=capsys)[0] == PASS
    code, printed = checked(str(run), capsys=capsys)
    assert (code, "judge it with --model mutex" in printed) == (REFUSED, True)


@pytest.mark.parametrize(("options", "expected"), [((), PASS), (("--prohibit", "stale-read"), FAIL)])
def test_the_user_decides_which_anomaly_fails(
    options: tuple[str, ...], expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, last, late = MODELS["set-full"]
    lagging = [*with_answer(rows, late), (1, "invoke", "read", None), (1, "ok", "read", last)]
    Path("h.edn").write_text(written(lagging, EDN))
    code, printed = checked("h.edn", "--model", "set-full", *options, capsys=capsys)
    assert (code, "stale-read" in printed) == (expected, True)


READ_INVOKED = '{"process": 0, "type": "invoke", "f": "read", "value": null}'
BAD = {
    "an election": ("h.json", '{"process": 0, "type": "invoke", "f": "elect"}', (), "is of an election"),
    "an unknown anomaly": (
        "h.json",
        '{"process": 0, "type": "invoke", "f": "generate"}',
        ("--model", "unique-ids", "--allow", "lost-element"),
        "unique-ids has no anomaly lost-element; it has duplicate-id",
    ),
    "an anomaly of another model": (
        "h.json",
        '{"process": 0, "type": "invoke", "f": "acquire"}',
        ("--model", "mutex", "--prohibit", "stale-read"),
        "mutex has no anomaly stale-read; those of set-full",
    ),
    "no history": ("store/lin-kv/1/test.jepsen", "", (), "has no history.edn and no history.txt"),
    "two models": ("h.txt", "", ("--workload", "kafka", "--model", "set"), "omit --model set"),
    "a line without tabs": ("h.txt", "0 :ok :read 1\n", ("--format", TEXT), "h.txt:1: is not an event: PROCESS, TYPE"),
    "a value that is no EDN": ("h.txt", "0\t:ok\t:read\t]\n", ("--format", TEXT), "h.txt:1: is not EDN between its"),
    **{
        f"nothing in a queue of {model}": (
            "h.json",
            '{"process": 0, "type": "invoke", "f": "enqueue", "value": null}',
            ("--model", model),
            "h.json:1: the argument of enqueue is nil, which is the answer of an empty queue",
        )
        for model in ("fifo-queue", "unordered-queue", "total-queue")
    },
    "half a character": (
        "h.json",
        READ_INVOKED.replace("null", r'{"a": ["\ud800"]}'),
        (),
        "h.json:1: is not JSON (it has an",
    ),
    "half a character in a key": (
        "h.json",
        READ_INVOKED.replace("null", r'{"\ud800": 1}'),
        (),
        "h.json:1: is not JSON (it",
    ),
    "half a character in an error": (
        "h.json",
        READ_INVOKED.replace("null}", r'1, "error": "\ud800"}'),
        (),
        "h.json:1: is not",
    ),
    "an open object": ("h.json", '[{"type":\n', (), "h.json:1: is not JSON (the object that starts here"),
    "an open array": ("h.json", f"[{READ_INVOKED}\n", (), "h.json: is not JSON (the array of events does not end"),
    "an open array of two lines": ("h.json", f"[\n{READ_INVOKED},\n", (), "the array of events does not end"),
    "a client whose number is text": (
        "h.json",
        f"{READ_INVOKED}\n{READ_INVOKED.replace('0', chr(34) + '1' + chr(34))}\n",
        (),
        "h.json:2: :process :1 is neither the number of a client nor :nemesis",
    ),
    "a bare value": ("h.json", '[{"a": 1}, 2]\n', (), "h.json:1: is not an operation"),
    "a bare value first": ("h.json", "[2]\n", (), "h.json:1: is not JSON: an object for each event"),
    "two keys of one name": ("h.json", '{"f": 1, "f": 2}\n', (), "h.json:1: is not JSON (the key 'f' is given twice)"),
    "a bank": ("h.json", '{"process": 0, "type": "invoke", "f": "transfer", "value": 1}', (), "is of a bank"),
    "a broadcast in JSON": ("h.json", '{"process": 0, "type": "invoke", "f": "broadcast"}', (), "--model set-full"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_names_the_kind_of_history(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    place, text, options, message = BAD[name]
    path = Path(place)
    if path.parts[0] == "store":
        directory = path if path.suffix == "" else path.parent
        directory.mkdir(parents=True)
        (directory / ("history.edn" if directory is path else path.name)).write_text("")
        path = directory
    else:
        path.write_text(text)
    code, printed = checked(str(path), *options, capsys=capsys)
    assert (code, message in printed) == (REFUSED, True), printed


@pytest.mark.parametrize("model", MODELS)
def test_a_history_of_failed_operations_is_unknown(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As those of a system that is not there."""
    asked = [(process, f, value) for process, kind, f, value in MODELS[model][0] if kind == "invoke"]
    rows = [(process, kind, f, value) for process, f, value in asked for kind in ("invoke", "fail")]
    Path("h.edn").write_text(written(rows, EDN))
    code, printed = checked("h.edn", "--model", model, capsys=capsys)
    assert code == UNKNOWN, printed


@pytest.mark.parametrize("element", [["a", 1], [["a", 1]], {"a": ["b"]}, "a", [], 1.5], ids=str)
@pytest.mark.parametrize(
    ("model", "f", "g"),
    [("set", "add", "read"), ("set-full", "add", "read"), ("total-queue", "enqueue", "drain"), ("echo", "", "echo")],
)
def test_elements_in_json_are_any_values(
    model: str, f: str, g: str, element: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the steps of transactions have keywords."""
    added: list[Row] = [(0, "invoke", f, element), (0, "ok", f, element)] if f else []
    asked, answer = (None, [element]) if f else (element, {"echo": element})
    Path("h.json").write_text(written([*added, (1, "invoke", g, asked), (1, "ok", g, answer)], JSON))
    code, printed = checked("h.json", "--model", model, "--no-independent", capsys=capsys)
    assert code == 0, printed


def test_a_long_value_is_shortened_on_the_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[Row] = [(0, "invoke", "add", "x" * 9_000), (0, "ok", "add", "x" * 9_000)]
    Path("h.json").write_text(written(with_answer([*rows, (1, "invoke", "read", None)], []), JSON))
    code, printed = checked("h.json", "--model", "set-full", capsys=capsys)
    assert (code, len(printed) < 5_000, "characters more in result.json" in printed) == (1, True, True)
    assert "x" * 9_000 in Path("checks/h/result.json").read_text()


INTEGERS = st.integers(-(10**25), 10**25)
VALUES = st.none() | INTEGERS | st.lists(st.none() | INTEGERS | st.lists(INTEGERS, max_size=2), max_size=3)
MAPS = st.dictionaries(INTEGERS, INTEGERS, max_size=3)
STEPS = st.lists(st.tuples(st.sampled_from(["append", "r", "w"]), INTEGERS, VALUES).map(list), min_size=1, max_size=3)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 99), st.sampled_from(TYPES), st.sampled_from(["read", "txn", "a-b"]), VALUES | STEPS | MAPS
    )
)
FUNCTIONS = dict.fromkeys(("read", "txn", "a-b"), False)


def events_in(path: Path, text: str, notation: str) -> list[Event]:
    path.write_text(text)
    return [
        event._replace(value=text_of(event.value))
        for event in events_of(path, FUNCTIONS, "rw-register", notation=notation)
    ]


@settings(deadline=None, max_examples=200)
@given(rows=EVENTS)
def test_events_are_the_same_in_every_notation(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    path = tmp_path_factory.getbasetemp() / "h"
    expected = [
        Event(number, int(process), kind, f, text_of(form(value)))
        for number, (process, kind, f, value) in enumerate(rows, 1)
    ]
    for notation in (EDN, JSON, TEXT):
        assert events_in(path, written(rows, notation), notation) == expected
    # A tag keeps the line from the reader of plain lines.
    by_form = "".join(f"#op {line}\n" for line in written(rows, EDN).splitlines())
    assert events_in(path, by_form, EDN) == expected
    arrays = events_in(path, in_array(rows), JSON)
    assert [event._replace(line=0) for event in arrays] == [event._replace(line=0) for event in expected]


@settings(deadline=None)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from((":a", ":b", "1", "-2", "0", "-0", "01", '"a"', ":1")), INTEGERS | st.none())
    )
)
def test_a_plain_map_is_that_of_the_reader_of_edn(pieces: list[tuple[str, int | None]]) -> None:
    text = f"{{{', '.join(f'{key} {text_of(value)}' for key, value in pieces)}}}"
    assert plain_map("{:a 1, 2 -3}") is not None
    plain = plain_map(text)
    assert plain is None or plain == form_of(f"#_0 {text}")


@pytest.mark.parametrize("value", ["nil", "7", "[1 [2 3]]", "[[:r 1 nil] [:append 2 3]]"])
@pytest.mark.parametrize("names", [*permutations(("process", "value", "f"))])
def test_a_line_of_integers_needs_no_reader_of_edn(tmp_path: Path, names: tuple[str, ...], value: str) -> None:
    fields = {"process": "3", "value": value, "f": ":txn"}
    path = tmp_path / "h.edn"
    path.write_text(f"{{:type :invoke, {', '.join(f':{name} {fields[name]}' for name in names)}}}\n")
    values = []

    def plain(text: str) -> Any:
        values.append(json.loads(text))
        return values[-1]

    (event,) = events_of(path, FUNCTIONS, plain=plain)
    assert [event.value] == values
