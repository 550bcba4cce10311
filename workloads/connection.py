"""Owns a user's client object: makes it when needed, calls it with a timeout, replaces it after unforeseen errors.

A new object may get other endpoints than the one before (`ClientSettings.endpoints_from`). Therefore an object that
only refuses is replaced, too: its node may be dead, or may never accept an operation again.

The object has a thread of its own, so that a call that never returns blocks no other operation: the thread is left
behind, and closes the object if the call returns later.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from installation.sanitize import brief
from workloads.api import Client, Refused
from workloads.contract import ContractError
from workloads.user_module import ClientClassError, place_of, place_of_call

C = TypeVar("C", bound=Client)

MAKE_S: Final = 30.0  # how long the first construction may fail, for example while a node is not reachable
MOST_REFUSALS: Final = 5  # in a row; then the object is replaced
# Exceptions that indicate a mistake in the client's code, not a failure of the system.
MISTAKES: Final = (TypeError, AttributeError, NameError, ImportError, NotImplementedError, SyntaxError, SystemExit)


@dataclass(frozen=True)
class Called:
    """How a call ended. `ok`: with `value`. `fail`: the operation did not happen. `info`: it may have happened.

    `mistake`: `error` is probably a mistake in the client's code; it has file and line. `is_broken`: the method
    returned something that it must not return, as `error` says. `endpoint`: the one that the client names, unchecked.
    """

    outcome: Literal["ok", "fail", "info"]
    value: Any = None
    error: str = ""
    mistake: bool = False
    is_broken: bool = False
    endpoint: str = ""


_Call = Callable[[C], Any]


class _Holder(Generic[C]):
    """One object and its thread."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._client: C | None = None
        self._calls: queue.SimpleQueue[_Call[C] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="client", daemon=True)
        self._thread.start()

    def ask(self, call: _Call[C], patience_s: float) -> Any:
        """The result of the call, or the exception that it raised. Raises `queue.Empty` when it takes too long."""
        self._calls.put(call)
        return self._results.get(timeout=patience_s)

    @property
    def endpoint(self) -> str:
        """The endpoint that the object names, empty without one. A call may be under way that sets it."""
        try:
            named = getattr(self._client, "endpoint", "")
        except Exception:  # a property of the user's class
            return ""
        return named if type(named) is str else ""

    @property
    def place(self) -> str:
        """`file:line: ` that the object executes; empty if it executes nothing of the user's."""
        return place_of_call(self._thread.ident or 0)

    def let_go(self) -> None:
        """Close the object when its current call returns."""
        self._calls.put(None)

    def made(self, patience_s: float) -> Any:
        """None, or the exception of the construction. Raises `queue.Empty`."""
        return self._results.get(timeout=patience_s)

    def _serve(self) -> None:
        # No exception, not even `SystemExit`, may end the thread: the caller would wait without an answer.
        try:
            client = self._client = self._make()
        except BaseException as error:
            self._results.put(error)
            return
        self._results.put(None)
        while (call := self._calls.get()) is not None:
            try:
                self._results.put(call(client))
            except BaseException as error:
                self._results.put(error)
        with contextlib.suppress(BaseException):
            client.close()


class ClientConnection(Generic[C]):
    """`made`: the number of objects so far. Each call has `patience_s` seconds."""

    def __init__(self, make: Callable[[], C], patience_s: float, *, make_s: float = MAKE_S) -> None:
        self._make = make
        self._patience_s = patience_s
        self._make_s = make_s
        self._first_try_s: float | None = None
        self._holder: _Holder[C] | None = None
        self._refusals = 0
        self.made = 0

    def open(self) -> str | None:
        """Make sure that an object exists; None, or the reason why not. Raises `ClientClassError` if it never will."""
        if self._holder is not None:
            return None
        now_s = time.monotonic()
        self._first_try_s = now_s if self._first_try_s is None else self._first_try_s
        holder = _Holder(self._make)
        try:
            error = holder.made(self._patience_s)
        except queue.Empty:
            holder.let_go()
            error = TimeoutError(f"{holder.place}it was not constructed within {self._patience_s:g} s")
        if error is None:
            self._holder = holder
            self.made += 1
            return None
        late = not self.made and time.monotonic() - self._first_try_s > self._make_s
        if late or isinstance(error, MISTAKES):
            raise ClientClassError(f"the client cannot be constructed: {place_of(error)}") from error
        return place_of(error)

    def call(self, call: _Call[C]) -> Called:
        """One operation on the open object. The object is closed after an exception other than `Refused`, after a call
        that does not return, and after `MOST_REFUSALS` refusals in a row."""
        assert self._holder is not None, "open() comes first"
        try:
            result = self._holder.ask(call, self._patience_s)
        except queue.Empty:
            result = TimeoutError(f"{self._holder.place}the client did not return within {self._patience_s:g} s")
        endpoint = self._holder.endpoint
        self._refusals = self._refusals + 1 if isinstance(result, Refused) else 0
        if isinstance(result, Refused):
            if self._refusals >= MOST_REFUSALS:
                self.close()
            return Called("fail", error=_whole_text(str(result)) or "refused", endpoint=endpoint)
        if isinstance(result, BaseException):
            self.close()
            mistake = isinstance(result, MISTAKES)
            is_broken = isinstance(result, ContractError)
            error = _whole_text(place_of(result) if mistake else str(result) if is_broken else _named(result))
            return Called("info", error=error, mistake=mistake, is_broken=is_broken, endpoint=endpoint)
        return Called("ok", result, endpoint=endpoint)

    def close(self) -> None:
        """Close the object; safe to call twice."""
        self._refusals = 0
        if self._holder is not None:
            self._holder.let_go()
            self._holder = None


def _whole_text(text: str) -> str:
    """A user's text that any encoder accepts: bytes that were not valid text are replaced."""
    return text.encode(errors="replace").decode()


def _named(error: BaseException) -> str:
    return brief(f"{type(error).__name__}: {error}", 200)
