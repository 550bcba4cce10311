"""Finds the kinds of fault: the classes in the files of `nemeses/kinds/`; no other list of them exists."""

import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

import nemeses.kinds
from nemeses.kind import Kind, Need

AnyKind = Kind[Any]
_NEEDED = ("name", "action", "proven_by", "mechanism", "destroys", "group", "mark")


class RegistrationError(Exception):
    """An incomplete kind of fault; the message has its file and what it lacks."""


def discover(package: ModuleType) -> dict[str, AnyKind]:
    """The kinds of fault in a package by name, sorted by name. Raises `RegistrationError`."""
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    kinds: dict[str, AnyKind] = {}
    for kind in sorted(itertools.chain.from_iterable(map(_kinds_in, modules)), key=lambda kind: kind.name):
        if kind.name in kinds:
            raise RegistrationError(f"two classes define the kind {kind.name!r}: the second is in {kind.__module__}")
        kinds[kind.name] = kind
    _script_words(kinds)
    return kinds


def _kinds_in(module: ModuleType) -> list[AnyKind]:
    """The kinds that a file defines, at least one."""
    classes = [
        member
        for member in vars(module).values()
        if inspect.isclass(member) and issubclass(member, Kind) and member.__module__ == module.__name__
    ]
    if not classes:
        raise RegistrationError(f"{module.__name__}: the file defines no kind of fault")
    for class_ in classes:
        lacks = sorted(getattr(class_, "__abstractmethods__", ()))
        lacks += [name for name in _NEEDED if not hasattr(class_, name)]
        lacks += ["statement"] if class_.sentence is Kind.sentence and not class_.statement else []
        if lacks:
            raise RegistrationError(f"{module.__name__}: {class_.__name__} lacks {', '.join(lacks)}")
        if bool(class_.injected_by) and not class_.healed_by:
            raise RegistrationError(
                f"{module.__name__}: scripts inject it with {class_.injected_by!r} and cannot heal it"
            )
    return [class_() for class_ in classes]


def _script_words(kinds: Mapping[str, AnyKind]) -> tuple[dict[str, AnyKind], dict[str, frozenset[str]]]:
    """The words of scripts: the kind that each injects, and the kinds that each heals. Raises `RegistrationError`."""
    injecting: dict[str, AnyKind] = {}
    healing: dict[str, set[str]] = {}
    for kind in kinds.values():
        if kind.injected_by in injecting:
            raise RegistrationError(
                f"{kind.name} and {injecting[kind.injected_by].name} are both injected by {kind.injected_by!r}"
            )
        if kind.injected_by:
            injecting[kind.injected_by] = kind
        if kind.healed_by:
            healing.setdefault(kind.healed_by, set()).add(kind.name)
    ambiguous_words = sorted(injecting.keys() & healing.keys())
    if ambiguous_words:
        raise RegistrationError(f"{ambiguous_words[0]!r} would both inject a fault and heal one")
    return injecting, {word: frozenset(names) for word, names in healing.items()}


KINDS: Mapping[str, AnyKind] = discover(nemeses.kinds)
INJECTED_BY, HEALED_BY = _script_words(KINDS)
"""The words of scripts: the kind that each injects, and the names of the kinds that each heals."""


def injectable(offers: Collection[Need]) -> frozenset[str]:
    """The names of the kinds of fault that a world with these parts can inject."""
    return frozenset(kind.name for kind in KINDS.values() if kind.needs <= set(offers))


def needing(need: Need) -> frozenset[str]:
    """The names of the kinds of fault that a world without this part cannot inject."""
    return frozenset(kind.name for kind in KINDS.values() if need in kind.needs)
