"""The general search for an order that explains a register's operations, compare-and-sets included.

After Wing and Gong (1993) and Lowe (2017), but a configuration is not the set of all operations that took effect. It is
(next return that is not yet satisfied, which of the operations open then took effect, state). Its size follows the
concurrency, not the length of the history. What keeps the search narrow, and why each is sound:

- A legal read or mismatch takes effect at once: it changes nothing, and later it may be illegal.
- An operation that may have happened is never forced. Among those with the same effect the earliest comes first; a
  configuration that used a subset of another's, all else equal, has every future that the other has.
- A value that no operation saw or expected is like any other such value. Unless a mismatch needs it to be visible, its
  write can take effect just before the next write that does, so all open ones do so together.
- A value written once never returns. So the state leaves it only when every operation that saw it was open by then, and
  only by the one compare-and-set that took it if there is one. The state does not enter it after an operation must have
  seen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from analysis.core.register_operations import Operation, OutOfBudget, is_pure, is_sure, seen_values, written
from history.schemas import CAS, INFO, OK, WRITE

_NIL: Final = 0
_UNSEEN: Final = 1


def search(operations: Sequence[Operation], budget: int) -> list[Operation] | None:
    """An order of the operations that explains them; None if no order does.

    `operations` are those that happened, that may have happened (no reads among them), and mismatches. Raises
    OutOfBudget after `budget` configurations.
    """
    return _Search(_Problem(_useful(operations)), budget).run()


def _useful(operations: Sequence[Operation]) -> list[Operation]:
    """The operations without those that may have happened and that no other operation depends on."""
    remaining = sorted(operations, key=lambda each: (each.inv, each.id))
    while not any(is_sure(each) for each in remaining):
        seen = seen_values(remaining)
        useful = [each for each in remaining if each.type != INFO or written(each) in seen]
        if len(useful) == len(remaining):
            break
        remaining = useful
    return remaining


class _Problem:
    """A key's operations as numbers: the order of their returns, the open ones at each return, and the states they
    need."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        seen = seen_values(operations)
        codes: dict[int | None, int] = {None: _NIL}
        for value in seen:
            codes.setdefault(value, len(codes) + 1)
        self.writes = [codes.get(written(each), _UNSEEN) for each in operations]
        self.wants = [-1 if each.f == WRITE else codes[_awaited(each)] for each in operations]
        self.hides_unseen = not any(is_sure(each) for each in operations)
        self.returns: list[int] = []
        self.bit = [0] * len(operations)
        self.returned = [0] * len(operations)  # the index in `returns`
        self.since = [0] * len(operations)  # how many returns were before its invocation
        self.pure: list[list[int]] = []
        self.changing: list[list[int]] = []
        self._lay_out()
        self.infos = [at for at, each in enumerate(operations) if each.type == INFO]
        self._bounds(len(codes) + 1)
        self._link_infos()

    def _lay_out(self) -> None:
        """Gives each returning operation a slot while it is open, and notes the open operations at each return."""
        events = []
        for at, each in enumerate(self.operations):
            events.append((each.inv, 0, at))
            if each.type != INFO:
                events.append((each.ret, 1, at))
        free: list[int] = []
        slots = 0
        open_now: dict[int, None] = {}
        for _, is_return, at in sorted(events):
            self_open = self.operations[at].type != INFO
            if is_return:
                self.returned[at] = len(self.returns)
                self.returns.append(at)
                self.pure.append([each for each in open_now if is_pure(self.operations[each])])
                self.changing.append([each for each in open_now if not is_pure(self.operations[each])])
                del open_now[at]
                free.append(self.bit[at])
                continue
            self.since[at] = len(self.returns)
            if self_open:
                if not free:
                    free.append(1 << slots)
                    slots += 1
                self.bit[at] = free.pop()
                open_now[at] = None

    def _bounds(self, states: int) -> None:
        """For each state that cannot return: from which return on and by which operation it may be left, and the last
        return before which it may be entered."""
        end = len(self.returns)
        self.leave_from = [0] * states
        self.taker = [-1] * states
        self.enter_until = [end] * states
        self.contradicted = False
        writers = [0] * states
        self.writer = [-1] * states
        for at, each in enumerate(self.operations):
            if not is_pure(each):
                writers[self.writes[at]] += 1
                self.writer[self.writes[at]] = at
        for at, each in enumerate(self.operations):
            state = self.wants[at]
            if each.type != OK or state < 0 or writers[state] > 1:
                continue
            self.enter_until[state] = min(self.enter_until[state], self.returned[at])
            if each.f == CAS:
                self.contradicted |= self.taker[state] >= 0
                self.taker[state] = at
            else:
                self.leave_from[state] = max(self.leave_from[state], self.since[at])

    def _link_infos(self) -> None:
        """Gives each operation that may have happened its own bit, and the previous one with the same effect."""
        self.same_before = [0] * len(self.operations)
        last: dict[tuple[int, int, int], int] = {}
        for number, at in enumerate(self.infos):
            effect = (self.operations[at].f, self.wants[at], self.writes[at])
            self.same_before[at] = last.get(effect, 0)
            self.bit[at] = last[effect] = 1 << number


