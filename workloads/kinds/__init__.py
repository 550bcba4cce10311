"""All workload kinds. Each is one file in this directory that defines `KIND`; a new file adds a kind without any other
change."""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from types import ModuleType

from workloads.kind import KindError, WorkloadKind

__all__ = ["KINDS", "registry"]


def registry(modules: Iterable[ModuleType]) -> dict[str, WorkloadKind]:
    """The kinds of these modules by name. Raises `KindError` for a module without one, or a name given twice."""
    kinds: dict[str, WorkloadKind] = {}
    files: dict[str, str] = {}
    for module in modules:
        kind = getattr(module, "KIND", None)
        if not isinstance(kind, WorkloadKind):
            raise KindError(f"{module.__file__}: defines no KIND = WorkloadKind(...)")
        if kind.name in kinds:
            raise KindError(f"{module.__file__}: the name {kind.name!r} is taken by {files[kind.name]}")
        kinds[kind.name] = kind
        files[kind.name] = str(module.__file__)
    return kinds


KINDS: Mapping[str, WorkloadKind] = registry(
    importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)
)
