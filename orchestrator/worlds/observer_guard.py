"""Guards calls of a user-defined observer: each runs in a separate thread with a deadline.

An exception or a missing answer ends the run as unknown, with file and line. Otherwise a state that the observer failed
to see would count as a state that the cluster did not reach.
"""

import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

from orchestrator.errors import RunError
from systems import Elector, InputError, Member, Observer, PartitionState, System, View
from workloads.user_module import own_line, place_within

ANSWER_S: Final = 10.0
ELECT_S: Final = 30.0  # several requests, one after the other

R = TypeVar("R")

_late: list[threading.Thread] = []


def is_any_stuck() -> bool:
    """Whether a call that exceeded its deadline is still running."""
    return any(thread.is_alive() for thread in _late)


def observe(system: System, members: Sequence[Member], topic: str, time_scale: float) -> Observer:
    """The observer of a system's cluster; a user-defined one is guarded, since its calls may hang."""
    description = system.description
    if description.class_name is None or not description.own_directory:
        return system.observe(members, topic, time_scale)
    guarded = _OwnElector if system.elects else _OwnObserver
    return guarded(system, members, topic, time_scale)


class _Call:
    """One call of the observer and its outcome."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.ended = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None


class _OwnObserver:
    """Created in its thread at the first call, since that is user code, too. Every method raises `RunError`."""

    def __init__(self, system: System, members: Sequence[Member], topic: str, time_scale: float) -> None:
        self._system = system
        self._make: Callable[[], Any] = lambda: system.observe(members, topic, time_scale)
        self._time_scale = time_scale
        self._observer: Any = None
        self._late: str | None = None
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        # A daemon thread: a call may never return.
        self._thread = threading.Thread(target=self._serve, name="own-observer", daemon=True)
        self._thread.start()

    def view(self) -> View:
        view = self._ask("view", lambda observer: observer.view(), ANSWER_S)
        if (problem := _problem(view)) is not None:
            frame = self._observer.view
            raise RunError(f"{own_line(self._system.description.directory, frame)}view() of the observer: {problem}")
        assert isinstance(view, View)
        return view

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        within_s = timeout_s / self._time_scale + ANSWER_S
        complaint: str | None = self._ask(
            "create_topic", lambda observer: observer.create_topic(assignment, timeout_s), within_s
        )
        return complaint

    def close(self) -> None:
        try:
            if self._observer is not None and self._late is None:
                self._ask("close", lambda observer: observer.close(), ANSWER_S)
        finally:
            self._calls.put(None)

    def _ask(self, method: str, function: Callable[[Any], R], within_s: float) -> R:
        if self._late is not None:
            raise RunError(self._late)
        call, patience_s = _Call(function), within_s * self._time_scale
        self._calls.put(call)
        if not call.ended.wait(patience_s):
            frame = sys._current_frames().get(self._thread.ident or 0)
            place = own_line(self._system.description.directory, frame)
            _late.append(self._thread)
            self._late = (
                f"{place}{method}() of the observer did not return within {patience_s:g} s; it is still running"
            )
            raise RunError(self._late)
        if isinstance(call.error, InputError):  # its message is written for the user already
            raise RunError(str(call.error)) from call.error
        if call.error is not None:
            place = place_within(self._system.description.directory, call.error)
            raise RunError(f"{method}() of the observer raised: {place}") from call.error
        value: R = call.value
        return value

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                if self._observer is None:
                    self._observer = self._make()
                call.value = call.function(self._observer)
            except BaseException as error:  # passed to the caller, even `SystemExit`
                call.error = error
            call.ended.set()


class _OwnElector(_OwnObserver):
    def elect(self, node: str, partition: int | None) -> str | None:
        complaint: str | None = self._ask("elect", lambda observer: _elect(observer, node, partition), ELECT_S)
        return complaint


def _elect(observer: Any, node: str, partition: int | None) -> str | None:
    if not isinstance(observer, Elector):
        raise InputError(f"{type(observer).__name__} has no elect(), though the system's class says what it elects")
    return observer.elect(node, partition)


def _problem(view: object) -> str | None:
    """What is wrong with a returned view, or None."""
    if not isinstance(view, View):
        return f"it returned {type(view).__name__} and no View"
    if not (view.controller is None or isinstance(view.controller, str)):
        return f"controller is {view.controller!r}, and must be a node's name or None"
    if not isinstance(view.unfenced, AbstractSet):
        return f"unfenced is a {type(view.unfenced).__name__}, and must be a frozenset of nodes' names"
    partitions: object = view.partitions
    if not isinstance(partitions, Mapping) or not all(isinstance(part, PartitionState) for part in partitions.values()):
        return "partitions must have a PartitionState for each number"
    if not isinstance(view.complaints, tuple) or not all(isinstance(complaint, str) for complaint in view.complaints):
        return "complaints must be a tuple of texts"
    return None
