"""Wraps a user's class of a system: an exception in its methods becomes an error with file and line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from systems.errors import ClusterError, InputError
from systems.system import System
from workloads.user_module import place_within

# Methods that are called during a run; their callers write errors to the run's journal.
_LEFT = "observe"


def telling(found: type[System], directory: Path) -> type[System]:
    """The class with its user-defined methods wrapped: an unforeseen exception becomes an `InputError` with file and
    line. `directory`: the directory of the user's files."""
    own: dict[str, Any] = {"__module__": found.__module__, "__doc__": found.__doc__}
    for name in dir(System):
        theirs = inspect.getattr_static(found, name)
        if name == _LEFT or (name.startswith("_") and name != "__init__"):
            continue
        if theirs is inspect.getattr_static(System, name):
            continue
        if isinstance(theirs, FunctionType):
            own[name] = _telling(theirs, directory)
        elif isinstance(theirs, property) and theirs.fget is not None:
            own[name] = property(_telling(theirs.fget, directory))
    return cast("type[System]", type(found.__name__, (found,), own))


def _telling(method: Callable[..., Any], directory: Path) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(*given: Any, **named: Any) -> Any:
        try:
            return method(*given, **named)
        except (InputError, ClusterError):  # their messages are meant for users
            raise
        except (Exception, SystemExit) as error:
            raise InputError(place_within(directory, error, method)) from error

    return checked
