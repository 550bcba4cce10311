"""`brownout check`: judges histories that Brownout did not record."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from history.foreign.kinds import EDN, JSON, MODEL_NAMES, NOTATIONS, PROMISE_NAMES, TRANSACTION_NAMES, WORKLOADS
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, positive
from orchestrator.errors import EXIT_FAIL, EXIT_OF_VERDICT, EXIT_PASS, EXIT_UNKNOWN, EXIT_USAGE, UsageError
from orchestrator.printing import say, verdict_line

if TYPE_CHECKING:
    from analysis.foreign.judgement import ForeignJudgement
    from history.foreign.history import ForeignHistory

JSONL: Final = "jsonl"
PORCUPINE: Final = "porcupine"
OF_OBJECTS: Final = (*MODEL_NAMES, *PROMISE_NAMES)
"""The models whose operations are on objects, with a name, an argument and an answer."""
LONGEST_SENTENCE: Final = 2_000
FORMAT_OF: Final = {".jsonl": JSONL, ".edn": EDN, ".json": JSON, ".log": PORCUPINE}


@dataclass(frozen=True)
class _Task:
    """The files of one history, their format, the directory for its result, and its model if it was stated."""

    paths: tuple[Path, ...]
    form: str
    place: Path
    model: str | None


def main(options: argparse.Namespace) -> int:
    """Judge each history; returns the exit code. Raises `UsageError` when a file is not a history of its format, after
    the other histories were judged."""
    tasks = list(_tasks(options))
    results: list[dict[str, Any]] = []
    refused: list[UsageError] = []
    for task in tasks:
        try:
            results.append(_check(task, options))
        except UsageError as error:
            refused.append(error)
            if len(tasks) > 1:
                say(f"brownout: {error}", file=sys.stderr)
    if options.json:
        print(json.dumps(results, indent=1))
    elif len(tasks) > 1:
        counts = Counter(result["verdict"] for result in results)
        say(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "nothing was judged")
    if refused and len(tasks) == 1:
        raise refused[0]
    codes = {EXIT_OF_VERDICT[result["verdict"]] for result in results}
    return EXIT_USAGE if refused else next((code for code in (EXIT_FAIL, EXIT_UNKNOWN) if code in codes), EXIT_PASS)


def _tasks(options: argparse.Namespace) -> Iterator[_Task]:
    """JSON lines of a log or a register have a file for each client of one history; a file of another format, or the
    directory of a store, is a history."""
    out: Path = options.out
    if unreadable := next((path for path in (*options.file, out) if not _is_text(path)), None):
        raise UsageError(f"{str(unreadable)!a}: the name is not text in UTF-8; rename it")
    if Path("-") in options.file and not Path("-").exists():
        raise UsageError("-: standard input is not read; name a file")
    model = _chosen_model(options)
    forms = {path: _opened(path, options.format, model) for path in options.file}
    if clients := tuple(path for path, (_, form, _) in forms.items() if form == JSONL):
        yield _Task(clients, JSONL, out / _name_of(clients[0]), model)
    used = {_name_of(clients[0])} if clients else set()
    for named, (path, form, stated) in forms.items():
        if form != JSONL:
            base = _name_of(named.resolve().parent if named.is_dir() else named)
            name, number = base, 2
            while name in used:
                name, number = f"{base}-{number}", number + 1
            used.add(name)
            yield _Task((path,), form, out / name, model or stated)


def _chosen_model(options: argparse.Namespace) -> str | None:
    """The model that the user named, by --model or --workload. Raises UsageError for two."""
    of_workload = WORKLOADS.get(options.workload)
    model: str | None = "register" if options.model == "cas-register" else options.model
    if None not in (model, of_workload) and model != of_workload:
        raise UsageError(f"--workload {options.workload} is of the model {of_workload}; omit --model {options.model}")
    return model or of_workload


def _opened(path: Path, form: str | None, model: str | None) -> tuple[Path, str, str | None]:
    """The file of a history, its format, and the model that its store states. Raises UsageError."""
    from history.foreign.history import ForeignError
    from history.foreign.jepsen_events import stored_history

    if path.is_dir():
        try:
            file, notation, stated = stored_history(path)
        except ForeignError as error:
            raise UsageError(str(error)) from error
        return file, notation, stated or None
    form = form or _form_of(path)
    return path, JSON if form == JSONL and model in (*OF_OBJECTS, *TRANSACTION_NAMES) else form, None


def _name_of(path: Path) -> str:
    """The name of the result's directory, which is never hidden, and never `..`."""
    return path.stem.lstrip(".") or "history"


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _form_of(path: Path) -> str:
    if path.suffix not in FORMAT_OF:
        formats = ", ".join(f"{suffix} ({form})" for suffix, form in FORMAT_OF.items())
        raise UsageError(
            f"{path}: the name does not identify the format; name it with --format, or end the name: {formats}"
        )
    return FORMAT_OF[path.suffix]