def _awaited(operation: Operation) -> int | None:
    return operation.expected if operation.f == CAS else operation.value


@dataclass
class _Frame:
    """A configuration on the current path: `mark` is how long the order was before the step that led to it."""

    index: int
    mask: int
    used: int
    state: int
    steps: Iterator[int]
    mark: int


@dataclass
class _Search:
    problem: _Problem
    budget: int
    visited: int = 0
    order: list[int] = field(default_factory=list)
    known: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    absorbed: dict[tuple[int, int], tuple[int, list[int]]] = field(default_factory=dict)

    def run(self) -> list[Operation] | None:
        problem, end = self.problem, len(self.problem.returns)
        if problem.contradicted:
            return None
        index, mask = self._advance(0, 0, _NIL)
        path = [self._frame(index, mask, 0, _NIL, 0)] if index < end else []
        while path:
            frame = path[-1]
            at = next(frame.steps, -1)
            if at < 0:
                path.pop()
                del self.order[frame.mark :]
                continue
            mark = len(self.order)
            reached = self._step(frame, at)
            if reached is not None:
                index, mask, used, state = reached
                if index == end:
                    break
                if self._is_new(index, mask, used, state):
                    path.append(self._frame(index, mask, used, state, mark))
                    continue
            del self.order[mark:]
        return [problem.operations[at] for at in self.order] if index == end else None

    def _frame(self, index: int, mask: int, used: int, state: int, mark: int) -> _Frame:
        return _Frame(index, mask, used, state, iter(self._steps(index, mask, used, state)), mark)

    def _steps(self, index: int, mask: int, used: int, state: int) -> list[int]:
        """The operations that may take effect next, the most likely first."""
        problem = self.problem
        if index < problem.leave_from[state]:
            return []
        taker = problem.taker[state]
        if taker >= 0:
            return [taker] if taker in problem.changing[index] and not mask & problem.bit[taker] else []
        due = problem.returns[index]
        likely = due if problem.wants[due] < 0 else problem.writer[problem.wants[due]]
        steps = []
        unseen = False
        for at in problem.changing[index]:
            if mask & problem.bit[at] or not self._may(at, index, state):
                continue
            if problem.hides_unseen and problem.writes[at] == _UNSEEN and problem.wants[at] < 0:
                # All of them take effect together; any of them represents the step.
                if unseen:
                    continue
                unseen = True
            steps.append(at)
        for at in problem.infos:
            if problem.since[at] > index:
                break
            before = problem.same_before[at]
            if not used & problem.bit[at] and (not before or used & before) and self._may(at, index, state):
                steps.append(at)
        return sorted(steps, key=lambda at: at not in (due, likely))

    def _may(self, at: int, index: int, state: int) -> bool:
        problem = self.problem
        wants, into = problem.wants[at], problem.writes[at]
        return (wants < 0 or wants == state) and index <= problem.enter_until[into]

    def _step(self, frame: _Frame, at: int) -> tuple[int, int, int, int] | None:
        """The configuration after an operation took effect."""
        problem = self.problem
        mask, used = frame.mask, frame.used
        if problem.hides_unseen and problem.wants[at] < 0:
            for each in problem.changing[frame.index]:
                hidden = problem.writes[each] == _UNSEEN and problem.wants[each] < 0
                if hidden and each != at and not mask & problem.bit[each]:
                    mask |= problem.bit[each]
                    self.order.append(each)
        if problem.operations[at].type == INFO:
            used |= problem.bit[at]
        else:
            mask |= problem.bit[at]
        self.order.append(at)
        state = problem.writes[at]
        index, mask = self._advance(frame.index, mask, state)
        return index, mask, used, state

    def _advance(self, index: int, mask: int, state: int) -> tuple[int, int]:
        """Applies every legal read and mismatch, and passes the returns that are satisfied."""
        problem = self.problem
        while index < len(problem.returns):
            bits, legal = self._legal(index, state)
            if bits & ~mask:
                self.order += [at for at in legal if not mask & problem.bit[at]]
                mask |= bits
            due = problem.bit[problem.returns[index]]
            if not mask & due:
                break
            mask ^= due
            index += 1
        return index, mask

    def _legal(self, index: int, state: int) -> tuple[int, list[int]]:
        found = self.absorbed.get((index, state))
        if found is None:
            problem = self.problem
            legal = [
                at for at in problem.pure[index] if (problem.wants[at] != state) == is_sure(problem.operations[at])
            ]
            bits = 0
            for at in legal:
                bits |= problem.bit[at]
            found = self.absorbed[index, state] = (bits, legal)
        return found

    def _is_new(self, index: int, mask: int, used: int, state: int) -> bool:
        """Whether no visited configuration has every future of this one. Raises OutOfBudget."""
        others = self.known.setdefault((index, mask, state), [])
        if any(other & used == other for other in others):
            return False
        others[:] = [other for other in others if other & used != used]
        others.append(used)
        self.visited += 1
        if self.visited > self.budget:
            raise OutOfBudget
        return True
