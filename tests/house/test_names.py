"""One class name means one thing, and a variable is called by the noun of its value."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.house.test_floors import MAY_IMPORT, modules

ALTERNATIVES = {"MyClient"}
"""Names that the files of `brownout init` share: a user gets one of them."""
NOUNLESS = frozenset(
    re.findall(
        r"\w+",
        """
    found said seen each its it of other others some more made given asked known there left kept wanted held
    taken around behind before after then now again either both these those such all any none one two first last
    next words word what who where when how why own true false whole rest much most least away well wrong right
    """,
    )
)
"""Words that leave a stranger to guess what a variable has. Some of them are right, such as `now` and `first`."""
MOST_NOUNLESS = 0.03
"""The largest share of them. It was 8.9 % once; Hypothesis has 1.2 %, h11 2.0 %."""


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


def test_variables_and_parameters_are_called_by_the_noun_of_their_value() -> None:
    names = [name for room in MAY_IMPORT for path in modules(room) for name in bound_names(path)]
    nounless = [name for name in names if name.strip("_") in NOUNLESS]
    assert len(nounless) <= MOST_NOUNLESS * len(names)


def bound_names(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return stored + [node.arg for node in nodes if isinstance(node, ast.arg)]
