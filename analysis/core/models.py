"""Sequential models: what an object answers when its operations follow one another, and which state each leaves.

A history of concurrent operations is linearizable if some order of them, which keeps real time, is one that the model
allows (Herlihy and Wing 1990). `analysis.core.model_search` finds that order. The names of operations are those of
Jepsen's and Knossos' models, and of Porcupine's key-value store.

A model may allow several states after an operation whose answer is unknown: a queue without order may have lost any of
its elements to it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from history.foreign.edn import FormMap, FormSet, Keyword, text_of
from history.record.schemas import INF


class ModelOperation(NamedTuple):
    """One operation on one object.

    `id`: unique in the history; `line`: that of the invocation in the file.
    """

    id: int
    process: int
    f: str
    argument: Hashable
    """As `Model.values` made it from the form in the file."""
    answer: Hashable
    """As the argument; None if the outcome is unknown."""
    inv: int
    """The invocation, in ns."""
    ret: int
    """The return, in ns; `INF` if the outcome is unknown."""
    line: int = 0

    @property
    def is_answered(self) -> bool:
        return self.ret < INF


class Model:
    """A sequential model. States, arguments and answers are hashable, and compared by equality."""

    functions: ClassVar[Mapping[str, bool]]
    """The names of the operations, and whether the completion of each has an answer of its own. The completion of
    another one repeats the invocation."""

    def initial(self, form: Any) -> Hashable:
        """The state at the start; `form`: what the user stated, or None. Raises ValueError with the remedy."""
        raise NotImplementedError

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        """The argument and the answer of an operation, from the forms of a file. Raises ValueError."""
        argument_text = None if argument is None else text_of(argument)
        return argument_text, text_of(answer) if self.functions[f] and is_answered else None

    def step(self, state: Any, operation: ModelOperation) -> Iterable[Hashable]:
        """The states after the operation; none if the model refuses its answer in this state."""
        raise NotImplementedError

    def is_pure(self, operation: ModelOperation) -> bool:
        """Whether the operation leaves every state as it is in which the model allows it."""
        return operation.f in ("read", "get")

    def may_answer(self, state: Any, operation: ModelOperation, between: Iterable[ModelOperation]) -> bool:
        """Whether the model may allow the operation in this state or after some of those `between`. True is always
        right; false ends the search from this state."""
        del state, operation, between
        return True

    def shown(self, operations: Sequence[ModelOperation]) -> Iterable[Hashable] | None:
        """The arguments that answers show. An operation of unknown outcome with another argument, which is not None,
        changes no answer, and is left out. None: the model cannot say."""
        del operations
        return None


class Mutex(Model):
    """A lock without owner: `acquire` takes it if it is free, `release` frees it if it is taken (Knossos' `mutex`)."""

    functions: ClassVar = {"acquire": False, "release": False}

    def initial(self, form: Any) -> Hashable:
        return _nothing_stated(form, False)

    def step(self, state: bool, operation: ModelOperation) -> Iterable[bool]:
        is_taken = operation.f == "acquire"
        return () if state == is_taken else (is_taken,)


class SetModel(Model):
    """A set: `add` of an element, `read` of all elements (Knossos' `set`), and `remove` of an element."""

    functions: ClassVar = {"add": False, "remove": False, "read": True}

    def initial(self, form: Any) -> frozenset[str]:
        return frozenset() if form is None else _elements(form)

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        if f != "read":
            return super().values(f, argument, answer, is_answered=is_answered)
        return None, _elements(answer) if is_answered else None

    def step(self, state: frozenset[str], operation: ModelOperation) -> Iterable[frozenset[str]]:
        if operation.f == "read":
            return (state,) if operation.answer == state else ()
        change: set[Any] = {operation.argument}
        return (state - change if operation.f == "remove" else state | change,)

    def may_answer(self, state: Any, operation: ModelOperation, between: Iterable[ModelOperation]) -> bool:
        if state == operation.answer:
            return True
        needed = {("remove", element) for element in state - operation.answer}
        needed |= {("add", element) for element in operation.answer - state}
        return needed <= {(operation.f, operation.argument) for operation in between}

    def shown(self, operations: Sequence[ModelOperation]) -> Iterable[Hashable]:
        reads = (operation for operation in operations if operation.answer is not None)
        elements: set[Hashable] = {element for read in reads for element in read.answer}  # type: ignore[attr-defined]
        return elements | {operation.argument for operation in operations if operation.f == "remove"}


class FifoQueue(Model):
    """`enqueue` at the end, `dequeue` of the head (Knossos' `fifo-queue`). An answer of nil: the queue was empty."""

    functions: ClassVar = {"enqueue": False, "dequeue": True}

    def initial(self, form: Any) -> Hashable:
        return _nothing_stated(form, ())

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        return super().values(f, enqueued(argument) if f == "enqueue" else None, answer, is_answered=is_answered)

    def step(self, state: tuple[str, ...], operation: ModelOperation) -> Iterable[Hashable]:
        if operation.f == "enqueue":
            return ((*state, operation.argument),)
        if not operation.is_answered:
            return (state[1:],) if state else ()
        if operation.answer == _NIL:
            return () if state else ((),)
        return (state[1:],) if state and state[0] == operation.answer else ()

    def is_pure(self, operation: ModelOperation) -> bool:
        return operation.answer == _NIL

    def shown(self, operations: Sequence[ModelOperation]) -> Iterable[Hashable]:
        return {operation.answer for operation in operations if operation.f == "dequeue"}


class UnorderedQueue(FifoQueue):
    """As the queue with order, but `dequeue` may take any element (Knossos' `unordered-queue`)."""

    def step(self, state: tuple[str, ...], operation: ModelOperation) -> Iterable[Hashable]:
        if operation.f == "enqueue":
            return (tuple(sorted((*state, str(operation.argument)))),)
        if not operation.is_answered:
            return [_without(state, element) for element in sorted(set(state))]
        if operation.answer == _NIL:
            return () if state else ((),)
        return (_without(state, str(operation.answer)),) if operation.answer in state else ()


class CounterModel(Model):
    """`add` of a number, which may be negative, and `read` of the sum (Jepsen's counter)."""

    functions: ClassVar = {"add": False, "read": True}

    def initial(self, form: Any) -> int:
        return 0 if form is None else integer("the initial value", form)

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        if f == "add":
            return integer("the argument of add", argument), None
        return None, integer("the answer of read", answer) if is_answered else None

    def step(self, state: int, operation: ModelOperation) -> Iterable[int]:
        if operation.f == "add":
            return (state + int(operation.argument),)  # type: ignore[call-overload]
        return (state,) if operation.answer == state else ()


class MultiRegister(Model):
    """Several registers, which a `txn` reads and writes at once: `[[:read KEY VALUE] [:write KEY VALUE]]` (Knossos'
    `multi-register`; `:r` and `:w` are read and write). A read of nil says nothing."""

    functions: ClassVar = {"txn": True}
    _STEPS: ClassVar = {"read": "read", "r": "read", "write": "write", "w": "write"}

    def initial(self, form: Any) -> Hashable:
        if form is None:
            return frozenset()
        if not isinstance(form, FormMap):
            raise ValueError("the initial value of several registers is a map such as {:x 0 :y 0}")
        return frozenset((text_of(key), text_of(value)) for key, value in form.items())

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        del f  # always `txn`
        invoked = self._steps(argument)
        if not is_answered:
            return invoked, None
        completed = self._steps(answer)
        is_like = len(invoked) == len(completed) and all(
            (kind, key) == (other, other_key) and (value == other_value or (kind == "read" and value == _NIL))
            for (kind, key, value), (other, other_key, other_value) in zip(invoked, completed, strict=True)
        )
        if not is_like:
            raise ValueError(f"the completion has {text_of(answer)}, but {text_of(argument)} was invoked")
        return invoked, completed

    def step(self, state: frozenset[tuple[str, str]], operation: ModelOperation) -> Iterable[Hashable]:
        values = dict(state)
        for kind, key, value in operation.answer or operation.argument:  # type: ignore[attr-defined]
            if kind == "write":
                values[key] = value
            elif value not in (_NIL, values.get(key, _NIL)):
                return ()
        return (frozenset(values.items()),)

    def is_pure(self, operation: ModelOperation) -> bool:
        return all(kind == "read" for kind, *_ in operation.argument)  # type: ignore[attr-defined]

    def _steps(self, form: Any) -> tuple[tuple[str, str, str], ...]:
        steps = []
        for step in form if isinstance(form, list) else [form]:
            kind = step[0] if isinstance(step, list) and len(step) == 3 else None
            if not isinstance(kind, Keyword) or kind.name not in self._STEPS:
                raise ValueError(f"{text_of(step)} is not a step: [:read KEY VALUE] or [:write KEY VALUE] is needed")
            steps.append((self._STEPS[kind.name], text_of(step[1]), text_of(step[2])))
        return tuple(steps)


class KeyValue(Model):
    """One key of a store of texts: `get`, `put`, `append` and `delete`; an absent key is the empty text (Porcupine's
    key-value store, MIT 6.824)."""

    functions: ClassVar = {"get": True, "put": False, "append": False, "delete": False}

    def initial(self, form: Any) -> str:
        return _text("the initial value", form)

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        if f in ("get", "delete"):
            return None, _text("the answer of get", answer) if f == "get" and is_answered else None
        return _text(f"the argument of {f}", argument), None

    def step(self, state: str, operation: ModelOperation) -> Iterable[str]:
        if operation.f == "get":
            return (state,) if operation.answer == state else ()
        if operation.f == "append":
            return (state + str(operation.argument),)
        return (str(operation.argument) if operation.f == "put" else "",)

    def may_answer(self, state: str, operation: ModelOperation, between: Iterable[ModelOperation]) -> bool:
        answer = str(operation.answer)
        starts = (str(change.argument or "") for change in between if change.f in ("put", "delete"))
        return answer.startswith(state) or any(answer.startswith(start) for start in starts)

    def shown(self, operations: Sequence[ModelOperation]) -> Iterable[Hashable]:
        answers = [str(operation.answer) for operation in operations if operation.answer is not None]
        arguments = {operation.argument for operation in operations}
        return {argument for argument in arguments if any(str(argument) in answer for answer in answers)}


_NIL: Final = "nil"
MODELS: Final[Mapping[str, Model]] = {
    "mutex": Mutex(),
    "set": SetModel(),
    "fifo-queue": FifoQueue(),
    "unordered-queue": UnorderedQueue(),
    "counter": CounterModel(),
    "multi-register": MultiRegister(),
    "key-value": KeyValue(),
}
"""The models by the names that `--model` takes."""


def _nothing_stated(form: Any, state: Hashable) -> Hashable:
    if form is not None:
        raise ValueError("this model has no initial value; leave it out")
    return state


def _elements(form: Any) -> frozenset[str]:
    if isinstance(form, FormSet):
        return frozenset(form.elements)
    if not isinstance(form, list):
        raise ValueError(f"{text_of(form)} is not a set: #{{1 2}} or a vector is needed")
    elements = Counter(map(text_of, form))
    if repeated := next((element for element, count in elements.items() if count > 1), None):
        raise ValueError(f"the answer has {repeated} more than once: this is not a set")
    return frozenset(elements)


def _without(state: tuple[str, ...], element: str) -> tuple[str, ...]:
    at = state.index(element)
    return (*state[:at], *state[at + 1 :])


def enqueued(form: Any) -> Any:
    """The argument of an enqueue. Raises ValueError for nil."""
    if form is None:
        raise ValueError("the argument of enqueue is nil, which is the answer of an empty queue: enqueue other values")
    return form


def integer(role: str, form: Any) -> int:
    """The integer that a form is. Raises ValueError, which names the role."""
    if isinstance(form, bool) or not isinstance(form, int):
        raise ValueError(f"{role} is {text_of(form)}: an integer is needed")
    return form


def _text(role: str, form: Any) -> str:
    if form is not None and not isinstance(form, str):
        raise ValueError(f"{role} is {text_of(form)}: a text is needed")
    return form or ""
