"""One class name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.house.test_floors import MAY_IMPORT, modules

ALTERNATIVES = {"MyClient"}
"""Names that the files of `brownout init` share: a user gets one of them."""


def test_a_public_class_name_means_one_thing() -> None:
    """Messages of the wire protocol have Kafka's names; some of these recur."""
    places = defaultdict(list)
    for room in MAY_IMPORT:
        for path in modules(room):
            if "protocol/messages" not in str(path):
                for name in public_classes(path):
                    places[name].append(path.name)
    assert {name: files for name, files in places.items() if len(files) > 1 and name not in ALTERNATIVES} == {}


def public_classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
