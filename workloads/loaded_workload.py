"""Loads a user's workload, checks its parameters and examines each operation that it draws.

Theory of operation. The class is made from the text of its file, which run.toml has (`history/own_classes.py`): when
the campaign is read, and in each client's process. When the campaign is read, the first operations are drawn without a
system, in a thread, because a user's generator may never yield. So a mistake in it is known before anything starts,
with the line of the user's file. A mistake that appears only later ends the client, after everything before it was
recorded.
"""

import ast
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Any, ClassVar, Final, get_origin, get_type_hints

import msgspec

from history.own_classes import OwnClassError, class_in, place_in
from history.regular_files import read_text
from installation.sanitize import brief
from workloads.api import Client
from workloads.contract import json_text
from workloads.own_workload import Operation, OwnWorkload
from workloads.settings import WorkloadFile

DRAWN: Final = 1_000
"""The operations that are drawn before a run starts."""
DRAWN_S: Final = 2.0
"""The time after which no further one is drawn then."""
HANGS_S: Final = 20.0
"""The time after which a generator that does not yield counts as one that never will."""
MOST_LETTERS: Final = 1_000
"""Of a key."""


@dataclass(frozen=True)
class Rehearsal:
    """The first operations of a workload: the share of queries in the load, and the functions that occur."""

    queries_share: float
    functions: frozenset[str]


