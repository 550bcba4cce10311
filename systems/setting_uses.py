"""Finds the settings that a role's templates use: a setting that no template uses would have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import nodes

from history.regular_files import read_text
from systems.description import RoleDescription

_SETTINGS: Final = "settings"
_OF_ALL: Final = frozenset(dir(dict))


def settings_used(directory: Path, role: RoleDescription) -> frozenset[str] | None:
    """The keys that the role's templates use, including templates in files of this directory.

    None if a template may use any key: it loops over all settings, includes another file, or cannot be read (another
    check reports that)."""
    if role.setting_argument:
        return None
    found: set[str] = set()
    try:
        for text in _texts(directory, role):
            named = _named(jinja2.Environment().parse(text))
            if named is None:
                return None
            found |= named
    except (OSError, UnicodeDecodeError, jinja2.TemplateError):
        return None
    return frozenset(found)


def _texts(directory: Path, role: RoleDescription) -> Iterator[str]:
    yield from (*role.command, *role.environment.values(), *role.shows)
    for words in role.prepare:
        yield from words
    for name in role.files.values():
        yield read_text(directory / name)


def _named(template: nodes.Template) -> set[str] | None:
    """The keys of settings that are used by name; None if the template uses settings in another way."""
    if any(template.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends))):
        return None
    keys = [key for each in template.find_all((nodes.Getattr, nodes.Getitem)) if (key := _key(each)) is not None]
    uses = sum(each.name == _SETTINGS for each in template.find_all(nodes.Name))
    return set(keys) if len(keys) == uses else None


def _key(node: Any) -> str | None:
    """The key in `settings.key` or `settings["key"]`; None for any other expression."""
    if not isinstance(node.node, nodes.Name) or node.node.name != _SETTINGS:
        return None
    if isinstance(node, nodes.Getattr):
        return None if node.attr in _OF_ALL else str(node.attr)
    return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else None
