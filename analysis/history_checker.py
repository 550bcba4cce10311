"""The interface of a user's own checker, which a campaign names in `[checks] use`: it judges the history of a run.

A run stores the text of its checkers (`history/own_classes.py`), so a stored run is judged again by the same text.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from history.own_classes import OwnClassError, class_in, made
from history.strict_json import decode

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_LIMIT_S: Final = 300.0
LONGEST_LIMIT_S: Final = 86_400.0
BATCH_ROWS: Final = 1 << 14
FREE: Final = "free"
"""The shape of the operations of workloads of a user's own."""
FUNCTION: Final = "function"
"""The column with the names of their functions; checkers get them as `f`."""
_JSON: Final = ("argument", "result")


class ClientOperation(SimpleNamespace):
    """An operation of a client. Its attributes are the columns of operations (docs/tables.md); None stands in those of
    other kinds of workload. `f` is the function's name (`append`, `read`, `end`, `write`, `cas`, or that of a workload
    of the user's own), `type` the outcome (`ok`, `fail`, `info`). `inv` and `ret` are nanoseconds. The `ret` of an
    operation that never returned: None. `argument` and `result` are the values, not their JSON."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an operation has no column {name!r}; it has {', '.join(vars(self))}")


@dataclass(frozen=True)
class RunHistory:
    """The operations of a run, and its faults.

    Iteration gives the operations in the order of their invocations; it needs about 200 bytes of memory for each.
    """

    tables: Callable[[], Iterator[pa.Table]]
    """The operations as Arrow tables of bounded size, in no particular order, with the columns of `ClientOperation`.
    `argument` and `result` are JSON."""
    faults: Sequence[Mapping[str, Any]] = ()
    """Each with `kind`, `targets`, `status`, and the times `invoked`, `injected`, `healed` (ns; None: never)."""
    workload: SimpleNamespace = field(default_factory=SimpleNamespace)
    """The parameters of a workload of the user's own, as attributes."""

    @classmethod
    def of(
        cls,
        *operations: Mapping[str, Any],
        faults: Sequence[Mapping[str, Any]] = (),
        workload: Mapping[str, Any] | None = None,
    ) -> RunHistory:
        """A history for a test of a checker. An operation has at least `f`; by default it is `ok`, of one client, and
        after the one before it. `workload`: the parameters of a workload of the user's own."""
        import pyarrow as pa

        from history.record.operations import OF_ALL_SHAPES

        rows = [
            {"type": "ok", "client": "client-1", "process": 1, "inv": 2 * at, "ret": 2 * at + 1, **operation}
            | {name: json.dumps(operation[name]) for name in _JSON if name in operation}
            for at, operation in enumerate(operations)
        ]
        types = {column.name: column.type for column in OF_ALL_SHAPES} | {"f": pa.string(), "type": pa.string()}
        del types[FUNCTION]
        table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
        return cls(lambda: iter([table]), faults, SimpleNamespace(**(workload or {})))

    def __iter__(self) -> Iterator[ClientOperation]:
        import pyarrow as pa

        tables = list(self.tables())
        if tables:
            for batch in pa.concat_tables(tables).sort_by("inv").to_batches(max_chunksize=BATCH_ROWS):
                for row in batch.to_pylist():
                    values = {name: decode(row[name]) for name in _JSON if row[name] is not None}
                    yield ClientOperation(**(row | values))

    def ok(self, *functions: str) -> Iterator[ClientOperation]:
        """The operations that certainly happened; with `functions`, only those."""
        return (row for row in self if row.type == "ok" and (not functions or row.f in functions))


@dataclass(frozen=True)
class BrokenPromise:
    """A contradiction: a name that the checker declares, a sentence, and the operations that contradict each other."""

    name: str
    sentence: str
    operations: tuple[ClientOperation, ...]


class HistoryChecker(ABC):
    """A checker of a user's own. It needs no argument to be made, and judges one run."""

    promise: ClassVar[str]
    """What it checks, in a few words: "every read shows the total"."""
    anomalies: ClassVar[Mapping[str, str]]
    """The names of the contradictions that it can find, each with its meaning in a sentence."""
    needs: ClassVar[Mapping[str, int]] = {}
    """By function: the answered operations without which the run is *unknown*. One operation is always needed."""
    limit_s: ClassVar[float] = DEFAULT_LIMIT_S
    """The time after which a check that has not ended is *unknown*."""

    @abstractmethod
    def check(self, history: RunHistory) -> Iterable[BrokenPromise]:
        """What contradicts the promise: nothing, if the promise is kept. An exception, or None in place of the
        contradictions, makes the run *unknown*."""

    @staticmethod
    def anomaly(name: str, sentence: str, *operations: ClientOperation) -> BrokenPromise:
        """A finding for `check`: a name of `anomalies`, a sentence with what contradicts, and these operations."""
        return BrokenPromise(name, sentence, operations)


def contradictions_of(checker: HistoryChecker, history: RunHistory) -> Iterator[BrokenPromise]:
    """What the checker finds. Raises TypeError for a wrong result, and whatever the checker raises."""
    contradictions = checker.check(history)
    if not isinstance(contradictions, Iterable):  # None: `yield` may have been forgotten
        problem = f"check returned {contradictions!r}; yield each contradiction, or return a list of them"
        raise TypeError(problem)
    for broken in contradictions:
        problem = ""
        if not isinstance(broken, BrokenPromise):
            problem = f"check yielded {broken!r}; yield self.anomaly(name, sentence, *operations)"
        elif broken.name not in checker.anomalies:
            problem = f"check yielded {broken.name!r}, which `anomalies` does not declare"
        if problem and isinstance(contradictions, Generator):
            contradictions.throw(TypeError(problem))  # its traceback has the line of the yield
        if problem:
            raise TypeError(problem)
        yield broken


def load_checker(use: str, text: str) -> HistoryChecker:
    """The checker `parser.py:Class` whose file has this text. Raises OwnClassError."""
    checker_class = class_in(use, text, HistoryChecker, "a checker")  # type: ignore[type-abstract]
    if problem := declaration_problem(checker_class):
        raise OwnClassError(f"{use}.{problem}")
    return made(use, checker_class)


def declaration_problem(class_: type[HistoryChecker]) -> str:
    """What is wrong with the attributes of a checker's class; empty if nothing is."""
    promise, anomalies = getattr(class_, "promise", None), getattr(class_, "anomalies", None)
    if not isinstance(promise, str) or not promise.strip():
        return 'promise: a text is needed, such as "every read shows the total"'
    if not isinstance(anomalies, Mapping) or not anomalies or not _has_texts(anomalies):
        return 'anomalies: names with meanings are needed, such as {"wrong-total": "A read shows another total."}'
    needs, limit_s = class_.needs, class_.limit_s
    counts = isinstance(needs, Mapping) and all(type(count) is int and count > 0 for count in needs.values())
    if not counts or not all(isinstance(name, str) for name in needs):
        return 'needs: functions with positive whole numbers are needed, such as {"read": 10}'
    if type(limit_s) not in (int, float) or not 0 < limit_s <= LONGEST_LIMIT_S:
        return f"limit_s: seconds are needed, more than 0 and at most {LONGEST_LIMIT_S:,.0f}"
    return ""


def _has_texts(mapping: Mapping[Any, Any]) -> bool:
    return all(isinstance(text, str) and text.strip() for pair in mapping.items() for text in pair)
