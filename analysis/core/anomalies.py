"""The registry of checkers: every module in `analysis/checkers/`, and the anomalies that they can name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Final

from analysis import checkers
from analysis.checking import Checker


def discover() -> tuple[Checker, ...]:
    """The checkers in the order in which they run. Raises AttributeError for a module without a `CHECKER`."""
    modules = (f"{checkers.__name__}.{module.name}" for module in pkgutil.iter_modules(checkers.__path__))
    found: list[Checker] = [importlib.import_module(name).CHECKER for name in modules]
    return tuple(sorted(found, key=lambda checker: (checker.place, checker.name)))


def classes_of(found: Iterable[Checker]) -> dict[str, str]:
    """The name of each anomaly and the code of the promise that it breaks.

    Raises ValueError when two checkers mean different things by one name or one code: a report could not be understood.
    """
    kinds: dict[str, str] = {}
    promises: dict[str, str] = {}
    for checker in found:
        for kind in checker.anomalies:
            code = kind.breaks.code
            if kinds.setdefault(kind.name, code) != code:
                raise ValueError(f"{kind.name} is of class {kinds[kind.name]} and, for {checker.name}, of {code}")
            if promises.setdefault(code, kind.breaks.text) != kind.breaks.text:
                raise ValueError(f"class {code} stands for two promises; the second is {checker.name}'s")
    return kinds


CHECKERS: Final = discover()
CLASSES: Final[Mapping[str, str]] = classes_of(CHECKERS)
