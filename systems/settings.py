"""A role's settings: texts by key, equal on all nodes except for settings of single nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_MOST_DIGITS: Final = 18


@dataclass(frozen=True)
class Settings:
    """`common` settings, and settings of single nodes (`n1`, ...), which take precedence."""

    common: Mapping[str, str] = field(default_factory=dict)
    per_node: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, node: str) -> dict[str, str]:
        """The settings of one node."""
        return {**self.common, **self.per_node.get(node, {})}

    def merged(self, other: "Settings") -> "Settings":
        """These settings, overridden by `other`."""
        nodes = self.per_node.keys() | other.per_node.keys()
        per_node = {node: {**self.per_node.get(node, {}), **other.per_node.get(node, {})} for node in sorted(nodes)}
        return Settings({**self.common, **other.common}, per_node)


def is_whole(value: str) -> bool:
    """Whether a setting is a whole number from 0 up, as programs write it: ASCII digits, of a limited number."""
    return value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


RoleSettings = Mapping[str, Settings]
"""By role."""


def merge(below: RoleSettings, above: RoleSettings) -> dict[str, Settings]:
    """The settings of all roles; `above` overrides `below`."""
    return {role: below.get(role, Settings()).merged(above.get(role, Settings())) for role in {**below, **above}}
