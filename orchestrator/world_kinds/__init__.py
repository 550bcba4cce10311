"""All worlds. Each is one file in this directory that defines `WORLD`; a new file adds a world.

A file declares a world without importing its implementation: campaigns know all worlds and load none.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Final

from orchestrator.world_kind import AUTO, WorldKind, WorldKindError

__all__ = ["NAMES", "WORLDS", "registry"]


def registry(modules: Iterable[ModuleType]) -> dict[str, WorldKind]:
    """The worlds of these modules by name, in the order of their places. Raises `WorldKindError` for a module without
    one, for a name that is not that of its file, and for a place that is taken."""
    places: dict[int, WorldKind] = {}
    for module in modules:
        world = getattr(module, "WORLD", None)
        if not isinstance(world, WorldKind):
            raise WorldKindError(f"{module.__file__}: defines no WORLD = WorldKind(...)")
        if world.name != module.__name__.rpartition(".")[2]:
            raise WorldKindError(f"{module.__file__} defines {world.name!r}; give both the same name")
        other = places.setdefault(world.place, world)
        if other is not world:
            raise WorldKindError(f"{module.__file__}: place {world.place} is that of {other.name!r}; choose another")
    return {places[place].name: places[place] for place in sorted(places)}


WORLDS: Final[Mapping[str, WorldKind]] = registry(
    importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
)
NAMES: Final = (AUTO, *WORLDS)
"""What a campaign and `--world` may name."""
