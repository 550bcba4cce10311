"""A user's class of a system in use: what its methods raise is told as any other mistake in the user's files."""

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

# Called where a run is under way, by who can tell that in its record.
_LEFT = "observe"


def telling(found: type[System], directory: Path) -> type[System]:
    """The class, whose methods that are the user's raise nothing unforeseen: `InputError` with file and line instead.
    `directory`: where the user's files lie."""
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
    def told(*given: Any, **named: Any) -> Any:
        try:
            return method(*given, **named)
        except (InputError, ClusterError):  # their words are for people already
            raise
        except (Exception, SystemExit) as error:
            raise InputError(place_within(directory, error, method)) from error

    return told
