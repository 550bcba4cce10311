"""Loads a class of a user's own from the text of its file, which the record of a run keeps.

Theory of operation. A run stores the text of its own classes in run.toml. So a stored run can be judged by the same
text on any machine, and two runs can be compared. The text is compiled under the name that the campaign has for its
file, so errors name the user's file and line. It can import installed packages and `brownout_api`, and no file beside
it.
"""

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import TypeVar

C = TypeVar("C")

LOAD_LIMIT_S = 30.0
"""How long the top level of a user's module may run."""


class OwnClassError(Exception):
    """A user's class cannot be loaded, or it failed; the message has its file and line."""


@contextlib.contextmanager
def load_limit() -> Iterator[None]:
    """Raises TimeoutError at the line of a user's module whose top level does not end. Only in the main thread, where a
    campaign is read before anything starts: elsewhere, no signal arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TimeoutError(f"its top level still runs after {LOAD_LIMIT_S:g} s; move the work into a function")

    handler = signal.signal(signal.SIGALRM, end)
    timer = signal.setitimer(signal.ITIMER_REAL, LOAD_LIMIT_S, LOAD_LIMIT_S)  # again: the module may catch the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def class_in(use: str, text: str, base: type[C], meant: str) -> type[C]:
    """The class `parser.py:Class`, derived from `base`, whose file has this text. `meant`: what it should be, for
    messages. Raises OwnClassError."""
    file, _, class_name = use.rpartition(":")
    module = ModuleType(f"brownout_own_{abs(hash((file, text)))}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look there for the types of their fields
    try:
        with load_limit():
            exec(compile(text, file, "exec"), module.__dict__)
    except KeyboardInterrupt:
        raise  # Ctrl-C ends the command
    except BaseException as error:  # also `SystemExit`, and that of `pytest.importorskip`
        raise OwnClassError(f"it cannot be loaded: {place_in(file, error)}") from error
    own_class = getattr(module, class_name, None)
    if not isinstance(own_class, type) or not issubclass(own_class, base):
        problem = "has no" if own_class is None else "has another thing of the name"
        raise OwnClassError(f"{file} {problem} {class_name}; {meant} is a subclass of brownout_api.{base.__name__}")
    return own_class


def made(use: str, own_class: type[C]) -> C:
    """An object of a user's class, made without arguments. Raises OwnClassError."""
    file, _, class_name = use.rpartition(":")
    try:
        return own_class()
    except Exception as error:
        raise OwnClassError(f"{class_name} cannot be made: {place_in(file, error)}") from error


def place_in(file: str, error: BaseException) -> str:
    """An error of the text of `file` as `parser.py:7: KeyError: 'x'`: the last line of this file that led to it."""
    if isinstance(error, SyntaxError):
        return f"{file}{f':{error.lineno}' if error.lineno else ''}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}{f':{lines[-1]}' if lines else ''}: {type(error).__name__}: {error}"
