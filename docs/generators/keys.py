"""Writes the tables of the keys of files from the structs that declare them: `python -m docs.generators.keys`."""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    ScheduledFault,
    Seeds,
    Swarm,
    SystemKeys,
    Topology,
)
from orchestrator.campaign.steps import CONDITIONS, FORMS, NODE_WORDS, OWN_NODE_WORDS, WaitKeys, keys_of_wait
from orchestrator.gate.policy_file import Policy
from systems.declared_tables import PAIR, schema
from systems.description import Description
from workloads.kind import Workload

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
TABLES: Final[Mapping[str, type[Struct]]] = {
    "campaign": CampaignKeys,
    "topology": Topology,
    "system": SystemKeys,
    "workload": Workload,
    "client": ClientKeys,
    "nemesis": RandomFaults,
    "nemesis.fault": ScheduledFault,
    "checks": Checks,
    "seeds": Seeds,
    "cell": CellKeys,
    "expect": Expectation,
    "swarm": Swarm,
    "gate.toml": Policy,
    "system.toml": Description,
}
PAGES: Final = ("campaigns.md", "gate.md", "your-system.md")
_MOST_WORDS: Final = 8
_MARKED: Final = re.compile(r"(<!-- (\S+): python -m docs\.generators\.keys -->\n).*?(<!-- end -->\n)", re.DOTALL)


def page(name: str) -> str:
    """A page as it should be."""
    return _MARKED.sub(lambda marked: f"{marked[1]}{_table(marked[2])}{marked[3]}", (DOCS / name).read_text("utf-8"))


def _table(name: str) -> str:
    rows = _steps() if name == "steps" else _conditions() if name == "conditions" else _keys(TABLES[name])
    return "\n".join([*rows, ""])


def _keys(declared: type[Struct]) -> list[str]:
    return ["| key | values | default | meaning |", "|---|---|---|---|", *_rows(schema(declared)["properties"])]


def _rows(properties: Mapping[str, Any], table: str = "") -> Iterator[str]:
    """A row for each key, also for those of inner tables. A table whose name the file chooses is named in capitals."""
    for key, shape in properties.items():
        path, entries = f"{table}{key}", shape.get("additionalProperties") or {}
        if "properties" in entries:
            yield from _rows(entries["properties"], f"{path}.{key.removesuffix('s').upper()}.")
        elif "properties" in (inner := shape if "properties" in shape else shape.get("items", {})):
            yield from _rows(inner["properties"], f"{path}.")
        else:
            yield f"| `{path}` | {_values(shape)} | {_default(shape)} | {shape['description']} |"


def _steps() -> list[str]:
    """A row for each form of step but that of faults, with the keys that only it has."""
    common = {"do", "deadline_s", "why"}
    rows = []
    for form in dict.fromkeys(FORMS.values()):
        names = [name for name in FORMS if FORMS[name] is form and (name not in NODE_WORDS or name in OWN_NODE_WORDS)]
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
        return _choices(shape["enum"]) or "a word"
    match shape.get("type"):
        case "boolean":
            return "true or false"
        case "integer" | "number" as kind:
            return _bounds(shape, "a whole number" if kind == "integer" else "a number")
        case "string" if shape.get("format") == "date":
            return "a date"
        case "array" if "minimum" in shape["items"] and shape.get("maxItems") == PAIR:
            return f"[low, high], {_bounds(shape['items'], '')}"
        case "array" if shape["items"].get("type") == "string":
            choices = _choices(shape["items"].get("enum", ()))
            return f"a list of {choices}" if choices else "a list of texts"
        case "array":
            return "a list"
        case ["array", "string"]:
            return "a text, or a list of texts"
        case "object":
            return "a table"
    return "a text"


def _choices(values: Sequence[Any]) -> str:
    """The values if they are few, else empty."""
    choices = [f"`{value}`" if isinstance(value, str) else str(value) for value in values]
    return ", ".join(choices) if len(choices) <= _MOST_WORDS else ""


def _bounds(shape: Mapping[str, Any], kind: str) -> str:
    minimum, maximum = shape.get("minimum"), shape.get("maximum")
    if minimum is None:
        return kind
    if maximum is None:
        return f"{kind} from {minimum:,}"
    return f"{minimum:,} to {maximum:,.0f}" if maximum != 1 else f"{minimum:,} to 1"


def _default(shape: Mapping[str, Any]) -> str:
    default = shape.get("default")
    if isinstance(default, tuple | list) and isinstance(default[0], str):
        return ", ".join(f"`{text}`" for text in default)
    if isinstance(default, tuple | list):
        return str([float(f"{bound:g}") if bound % 1 else int(bound) for bound in default])
    if isinstance(default, str | bool):
        return f"`{default}`" if isinstance(default, str) else str(default).lower()
    return "" if default is None else f"{default:g}"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
