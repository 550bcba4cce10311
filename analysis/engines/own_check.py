"""Runs a user's own checker in a process of its own, and bounds it.

Theory of operation. The process gets the checker's text on its standard input. It writes JSON lines: the number of
answered operations, the declaration when the checker has been loaded, the first contradiction of each name, and a last
line with counts. What the checker itself prints goes to a file. Loading and checking each have a time limit, after
which the process is killed. It ends when its standard input closes, so it never outlives the analysis. What it wrote
until then counts: a contradiction stays one if the checker crashes later, and a check without the last line is not a
pass.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from analysis.history_checker import FREE, FUNCTION, HistoryChecker, RunHistory, contradictions_of, load_checker
from history.own_classes import OwnClassError, place_in
from installation.python_modules import module_command, module_environment
from installation.sanitize import brief

LOADED_S: Final = 60.0
"""The time in which a checker must be loaded."""
MOST_OPERATIONS: Final = 100
"""Operations of a witness."""
_SENTENCE: Final = 1_000
_SHOWN: Final = 200
"""Characters of an argument or a result in the text of an operation."""
_NOT_SHOWN: Final = ("shape",)


@dataclass(frozen=True)
class OwnCheck:
    """The result of a checker."""

    promise: str
    needs: Mapping[str, int]
    contradictions: Mapping[str, Mapping[str, Any]]
    """By name, the first contradiction: its `sentence` and its `witness`."""
    counts: Mapping[str, int]
    """By name, the number of contradictions."""
    answered: Mapping[str, int]
    """By function, the number of answered operations."""
    failure: str
    """Why the check is not complete; empty if it is."""


def run_own_check(use: str, text: str, workload: Mapping[str, Any], tables: Path, output: Path) -> OwnCheck:
    """Check the run with these tables. `workload`: the parameters of a workload of the user's own; `output`: the file
    for what the checker prints. Raises OSError."""
    request = {"use": use, "text": text, "workload": dict(workload), "tables": str(tables)}
    with (
        open(output, "ab") as printed,
        subprocess.Popen(
            module_command(__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            env=module_environment(),
            start_new_session=True,
            encoding="utf-8",
        ) as process,
    ):
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # how the process ended says more
                process.stdin.write(json.dumps(request, default=str) + "\n")
                process.stdin.flush()
            return _result(process, use)
        finally:
            _kill(process)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process with its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _result(process: subprocess.Popen[str], use: str) -> OwnCheck:
    declared, summary, contradictions = dict[str, Any](), dict[str, Any](), dict[str, Mapping[str, Any]]()
    answered, limit_s, timer, is_over = dict[str, int](), 0.0, threading.Timer(0, int), threading.Event()
    for line in _lines(process):
        if "sentence" in line:
            contradictions[line["name"]] = line
            continue
        timer.cancel()
        if "answered" in line:
            answered, limit_s = line["answered"], LOADED_S
        elif "promise" in line:
            declared, limit_s = line, line["limit_s"]
        else:
            summary = line
            break
        timer = threading.Timer(limit_s, _end, (process, is_over))
        timer.daemon = True
        timer.start()
    timer.cancel()
    failure = str(summary.get("failure", ""))
    if not summary:
        code = process.wait()
        late = (
            f"it has not ended after {limit_s:g} s, the limit_s of its class"
            if declared
            else f"it was not loaded within {limit_s:g} s"
        )
        failure = late if is_over.is_set() else f"its process ended with exit code {code}"
    counts = {**dict.fromkeys(contradictions, 1), **summary.get("counts", {})}
    return OwnCheck(declared.get("promise", use), declared.get("needs", {}), contradictions, counts, answered, failure)


def _end(process: subprocess.Popen[str], is_over: threading.Event) -> None:
    is_over.set()
    _kill(process)


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        if not line.endswith("\n"):  # the process was killed within the line
            return
        yield json.loads(line)


# ---- in the process


def _work() -> None:
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the checker prints

    def write(line: Mapping[str, Any]) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_analysis, daemon=True).start()
    file, counts = request["use"].rpartition(":")[0], Counter[str]()
    try:
        history, answered = history_of(Path(request["tables"]), request["workload"]), Counter[str]()
        for table in history.tables():
            answered.update(_answered(table))
        write({"answered": answered})
        checker = load_checker(request["use"], request["text"])
        write({"promise": checker.promise, "needs": dict(checker.needs), "limit_s": checker.limit_s})
        for line in _contradictions(checker, history, counts):
            write(line)
        write({"counts": counts})
    except BaseException as error:
        traceback.print_exc()
        reason = str(error) if isinstance(error, OwnClassError) else place_in(file, error)
        write({"failure": brief(reason, _SENTENCE), "counts": counts})


def _answered(table: Any) -> dict[str, int]:
    """By function, the answered operations of a table."""
    import pyarrow.compute as pc

    counts = pc.value_counts(table.filter(pc.equal(table["type"], "ok"))["f"]).to_pylist()
    return {count["values"]: count["counts"] for count in counts}


def _end_with_the_analysis() -> None:
    sys.stdin.read()
    os._exit(1)


def _contradictions(checker: HistoryChecker, history: RunHistory, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """A line for the first contradiction of each name; `counts` has all of them. Raises TypeError for a wrong
    result."""
    for broken in contradictions_of(checker, history):
        counts[broken.name] += 1
        if counts[broken.name] == 1:
            witness = [_witness(operation) for operation in broken.operations[:MOST_OPERATIONS]]
            yield {"name": broken.name, "sentence": brief(str(broken.sentence), _SENTENCE), "witness": witness}


def _witness(operation: Any) -> dict[str, Any]:
    """The operation as other checkers have it in a witness, without empty columns."""
    if operation.shape == FREE:
        return witness_of_call(operation)
    columns = {name: value for name, value in vars(operation).items() if value not in (None, [], "", -1)}
    named = {"op": columns.pop("f", "")} | {name: columns[name] for name in columns if name not in _NOT_SHOWN}
    if offsets := named.pop("offsets", None):
        named["records"] = list(zip(offsets, named.pop("values"), strict=True))
    return named


def witness_of_call(operation: Any) -> dict[str, Any]:
    """An operation of a workload of the user's own as other checkers have theirs in a witness."""
    names = ("client", "key", "type", "inv", "ret", "phase", "error", "endpoint", "session")
    columns = {name: getattr(operation, name) for name in names if getattr(operation, name) not in (None, "")}
    values = {name: json.dumps(getattr(operation, name)) for name in ("argument", "result")}
    of_key = f" of {operation.key}" if operation.key else ""
    argument = "" if operation.argument is None else f" {brief(values['argument'], _SHOWN)}"
    result = f" = {brief(values['result'], _SHOWN)}" if operation.type == "ok" else ""
    return (
        {"op": operation.f, "text": f"{operation.f}{of_key}{argument}{result}"}
        | columns
        | {name: brief(value, _SENTENCE) for name, value in values.items()}
    )


def history_of(tables: Path, workload: Mapping[str, Any]) -> RunHistory:
    """The history of a run, from its tables. `workload`: the parameters of a workload of the user's own."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from history.record.operations import OF_ALL_SHAPES, parts_of_all_shapes
    from history.record.schemas import INF, NAMES, OUTCOMES

    functions, outcomes = pa.array(map(NAMES.get, range(len(NAMES)))), pa.array(OUTCOMES)
    names = [name for name in OF_ALL_SHAPES.names if name != FUNCTION]

    def parts() -> Iterator[pa.Table]:
        for part in parts_of_all_shapes(tables, OF_ALL_SHAPES.names):
            texts = {"f": pc.coalesce(part[FUNCTION], functions.take(part["f"])), "type": outcomes.take(part["type"])}
            texts["ret"] = pc.if_else(pc.equal(part["ret"], INF), pa.scalar(None, pa.int64()), part["ret"])
            yield pa.table([texts.get(name, part[name]) for name in names], names=names)

    return RunHistory(parts, pq.read_table(tables / "faults.parquet").to_pylist(), SimpleNamespace(**workload))


if __name__ == "__main__":
    _work()