def _check(task: _Task, options: argparse.Namespace) -> dict[str, Any]:
    from analysis.foreign.judgement import PlaceError, replaced, write
    from history.foreign.history import ForeignError

    states = _states(task.paths)
    try:
        with replaced(task.place) as draft:
            history = _read(task, options, draft)
            judgement = _judge(history, options)
            content = write(task.paths, task.form, history, judgement)
            _require_unchanged(task.paths, states)
    except (ForeignError, PlaceError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        _require_unchanged(task.paths, states)
        raise UsageError(f"{error.filename or task.place}: {error.strerror}; name another --out") from error
    if not options.json:
        _print(task, content)
    return {**content, "directory": str(task.place)}


def _judge(history: ForeignHistory, options: argparse.Namespace) -> ForeignJudgement:
    failing = _failing(history.model, options)
    if history.model in TRANSACTION_NAMES:
        from analysis.foreign.transaction_judgement import judge_transactions

        return judge_transactions(history, consistency=options.consistency_model, key_order=options.key_order)
    from analysis.foreign.judgement import judge

    return judge(history, upper_bound=options.upper_bound, budget=options.budget, failing=failing)


def _failing(model: str, options: argparse.Namespace) -> frozenset[str]:
    """The anomalies that fail a history of this model, if it is one of promises. Raises UsageError."""
    from analysis.core.workload_promises import failing_anomalies

    try:
        return failing_anomalies(model, options.allow, options.prohibit)
    except ValueError as error:
        raise UsageError(f"--allow and --prohibit: {error}") from error


def _require_unchanged(paths: Sequence[Path], states: Sequence[tuple[int, ...] | None]) -> None:
    """Raises UsageError for a file that is not as it was before it was read."""
    for path, old, new in zip(paths, states, _states(paths), strict=True):
        if old != new:
            raise UsageError(f"{path}: changed while it was read; check it again when its writer has ended")


def _states(paths: Sequence[Path]) -> list[tuple[int, ...] | None]:
    """What changes with a file's content, for each file that exists."""
    stats = (path.stat() if path.is_file() else None for path in paths)
    return [None if st is None else (st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns) for st in stats]


def _read(task: _Task, options: argparse.Namespace, directory: Path) -> ForeignHistory:
    """The history, whose operations are written below the directory. Raises ForeignError, and UsageError for another
    model than the files have."""
    from history.foreign import jepsen_edn, json_lines, porcupine

    if options.independent is not None and task.form not in NOTATIONS:
        raise UsageError(f"--independent and --no-independent are for the format {EDN}: {task.paths[0]} is {task.form}")
    if task.model in TRANSACTION_NAMES:
        return _read_transactions(task, task.model, options, directory)
    if options.key_order is not None:
        raise UsageError(f"--keys is for --model rw-register; omit --keys {options.key_order}")
    if task.model in OF_OBJECTS:
        return _read_model(task, task.model, options, directory)
    if task.form == JSONL:
        return json_lines.read(task.paths, task.model, directory, initial=_initial(task, options.initial))
    if task.form in NOTATIONS:
        initial = None if options.initial is None else _form(options.initial)
        values = {"independent": options.independent, "initial": initial}
        history = jepsen_edn.read(task.paths[0], directory, notation=task.form, **values)
    else:
        history = porcupine.read(task.paths[0], directory, initial=_initial(task, options.initial))
    if task.model not in (None, history.model):
        problem = f"{task.paths[0]}: its operations are of a {history.model}"
        raise UsageError(f"{problem}; omit --model {task.model}")
    return history


def _read_model(task: _Task, name: str, options: argparse.Namespace, directory: Path) -> ForeignHistory:
    """The history of operations on objects. Raises as `_read`."""
    from analysis.core.models import MODELS
    from analysis.core.workload_promises import PROMISES
    from history.foreign.model_rows import read_model

    if task.form not in NOTATIONS:
        raise UsageError(
            f"{task.paths[0]}: --model {name} is for the formats {', '.join(NOTATIONS)}, and the file is {task.form}; "
            f"Porcupine's key-value logs are {EDN}, too: --format {EDN}"
        )
    model = MODELS[name] if name in MODELS else PROMISES[name]
    try:
        initial = model.initial(None if options.initial is None else _form(options.initial))
    except ValueError as error:
        raise UsageError(f"--initial {options.initial}: {error}") from error
    values = {"independent": options.independent, "initial": initial, "notation": task.form}
    return read_model(task.paths[0], directory, name, model.functions, model.values, **values)


def _read_transactions(task: _Task, name: str, options: argparse.Namespace, directory: Path) -> ForeignHistory:
    """The history of transactions. Raises as `_read`."""
    from history.foreign.transaction_rows import LIST_APPEND, read_transactions

    if task.form not in NOTATIONS:
        problem = f"{task.paths[0]}: --model {name} is for the formats {', '.join(NOTATIONS)}"
        raise UsageError(f"{problem}, and the file is {task.form}; give the history.edn that Jepsen or Elle wrote")
    if options.independent is not None:
        raise UsageError(f"--model {name} names the key in each step; omit --independent")
    if name == LIST_APPEND and (options.initial, options.key_order) != (None, None):
        raise UsageError(
            f"--model {LIST_APPEND}: lists are empty at the start, and show their order; omit --initial and --keys"
        )
    initial = None if options.initial is None else _form(options.initial)
    return read_transactions(task.paths[0], directory, name, initial=initial, notation=task.form)


def _form(text: str) -> Any:
    from history.foreign.edn import form_of
    from history.foreign.history import ForeignError

    try:
        return form_of(text)
    except ForeignError as error:
        raise UsageError(f"--initial {text}: {error}; state one value as EDN") from error


def _initial(task: _Task, text: str | None) -> int | None:
    """The value that each register holds at the start. Raises UsageError for one that the format does not have."""
    if text is None or re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
        return None if text is None else int(text)
    raise UsageError(f"--initial {text}: the values of the format {task.form} are integers of 64 bits")


def _print(task: _Task, content: Mapping[str, Any]) -> None:
    """`content`: of `result.json`."""
    names = ", ".join(map(str, task.paths))
    verdict_line(content["verdict"], f"{names}: {content['sentence']}")
    for anomaly in content["anomalies"]:
        say(f"  {anomaly['name']}: {_short(anomaly['sentence'])}")
    for doubt in content["doubts"]:
        say(f"  {_short(doubt)}")
    if content["certified"]:
        say(f"  certificate confirmed: {content['certified']}")
    say(f"  scope: {content['scope']}")
    if content["not_judged"]:
        say(f"  not judged either: {'; '.join(content['not_judged'])}")
    say(f"  details: {task.place}")


def _short(sentence: str) -> str:
    """A sentence for the terminal: a value of the history may have any length."""
    hidden = len(sentence) - LONGEST_SENTENCE
    return sentence if hidden <= 0 else f"{sentence[:LONGEST_SENTENCE]} ... ({hidden:,} characters more in result.json)"


def _options(command: argparse.ArgumentParser) -> None:
    from analysis.core.consistency_models import PROHIBITED, STRICT_SERIALIZABLE
    from history.upper_bounds import UPPER_BOUNDS

    command.add_argument(
        "file", nargs="+", type=Path, metavar="FILE", help="a history, a client's `.jsonl`, or a store"
    )
    command.add_argument(
        "--format",
        choices=(JSONL, *NOTATIONS, PORCUPINE),
        help="the format of all files (default: by the end of a name: .jsonl, .edn, .json, .log)",
    )
    command.add_argument(
        "--model",
        choices=("log", "register", "cas-register", *OF_OBJECTS, *TRANSACTION_NAMES),
        help="what the operations are of (default: as a store says; else log or register, as the operations say)",
    )
    command.add_argument(
        "--workload", choices=tuple(WORKLOADS), help="the workload of Maelstrom that the operations are of, for --model"
    )
    command.add_argument(
        "--consistency-model",
        choices=tuple(PROHIBITED),
        default=STRICT_SERIALIZABLE,
        help=f"what transactions (list-append, rw-register) must obey (default: {STRICT_SERIALIZABLE})",
    )
    command.add_argument(
        "--keys",
        dest="key_order",
        choices=("linearizable", "sequential"),
        help="assume this of each register of rw-register, also if the model does not say it (default: neither)",
    )
    for name, effect in (("--allow", "does not fail"), ("--prohibit", "fails")):
        command.add_argument(
            name,
            action="append",
            default=[],
            metavar="ANOMALY",
            help=f"of a set, queue, counter or bank: {effect} the history (docs/foreign.md; default: by the model)",
        )
    command.add_argument(
        "--initial",
        metavar="VALUE",
        help="what each register holds at the start, as the format writes values (default: nil)",
    )
    command.add_argument(
        "--independent",
        action=argparse.BooleanOptionalAction,
        help="whether the values of Jepsen's registers are [KEY VALUE] (default: as the first operation has it)",
    )
    command.add_argument(
        "--upper-bound",
        choices=UPPER_BOUNDS,
        default=UPPER_BOUNDS[0],
        help=f"which upper bounds on a log's length count (default: {UPPER_BOUNDS[0]}; docs/architecture.md)",
    )
    command.add_argument(
        "--budget",
        type=positive,
        default=400_000,
        metavar="N",
        help="configurations that the search of a register or object may visit before it is unknown (default: 400000)",
    )
    command.add_argument(
        "--out", type=Path, default=Path("checks"), metavar="DIR", help="where results are written (default: checks)"
    )
    json_option(command)


COMMAND: Final = Command(
    name="check",
    place=35,
    summary="judge a history that Brownout did not record",
    description="""\
Decides whether the operations in a history are linearizable, or its transactions consistent, and proves it: a pass
has a certificate that a separate verifier confirms, a fail has the operations that contradict each other, as text and
as a plot.

  brownout check history.edn                            Jepsen: linearizable-register, independent keys, kafka
  brownout check history.edn --model fifo-queue         Jepsen, Knossos, Porcupine: objects with a sequential model
  brownout check history.edn --model set-full           Jepsen: set-full, total-queue, counter, bank, unique-ids
  brownout check history.edn --model list-append        Jepsen, Elle: transactions (also rw-register)
  brownout check store/lin-kv/latest                    Maelstrom: the store states the model (or --workload)
  brownout check history.json --model rw-register       Jepsen's JSON, elle-cli; also .jsonl with events and a model
  brownout check etcd_000.log etcd_001.log              Porcupine's etcd logs
  brownout check clients/*.jsonl                        JSON lines (docs/operations.md): all files are one history
  brownout check history.txt --format jepsen-edn --out /tmp/result

Transactions must obey --consistency-model: a pass has a serial order, or lacks all anomalies that the model prohibits.
A search decides on models, and on registers whose values repeat; its budget ends in unknown. The result is about these
operations only: completeness, faults and replicas are not judged. docs/foreign.md describes each format.

Writes DIR/NAME/ for each history: result.json, operations.parquet, certificate/ or anomaly-N.png.
Exit code: the worst verdict of the given histories. 64: a file is not a history of its format.
""",
    options=_options,
    main=main,
)
