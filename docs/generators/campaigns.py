"""Writes the tables of docs/campaigns.md from the structs that declare a campaign's keys:
`python -m docs.generators.campaigns`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from analysis.evidence.run_toml import Checks
from analysis.verdict import Expectation
from orchestrator.campaign.model import (
    CampaignKeys,
    CellKeys,
    ClientKeys,
    RandomFaults,
    Seeds,
    Swarm,
    SystemKeys,
    Topology,
)
from orchestrator.campaign.steps import CONDITIONS, ELECT, FORMS, NODE_WORDS, WaitKeys, keys_of_wait
from systems.declared_tables import schema
from workloads.kind import Workload

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "campaigns.md"
TABLES: Final[Mapping[str, type[Struct]]] = {
    "campaign": CampaignKeys,
    "topology": Topology,
    "system": SystemKeys,
    "workload": Workload,
    "client": ClientKeys,
    "nemesis": RandomFaults,
    "checks": Checks,
    "seeds": Seeds,
    "cell": CellKeys,
    "expect": Expectation,
    "swarm": Swarm,
}
_MOST_WORDS: Final = 8
_MARKED: Final = re.compile(r"(<!-- (\S+): python -m docs\.generators\.campaigns -->\n).*?(<!-- end -->\n)", re.DOTALL)


def page() -> str:
    """The page as it should be."""
    return _MARKED.sub(lambda marked: f"{marked[1]}{_table(marked[2])}{marked[3]}", PAGE.read_text(encoding="utf-8"))


def _table(name: str) -> str:
    rows = _steps() if name == "steps" else _conditions() if name == "conditions" else _keys(TABLES[name])
    return "\n".join([*rows, ""])


def _keys(declared: type[Struct]) -> list[str]:
    rows = [
        f"| `{key}` | {_values(shape)} | {_default(shape)} | {shape['description']} |"
        for key, shape in schema(declared)["properties"].items()
    ]
    return ["| key | values | default | meaning |", "|---|---|---|---|", *rows]


def _steps() -> list[str]:
    """A row for each form of step but that of faults, with the keys that only it has."""
    common = {"do", "deadline_s", "why"}
    rows = []
    for form in dict.fromkeys(FORMS.values()):
        names = [name for name in FORMS if FORMS[name] is form and (name not in NODE_WORDS or name in ("name", "sync"))]
        names += [ELECT] if form is FORMS[ELECT] else []
        properties = schema(form)["properties"]
        explained = (
            f"`{key}` ({_values(shape)}): {shape['description']}"
            for key, shape in properties.items()
            if key not in common
        )
        keys = "one condition, see below" if form is WaitKeys else "<br>".join(explained)
        listed = ", ".join(f"`{name}`" for name in dict.fromkeys(names))
        rows.append(f"| {listed} | {_effect(form)} | {keys} |")
    return ["| `do` | effect | keys |", "|---|---|---|", *rows]


def _effect(form: type[Struct]) -> str:
    """The first paragraph about a form of step."""
    return " ".join((form.__doc__ or "").partition("\n\n")[0].split())


def _conditions() -> list[str]:
    properties = schema(WaitKeys)["properties"]
    rows = []
    for condition in CONDITIONS:
        other_keys = sorted(keys_of_wait(condition) - {"do", "deadline_s", "why", condition})
        shape = properties[condition]
        beside = ", ".join(f"`{key}`" for key in other_keys)
        rows.append(f"| `{condition}` | {_values(shape)} | {shape['description']} | {beside} |")
    return ["| condition | values | holds when | beside it |", "|---|---|---|---|", *rows]


def _values(shape: Mapping[str, Any]) -> str:
    """The allowed values of a key."""
    if "enum" in shape:
        choices = [f"`{choice}`" if isinstance(choice, str) else str(choice) for choice in shape["enum"]]
        return ", ".join(choices) if len(choices) <= _MOST_WORDS else "a word"
    match shape.get("type"):
        case "boolean":
            return "true or false"
        case "integer" | "number" as kind:
            return _bounds(shape, "a whole number" if kind == "integer" else "a number")
        case "array" if "minimum" in shape["items"]:
            return f"[low, high], {_bounds(shape['items'], '')}"
        case "array" if shape["items"].get("type") == "string":
            return "a list of texts"
        case "array":
            return "a list"
        case ["array", "string"]:
            return "a text, or a list of texts"
        case "object":
            return "a table"
    return "a text"


def _bounds(shape: Mapping[str, Any], kind: str) -> str:
    minimum, maximum = shape.get("minimum"), shape.get("maximum")
    if maximum is None:
        return f"{kind} from {minimum:,}"
    return f"{minimum:,} to {maximum:,.0f}" if maximum != 1 else f"{minimum:,} to 1"


def _default(shape: Mapping[str, Any]) -> str:
    default = shape.get("default")
    if isinstance(default, tuple | list):
        return str([float(f"{bound:g}") if bound % 1 else int(bound) for bound in default])
    if isinstance(default, str | bool):
        return f"`{default}`" if isinstance(default, str) else str(default).lower()
    return "" if default is None else f"{default:g}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
