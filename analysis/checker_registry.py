"""The registry of checkers (every module in `analysis/checkers/`) and of the anomalies and reasons they declare."""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Final

from analysis import checkers
from analysis.checker import Checker
from analysis.doubt import COMMON, Reason


def discover() -> tuple[Checker, ...]:
    """The checkers in the order in which they run. Raises AttributeError for a module without `CHECKER`."""
    modules = (f"{checkers.__name__}.{module.name}" for module in pkgutil.iter_modules(checkers.__path__))
    found: list[Checker] = [importlib.import_module(name).CHECKER for name in modules]
    return tuple(sorted(found, key=lambda checker: (checker.place, checker.name)))


def classes_of(checkers: Iterable[Checker]) -> dict[str, str]:
    """The code of the broken promise for each anomaly's name.

    Raises ValueError when two checkers use one name or one code for different things: a report would be ambiguous.
    """
    kinds: dict[str, str] = {}
    promises: dict[str, str] = {}
    for checker in checkers:
        for kind in checker.anomalies:
            code = kind.breaks.code
            if kinds.setdefault(kind.name, code) != code:
                raise ValueError(f"{kind.name} is of class {kinds[kind.name]} and, for {checker.name}, of {code}")
            if promises.setdefault(code, kind.breaks.text) != kind.breaks.text:
                raise ValueError(f"class {code} stands for two promises; the second is {checker.name}'s")
    return kinds


def reasons_of(checkers: Iterable[Checker]) -> dict[str, Reason]:
    """Each reason for which a run can be unknown, by its code.

    Raises ValueError when two reasons have the same code: a campaign could not name them.
    """
    reasons: dict[str, Reason] = {}
    for reason in (*COMMON, *(reason_of_checker for checker in checkers for reason_of_checker in checker.reasons)):
        if reasons.setdefault(reason.code, reason) != reason:
            raise ValueError(f"the code {reason.code} stands for two reasons: {reason.meaning}")
    return reasons


CHECKERS: Final = discover()
CLASSES: Final[Mapping[str, str]] = classes_of(CHECKERS)
REASONS: Final[Mapping[str, Reason]] = reasons_of(CHECKERS)
STANDING_ALONE: Final = frozenset(
    kind.breaks.code for checker in CHECKERS for kind in checker.anomalies if kind.breaks.stands_alone
)
"""The classes of anomalies that never follow from another anomaly."""
