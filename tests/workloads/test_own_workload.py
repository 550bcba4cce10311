"""Workloads of a user's own: parameters, the operations that they draw, and the record of what became of each."""

import io
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from history import own_classes
from history.own_classes import OwnClassError
from history.reader import read_run
from history.record.shapes import FREE
from tests.workloads.running import own, settings, start
from workloads.api import Client
from workloads.client_record import open_record
from workloads.control import Control
from workloads.kinds.own import PARAMETERS, SHARE, OwnOperations
from workloads.loaded_workload import LoadedWorkload
from workloads.own_workload import Operation
from workloads.process import ClientError
from workloads.settings import ClientSettings, WorkloadFile
from workloads.user_module import ClientClassError, load_class

TEXT = """
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from brownout_api import Client, Operation, OwnWorkload, Refused


@dataclass
class Pair:
    left: int


class Work(OwnWorkload):
    count: Annotated[int, Meta(ge=1, le=9)] = 3
    share: Annotated[float, Meta(ge=0)] = 0.5
    mode: Literal["fast", "slow"] = "fast"
    names: list[str] = []
    unit: ClassVar[str] = "s"
    _hidden: int = 7
    queries: tuple[str, ...] = ("get",)

    def operations(self, random):
        for number in range(self.count):
            shown = yield Operation("put", [self.client, number, random.random()], key=self.mode)
            yield Operation("get", shown)

    def final(self):
        while (yield Operation("take")) is not None:
            pass


class Store(Client):
    left = 3

    def put(self, operation):
        answer = self.options.get("answer", "")
        if answer == "refused":
            raise Refused("no")
        if answer == "lost":
            raise ConnectionResetError("gone")
        if answer == "slow":
            time.sleep(60)
        return {"bytes": b"x", "nan": float("nan"), "large": "x" * 10**7}.get(answer, operation.argument)

    get = put

    def take(self, operation):
        if self.options.get("answer"):
            raise Refused("no")
        self.left -= 1
        return self.left or None
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(TEXT)
    return tmp_path / "work.py"


def its(file: Path, answer: str = "", client: str = "client-1", **changes: Any) -> ClientSettings:
    mine = own(file.parent, "", client_class=f"{file}:Store", options={"answer": answer}, timeout_s=0.1)
    parameters = {PARAMETERS: LoadedWorkload.of_text("work.py:Work", TEXT).parameters({}), SHARE: 0.5}
    source = WorkloadFile("work.py:Work", str(file), WorkloadFile.digest(file.read_text()))
    fields: dict[str, Any] = {"own": mine, "workload": source, "producer": -1, "parameters": parameters}
    return settings(file.parent, "own", client, 1, **{**fields, **changes})


def done(file: Path, work: Callable[[OwnOperations], object], answer: str = "") -> Sequence[dict[str, Any]]:
    """What is recorded of some work."""
    its_settings = its(file, answer)
    with open_record(its_settings, FREE) as writer:
        work(OwnOperations(its_settings, Control(io.StringIO(), io.StringIO()), writer))
    rows: list[dict[str, Any]] = read_run(file.parent).of(FREE).rows.to_pylist()
    return rows


def test_parameters_have_types_bounds_and_defaults() -> None:
    loaded = LoadedWorkload.of_text("work.py:Work", TEXT)
    assert loaded.keys == ("count", "share", "mode", "names")
    assert loaded.parameters({}) == {"count": 3, "share": 0.5, "mode": "fast", "names": []}
    assert loaded.parameters({"share": 1, "names": ["a"]}) == {"count": 3, "share": 1.0, "mode": "fast", "names": ["a"]}
    for wrong in ({"count": 0}, {"count": True}, {"share": -1}, {"mode": "x"}, {"names": [1]}, {"names": "a"}):
        ((key, _),) = wrong.items()
        with pytest.raises(ValueError, match=rf"^{key}: .*(e|E)xpected|^{key}: .*invalid enum value"):
            loaded.parameters(wrong)


def test_a_seed_and_a_client_decide_the_operations() -> None:
    loaded = LoadedWorkload.of_text("work.py:Work", TEXT)

    def drawn(seed: int, client: str) -> list[Any]:
        operations = loaded.operations(loaded.make({"count": 5}, client), _store(), Random(seed))
        return [operation.argument for operation in iter(operations.next, None)]

    assert drawn(1, "a") == drawn(1, "a")
    assert len({json.dumps(drawn(seed, client)) for seed in (1, 2) for client in ("a", "b")}) == 4


def _store() -> type[Client]:
    from history.own_classes import class_in

    return class_in("work.py:Store", TEXT, Client, "a client")


@pytest.mark.parametrize(
    "loop", ["while True:\n    pass\n", "while True:\n    try: [0].pop()\n    except ValueError: pass\n"]
)
def test_an_endless_loop_at_the_top_level_of_a_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread only")
    monkeypatch.setattr(own_classes, "LOAD_LIMIT_S", 0.1)
    said = r"endless\.py:[2-4]: TimeoutError: its top level still runs after 0\.1 s; move the work into a function"
    with pytest.raises(own_classes.OwnClassError, match=said):
        own_classes.class_in("endless.py:Store", f"x = 1\n{loop}", Client, "a client")
    (tmp_path / "endless.py").write_text(f"x = 1\n{loop}")
    with pytest.raises(ClientClassError, match=said):
        load_class(f"{tmp_path / 'endless.py'}:Store", Client)
    assert signal.getitimer(signal.ITIMER_REAL)[1] == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import pytest\n\npytest.importorskip('nothing')\n", r"wrong\.py:3: Skipped: could not import 'nothing'"),
        ("x = 1\0\n", r"wrong\.py:(?!.*None).* source code .*cannot contain null bytes"),
    ],
)
def test_a_module_that_cannot_be_executed_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(own_classes.OwnClassError, match=said):
        own_classes.class_in("wrong.py:Store", text, Client, "a client")
    (tmp_path / "wrong.py").write_text(text)
    with pytest.raises(ClientClassError, match=said):
        load_class(f"{tmp_path / 'wrong.py'}:Store", Client)


OUTCOMES = {
    "": [("put", "ok"), ("get", "ok")],
    "refused": [("put", "fail"), ("get", "fail")],
    "lost": [("put", "info"), ("get", "fail")],
    "slow": [("put", "info"), ("get", "fail")],
}


@pytest.mark.parametrize("answer", OUTCOMES)
def test_each_end_of_an_operation_has_its_outcome(file: Path, answer: str) -> None:
    outcomes: list[str | None] = []
    rows = done(file, lambda process: outcomes.extend(process.operate() for _ in range(2)), answer)
    assert outcomes == [outcome for _, outcome in OUTCOMES[answer]]
    names = {0: "ok", 1: "fail", 2: "info"}
    assert [(row["function"], names[row["type"]]) for row in rows] == OUTCOMES[answer]


def test_a_yield_returns_the_result_of_its_operation(file: Path) -> None:
    put, get = done(file, lambda process: [process.operate() for _ in range(2)])
    assert json.loads(get["argument"]) == json.loads(put["result"]) == json.loads(put["argument"])
    assert json.loads(put["argument"])[:2] == ["client-1", 0]


def test_a_client_without_further_operations_issues_probes_only(file: Path) -> None:
    def work(process: OwnOperations) -> None:
        assert [process.operate() for _ in range(8)] == ["ok"] * 6 + [None] * 2
        assert [process.probe(0) for _ in range(4)] == [None] * 4

    rows = done(file, work)
    assert [row["function"] for row in rows] == ["put", "get"] * 3 + ["put"] * 4


def test_a_final_read_continues_after_each_result(file: Path) -> None:
    read: list[Any] = []
    rows = done(file, lambda process: read.append(process.read_all(0, time.monotonic() + 60)))
    assert read == [(True, 3, 3)]
    assert [row["result"] for row in rows] == ["2", "1", "null"]


def test_a_final_read_without_an_answer_is_not_complete(file: Path) -> None:
    read: list[Any] = []
    done(file, lambda process: read.append(process.read_all(0, time.monotonic() + 0.3)), "refused")
    assert read == [(False, 1, 0)]


def test_a_final_read_without_an_end_is_named_with_its_line() -> None:
    endless = TEXT.replace(
        'while (yield Operation("take")) is not None:\n            pass', 'yield from 2 * [Operation("take")]'
    )
    loaded = LoadedWorkload.of_text("work.py:Work", endless)
    drawn = loaded.final(loaded.make({}, "c"), _store())
    assert [drawn.next() for _ in range(2)] == 2 * [Operation("take")]
    assert drawn.unended() == "work.py:33: Work.final has yielded 2 operations and continues"


@pytest.mark.parametrize("answer", ["bytes", "nan", "large"])
def test_a_result_outside_json_is_recorded_and_ends_the_client(file: Path, answer: str) -> None:
    def work(process: OwnOperations) -> None:
        assert process.operate() == "info"
        with pytest.raises(
            ClientClassError, match=r"work\.py:\d+: Store\.put returned .*, not a JSON value of at most"
        ):
            process.operate()

    (row,) = done(file, work, answer)
    assert "not a JSON value" in row["error"]


def test_a_file_that_was_changed_after_the_campaign_was_read_is_not_run(file: Path) -> None:
    mine = its(file)
    file.write_text(TEXT + "\n")
    client = start_process(mine, file.parent)
    with pytest.raises(ClientError, match=r"work\.py was changed after the campaign was read"):
        client.wait_ready(20)
    client.close()


def start_process(mine: ClientSettings, directory: Path) -> Any:
    from workloads.process import ClientProcess

    return ClientProcess("own", "client", mine, directory / "clients" / "client.log")


def test_a_process_issues_the_load(file: Path) -> None:
    client = start("own", "client", its(file), file.parent)
    client.start()
    deadline_s = time.monotonic() + 20
    while client.counts.ok < 6 and time.monotonic() < deadline_s:
        client.first_ack.wait(0.05)
    client.stop()
    assert client.wait_stopped(20) == 0
    client.close()
    assert (client.exit_code, client.counts.ok) == (0, 6)


def test_a_generator_that_hangs_is_reported_with_its_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.kinds.own.HANGS_S", 0.1)
    reported = file.with_name("reported")

    class Events(io.StringIO):
        def write(self, text: str) -> int:
            count = super().write(text)
            if "yields nothing" in text:
                reported.touch()
            return count

    hangs = f"while not __import__('os').path.exists({str(reported)!r}): pass\n            yield Operation('get')"
    file.write_text(TEXT.replace('yield Operation("get", shown)', hangs))
    events, its_settings = Events(), its(file)
    with open_record(its_settings, FREE) as writer:
        process = OwnOperations(its_settings, Control(io.StringIO(), events), writer)
        assert [process.operate() for _ in range(2)] == ["ok", "ok"]
    assert "work.py:30: Work yields nothing: it still runs after 0.1 s" in events.getvalue()


DRAWN = {
    "yield 7": "yielded 7; yield Operation",
    'yield Operation("close")': "yielded the function 'close', which cannot be the name",
    'yield Operation("_put")': "yielded the function '_put', which cannot be the name",
    'yield Operation("endpoints")': "yielded the function 'endpoints'; Store has no such method",
    'yield Operation("left")': "yielded the function 'left'; Store has no such method",
    'yield Operation(["put"])': "yielded the function ['put'], which cannot be the name",
    'yield Operation("put", key=7)': "yielded the key 7; a text",
    'yield Operation("put", key="x" * 2000)': "a text of at most 1,000 letters",
    'yield Operation("put", {1, 2})': "it is not a JSON value",
    'yield Operation("put", "\\ud800")': "it is not a JSON value",
    "yield from ()": "yields nothing; yield an Operation",
    "return 7": "object is not iterable",
    'raise KeyError("x")': "work.py:28: KeyError: 'x'",
}


@pytest.mark.parametrize("body", DRAWN)
def test_an_error_names_the_line_of_a_wrong_operation(body: str) -> None:
    before = TEXT.index("        for number in range(self.count)")
    text = f"{TEXT[:before]}        {body}\n\n{TEXT[TEXT.index('    def final') :]}"
    loaded = LoadedWorkload.of_text("work.py:Work", text)
    with pytest.raises(OwnClassError) as refused:
        loaded.rehearse(loaded.parameters({}), _store())
    assert DRAWN[body] in str(refused.value)
    assert "work.py" in str(refused.value)


def test_a_query_that_the_client_lacks_is_refused() -> None:
    loaded = LoadedWorkload.of_text("work.py:Work", TEXT.replace('("get",)', '("got",)'))
    with pytest.raises(OwnClassError, match=r"Work\.queries has 'got', and Store has no such method") as refused:
        loaded.rehearse(loaded.parameters({}), _store())
    assert str(refused.value).endswith("the operations are get, put")


def test_an_interrupt_while_a_file_is_loaded_ends_the_command() -> None:
    with pytest.raises(KeyboardInterrupt):
        LoadedWorkload.of_text("work.py:Work", "raise KeyboardInterrupt")


def test_a_file_with_the_name_of_a_room_replaces_no_room(file: Path) -> None:
    named = file.rename(file.parent / "nodeimage.py")
    assert load_class(f"{named}:Store", Client).__module__ == "client_nodeimage"
    assert "nodeimage" not in sys.modules or sys.modules["nodeimage"].__file__ != str(named)


def test_a_class_of_a_client_is_loaded_from_its_file(file: Path) -> None:
    loaded = LoadedWorkload.of_text("work.py:Work", TEXT)
    rehearsal = loaded.rehearse(loaded.parameters({}), load_class(f"{file}:Store", Client))
    assert (rehearsal.queries_share, sorted(rehearsal.functions)) == (0.5, ["get", "put", "take"])
