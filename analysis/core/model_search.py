"""The search for an order that a sequential model allows (Wing and Gong 1993, with the memory of Lowe 2017).

Theory of operation. A configuration is the set of operations that have their place, and the state that they left. An
operation may be next if none without a place returned before it was invoked. The search goes depth first, and enters
no configuration twice. Three rules make it small, and lose no order:

- an operation that leaves the state as it is takes its place as soon as its answer fits;
- of the operations of unknown outcome with one name and argument, the one that was invoked first is taken first;
- an operation of unknown outcome that no answer shows is left out (`Model.shown`).

Theory of the witness. The history up to a moment is the operations that were invoked before it, those that returned
later being of unknown outcome. If a history up to a moment has no order, one up to a later moment has none either. So
bisection finds the first return with which there is none. Operations that leave the state as it is are then removed
from this history, as long as the rest has no order.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from analysis.core.models import Model, ModelOperation
from analysis.core.register_operations import OutOfBudget
from history.record.schemas import INF

WITNESS_BUDGET: Final = 20_000
"""The configurations of each search for a smaller witness."""
MOST_TRIED: Final = 200
"""The searches for a smaller witness."""


class WrongOrderError(ValueError):
    """An order does not explain its operations; the message says why."""


def search(
    model: Model, initial: Hashable, operations: Sequence[ModelOperation], budget: int
) -> list[ModelOperation] | None:
    """An order of the operations that the model allows, or None. Operations of unknown outcome may be missing in it.
    Raises `OutOfBudget` after `budget` configurations."""
    return _Search(model, operations, budget).run(initial)


def require_order(
    model: Model, initial: Hashable, operations: Sequence[ModelOperation], order: Sequence[ModelOperation]
) -> None:
    """Raises `WrongOrderError` unless this order explains the operations: it has each answered one once, and no other
    one twice; none of them returned before an earlier one was invoked; the model allows each step."""
    if len(set(order)) != len(order) or not set(order) <= set(operations):
        raise WrongOrderError("it has an operation twice, or one that the history does not have")
    if missing := {operation for operation in operations if operation.is_answered} - set(order):
        raise WrongOrderError(f"the operation of line {min(operation.line for operation in missing)} is missing")
    latest, states = -1, {initial}
    for operation in order:
        if operation.ret < latest:
            raise WrongOrderError(f"the operation of line {operation.line} returned before an earlier one was invoked")
        latest = max(latest, operation.inv)
        states = {next_state for state in states for next_state in model.step(state, operation)}
        if not states:
            raise WrongOrderError(f"the model refuses the operation of line {operation.line} in its place")


def witness(
    model: Model, initial: Hashable, operations: Sequence[ModelOperation], budget: int = WITNESS_BUDGET
) -> tuple[ModelOperation, list[ModelOperation]]:
    """Of a history without an order: the answered operation whose return leaves none, and the operations that have no
    order, it among them. `budget`: of each search for a smaller one."""
    answered = (operation for operation in operations if operation.is_answered)
    returns = sorted(answered, key=lambda operation: operation.ret)
    remaining, guilty = list(operations), returns[-1]
    first, last = 0, len(returns) - 1
    while first < last:
        middle = (first + last) // 2
        earlier = until(operations, returns[middle].ret)
        if _is_refuted(model, initial, earlier, budget):
            remaining, guilty, last = earlier, returns[middle], middle
        else:
            first = middle + 1
    return guilty, _without_needless(model, initial, remaining, guilty, budget)


def _without_needless(
    model: Model, initial: Hashable, operations: list[ModelOperation], guilty: ModelOperation, budget: int
) -> list[ModelOperation]:
    """Without operations that leave the state as it is and are not needed for the contradiction: in large groups first,
    then in smaller ones."""
    candidates = [operation for operation in operations if model.is_pure(operation) and operation.id != guilty.id]
    size, tries = len(candidates), 0
    while size and tries < MOST_TRIED:
        for start in range(0, len(candidates), size):
            group = {candidate.id for candidate in candidates[start : start + size]}
            fewer = [operation for operation in operations if operation.id not in group]
            tries += 1
            if _is_refuted(model, initial, fewer, budget):
                operations = fewer
        remaining_ids = {operation.id for operation in operations}
        candidates = [candidate for candidate in candidates if candidate.id in remaining_ids]
        size = min(size, len(candidates)) // 2
    return operations


def until(operations: Iterable[ModelOperation], moment: int) -> list[ModelOperation]:
    """The history up to a moment: what was invoked by then, without the answers that came later."""
    return [
        operation if operation.ret <= moment else operation._replace(ret=INF, answer=None)
        for operation in operations
        if operation.inv <= moment
    ]


def _is_refuted(model: Model, initial: Hashable, operations: Sequence[ModelOperation], budget: int) -> bool:
    try:
        return search(model, initial, operations, budget) is None
    except OutOfBudget:
        return False


class _Configuration(NamedTuple):
    """The operations that have a place, and the state after them."""

    low: int
    """All answered operations before this number have a place."""
    placed: int
    """A bit for each answered operation from `low` on."""
    used: int
    """A bit for each operation of unknown outcome."""
    state: Hashable


class _Frame(NamedTuple):
    """A configuration with the moves that are not tried yet. `length`: of the order that led to it."""

    moves: Iterator[tuple[_Configuration, ModelOperation]]
    length: int


class _Search:
    def __init__(self, model: Model, operations: Sequence[ModelOperation], budget: int) -> None:
        shown = model.shown(operations)
        shown_arguments = None if shown is None else set(shown)
        self._model = model
        self._budget = budget
        ordered = sorted(operations, key=lambda operation: (operation.inv, operation.id))
        self._answered = [operation for operation in ordered if operation.is_answered]
        self._classes: dict[tuple[str, Hashable], list[tuple[int, ModelOperation]]] = {}
        unanswered = (
            operation
            for operation in ordered
            if not operation.is_answered
            and not model.is_pure(operation)
            and (shown_arguments is None or operation.argument is None or operation.argument in shown_arguments)
        )
        for number, operation in enumerate(unanswered):
            self._classes.setdefault((operation.f, operation.argument), []).append((number, operation))
        self._next_pure = [len(self._answered)] * (len(self._answered) + 1)
        """The number of the first operation from each one on that leaves the state as it is."""
        for at in reversed(range(len(self._answered))):
            self._next_pure[at] = at if model.is_pure(self._answered[at]) else self._next_pure[at + 1]
        self._order: list[ModelOperation] = []
        self._entered: set[_Configuration] = set()

    def run(self, initial: Hashable) -> list[ModelOperation] | None:
        frame = self._enter(_Configuration(0, 0, 0, initial))
        stack = [frame] if frame is not None else []
        while stack:
            if stack[-1].moves is _END:
                return self._order
            move = next(stack[-1].moves, None)
            del self._order[stack[-1].length :]
            if move is None:
                stack.pop()
                continue
            configuration, operation = move
            self._order.append(operation)
            frame = self._enter(configuration)
            if frame is not None:
                stack.append(frame)
        return None

    def _enter(self, configuration: _Configuration) -> _Frame | None:
        """The frame of a configuration in which all operations that leave the state and fit have their place; None if
        it was entered before, or an answer is out of reach."""
        while True:
            window, deadline, end = self._window(configuration)
            fitting = [
                at
                for at in window
                if self._model.is_pure(self._answered[at])
                and any(True for _ in self._model.step(configuration.state, self._answered[at]))
            ]
            if not fitting:
                break
            for at in fitting:
                self._order.append(self._answered[at])
                configuration = _placed(configuration, at, configuration.state)
        if configuration in self._entered or not self._may_go_on(configuration, window, end):
            return None
        self._entered.add(configuration)
        if len(self._entered) > self._budget:
            raise OutOfBudget
        moves = self._moves(configuration, window, deadline) if window else _END
        return _Frame(moves, len(self._order))

    def _may_go_on(self, configuration: _Configuration, window: Sequence[int], end: int) -> bool:
        """Whether the operations that leave the state, those that may be next and the one after them, may still get
        their answers."""
        pure = [at for at in window if self._model.is_pure(self._answered[at])]
        pure += [self._next_pure[end]] if self._next_pure[end] < len(self._answered) else []
        return all(
            self._model.may_answer(
                configuration.state, self._answered[at], self._between(configuration, self._answered[at].ret)
            )
            for at in pure
        )

    def _between(self, configuration: _Configuration, moment: int) -> Iterator[ModelOperation]:
        """The operations without a place that were invoked up to a moment."""
        placed = configuration.placed
        for at in range(configuration.low, len(self._answered)):
            if self._answered[at].inv > moment:
                break
            if not placed & 1:
                yield self._answered[at]
            placed >>= 1
        for members in self._classes.values():
            yield from (operation for number, operation in members if not configuration.used >> number & 1)

    def _window(self, configuration: _Configuration) -> tuple[list[int], int, int]:
        """The answered operations that may be next, the earliest return among those without a place, and the number of
        the first operation that was invoked after it: no operation from there on has a place."""
        at, deadline, window = configuration.low, INF, []
        placed = configuration.placed
        while at < len(self._answered) and self._answered[at].inv <= deadline:
            if not placed & 1:
                window.append(at)
                deadline = min(deadline, self._answered[at].ret)
            placed >>= 1
            at += 1
        while at > configuration.low and self._answered[at - 1].inv > deadline:
            at -= 1
        return [at for at in window if self._answered[at].inv <= deadline], deadline, at

    def _moves(
        self, configuration: _Configuration, window: Sequence[int], deadline: int
    ) -> Iterator[tuple[_Configuration, ModelOperation]]:
        state = configuration.state
        for at in sorted(window, key=lambda at: self._answered[at].ret):
            operation = self._answered[at]
            if not self._model.is_pure(operation):
                for next_state in self._model.step(state, operation):
                    yield _placed(configuration, at, next_state), operation
        for members in self._classes.values():
            without_place = (member for member in members if not configuration.used >> member[0] & 1)
            for number, operation in islice(without_place, 1):
                for next_state in self._model.step(state, operation) if operation.inv <= deadline else ():
                    yield configuration._replace(used=configuration.used | 1 << number, state=next_state), operation


_END: Final[Iterator[tuple[_Configuration, ModelOperation]]] = iter(())
"""Instead of the moves of a configuration in which every answered operation has its place."""


def _placed(configuration: _Configuration, at: int, state: Hashable) -> _Configuration:
    low, placed = configuration.low, configuration.placed | 1 << at - configuration.low
    while placed & 1:
        low, placed = low + 1, placed >> 1
    return _Configuration(low, placed, configuration.used, state)
