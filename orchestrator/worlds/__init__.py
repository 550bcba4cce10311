"""Worlds: where a cluster runs. `select_world` chooses one; each offers the `World` of `base`."""

from orchestrator.worlds.base import Node, World, WorldError, WorldSpec
from orchestrator.worlds.selection import Selection, select_world

__all__ = ["Node", "Selection", "World", "WorldError", "WorldSpec", "select_world"]