@dataclass(frozen=True)
class LoadedWorkload:
    """A user's class. `file`: as the campaign names it."""

    file: str
    class_: type[OwnWorkload]
    declared: type[msgspec.Struct]
    """Has a field for each parameter."""

    @classmethod
    def of_text(cls, use: str, text: str) -> "LoadedWorkload":
        """The class `bank.py:Bank` whose file has this text. Raises `OwnClassError`, also for a parameter without a
        valid default."""
        class_ = class_in(use, text, OwnWorkload, "a workload")  # type: ignore[type-abstract]
        file, defaults, name = use.rpartition(":")[0], dict[str, Any](), ""
        if isinstance(class_.queries, str):
            raise OwnClassError(f"{use}.queries: a list of functions is needed, such as [{class_.queries!r}]")
        try:
            hints = parameters_of(class_)
            for name in hints:
                defaults[name] = getattr(class_, name)
                msgspec.convert(msgspec.to_builtins(defaults[name]), hints[name])
            fields = [(key, hints[key], default) for key, default in defaults.items()]
            declared = msgspec.defstruct(class_.__name__, fields, kw_only=True, forbid_unknown_fields=True)
        except (TypeError, NameError, AttributeError, ValueError) as error:
            reason = error if name in defaults or not name else "it has no default; add one"
            place = f"{file}:{_line_in(text, class_.__name__, name)}: {class_.__name__}{name and f'.{name}'}"
            raise OwnClassError(f"{place}: {reason}") from error
        return cls(file, class_, declared)

    @classmethod
    def of_file(cls, file: WorkloadFile) -> "LoadedWorkload":
        """As `of_text`, from the file. Raises `OwnClassError` also if it has another text than when the campaign was
        read."""
        try:
            text = read_text(file.path)
        except (OSError, ValueError) as error:
            raise OwnClassError(f"{file.path}: {error}") from error
        if WorkloadFile.digest(text) != file.sha256:
            raise OwnClassError(f"{file.path} was changed after the campaign was read; start the run again")
        return cls.of_text(file.use, text)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self.declared.__struct_fields__

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters as JSON values: those that are given, and the defaults of the others. Raises ValueError for
        one that does not fit, with its name and the reason."""
        for key, value in given.items():
            try:
                msgspec.convert({key: value}, self.declared)
            except msgspec.ValidationError as error:
                reason = str(error).partition(" - at ")[0].replace("`", "")
                raise ValueError(f"{key}: {brief(repr(value), 40)}: {reason[0].lower()}{reason[1:]}") from None
        values: dict[str, Any] = msgspec.to_builtins(msgspec.convert(dict(given), self.declared))
        return values

    def make(self, parameters: Mapping[str, Any], client: str) -> OwnWorkload:
        """The workload of a client. Raises `OwnClassError`."""
        try:
            workload = self.class_(**parameters)
        except Exception as error:
            raise OwnClassError(f"{self.class_.__name__} cannot be made: {place_in(self.file, error)}") from error
        workload.client = client  # type: ignore[misc]  # of this object
        return workload

    def rehearse(self, parameters: Mapping[str, Any], client_class: type[Client]) -> Rehearsal:
        """Draw the first operations. Raises `OwnClassError` for a mistake in them, and for a generator that does not
        yield."""
        ended: list[Rehearsal | BaseException] = []

        def draw() -> None:
            try:
                ended.append(self._rehearsal(self.make(parameters, "client-1"), client_class))
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=draw, name="rehearsal", daemon=True)
        thread.start()
        thread.join(HANGS_S)
        if not ended:
            raise OwnClassError(self.hanging(thread.ident or 0, HANGS_S))
        if isinstance(ended[0], BaseException):
            raise ended[0]
        return ended[0]

    def hanging(self, thread: int, limit_s: float) -> str:
        """A sentence about a generator that a thread has been in for this time, with its line."""
        place = _place_of(self.file, sys._current_frames().get(thread))
        return f"{place}: {self.class_.__name__} yields nothing: it still runs after {limit_s:g} s"

    def _rehearsal(self, made: OwnWorkload, client_class: type[Client]) -> Rehearsal:
        first_query = self.final(made, client_class).next()
        drawn, give_up_s = self.operations(made, client_class, Random(0)), time.monotonic() + DRAWN_S
        functions: list[str] = []
        while len(functions) < DRAWN and (not functions or time.monotonic() < give_up_s):
            if (operation := drawn.next()) is None:
                break
            functions.append(operation.function)
        for name in made.queries:
            if not callable(getattr(client_class, name, None)):
                raise OwnClassError(
                    f"{self.file}: {self.class_.__name__}.queries has {name!r}, and {client_class.__name__} has no "
                    f"such method; the operations are {', '.join(sorted({*functions}))}"
                )
        queries_share = sum(function in made.queries for function in functions) / len(functions)
        return Rehearsal(queries_share, frozenset(functions + ([first_query.function] if first_query else [])))

    def operations(self, made: OwnWorkload, client_class: type[Client], random: Random) -> "DrawnOperations":
        """The operations of a client under load."""
        return DrawnOperations(self.file, made.operations, lambda: made.operations(random), client_class)

    def final(self, made: OwnWorkload, client_class: type[Client]) -> "DrawnOperations":
        """The operations of the final read."""
        return DrawnOperations(self.file, made.final, made.final, client_class)


class DrawnOperations:
    """The operations that one method of a workload yields. `file`: the user's; `client_class`: has a method for each
    function. `count`: those that were drawn."""

    def __init__(
        self,
        file: str,
        method: Callable[..., Any],
        draw: Callable[[], Iterable[Operation]],
        client_class: type[Client],
    ) -> None:
        self.count = 0
        self._file = file
        self._method = method
        self._draw = draw
        self._client_class = client_class
        self._drawn: Iterator[Any] | None = None

    def next(self, result: Any = None) -> Operation | None:
        """The next operation; None after the last one. `result`: of the one before, None if it is not known to have
        happened. Raises `OwnClassError`, also if there is not a single operation."""
        try:
            if self._drawn is None:
                self._drawn = iter(self._draw())
            drawn = self._drawn
            operation = drawn.send(result) if self.count and isinstance(drawn, Generator) else next(drawn)
        except StopIteration:
            if not self.count:
                raise self._error("yields nothing; yield an Operation") from None
            return None
        except Exception as error:
            raise OwnClassError(f"{self._method.__qualname__}: {place_in(self._file, error)}") from error
        self.count += 1
        if problem := self._problem(operation):
            raise self._error(f"yielded {problem}")
        checked: Operation = operation
        return checked

    def unended(self) -> str:
        """That the method has not ended, with its line."""
        return str(self._error(f"has yielded {self.count:,} operations and continues"))

    def _problem(self, operation: Any) -> str:
        if not isinstance(operation, Operation):
            return f"{brief(repr(operation), 100)}; yield Operation(function, argument, key)"
        name, client = operation.function, self._client_class
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or hasattr(Client, name):
            return f"the function {brief(repr(name), 100)}, which cannot be the name of a client's method"
        if not callable(getattr(client, name, None)):
            return f"the function {name!r}; {client.__name__} has no such method"
        if not isinstance(operation.key, str) or len(operation.key) > MOST_LETTERS or not operation.key.isprintable():
            return f"the key {brief(repr(operation.key), 100)}; a text of at most {MOST_LETTERS:,} letters is needed"
        try:
            json_text(operation.argument)
        except ValueError as error:
            return f"{name} with the argument {brief(repr(operation.argument), 100)}: {error}"
        return ""

    def _error(self, problem: str) -> OwnClassError:
        """With the line of the last yield, or of the method."""
        frame, code = getattr(self._drawn, "gi_frame", None), getattr(self._method, "__code__", None)
        line = "" if code is None else f":{code.co_firstlineno}"
        place = f"{self._file}{line}" if frame is None else _place_of(self._file, frame)
        return OwnClassError(f"{place}: {self._method.__qualname__} {problem}")


def parameters_of(class_: type[OwnWorkload]) -> dict[str, Any]:
    """The types of the parameters by name: of the attributes that are annotated, public and the class's own."""
    hints = get_type_hints(class_, include_extras=True)
    own_names = [name for name in hints if not name.startswith("_") and not hasattr(OwnWorkload, name)]
    return {name: hints[name] for name in own_names if get_origin(hints[name]) is not ClassVar}


def _place_of(file: str, frame: FrameType | None) -> str:
    """`bank.py:7`: the innermost line of the file that is executed."""
    lines = [each.lineno for each in traceback.extract_stack(frame) if each.filename == file] if frame else []
    return f"{file}:{lines[-1]}" if lines else file


def _line_in(text: str, class_name: str, attribute: str) -> int:
    """The line of an annotated attribute of a class, or of the class."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            annotated = (item for item in node.body if isinstance(item, ast.AnnAssign))
            return next((item.lineno for item in annotated if ast.unparse(item.target) == attribute), node.lineno)
    return 1
