"""Checks the evidence of a fault against the conditions that the fault declared: `must_show` in the journal.

Each entry names a fact by its `key` (dots separate nested keys) in the evidence for each target or for the whole fault
(`of`). The fact must be present. Further conditions: `values`: it is one of these; `unlike`: it is not one of these;
`least`: it is at least this, or is a non-empty mapping to such numbers; `differs_from`: it differs from the fact of
this other key, which must be present too; `unless`: the key of a fact that names the kind of another fault, whose
effect on the target makes the condition void while it is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from installation.sanitize import quoted

IsInForce = Callable[[str, str], bool]
"""Whether a fault of a kind (the first text) is in force on a node (the second)."""
_ABSENT = object()


def none_in_force(kind: str, node: str) -> bool:
    del kind, node
    return False


def contradictions(
    must_show: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any],
    targets: Sequence[str],
    is_in_force: IsInForce = none_in_force,
) -> list[str]:
    """The conditions that the evidence does not meet, as sentences; empty: the evidence is sufficient."""
    if not evidence:
        return ["it is empty"]
    sentences: list[str] = []
    for must in must_show:
        if must.get("of") == "fault":
            sentences += _contradictions(must, evidence, "")
            continue
        for target in targets:
            facts = evidence.get(target)
            if not isinstance(facts, Mapping) or not facts:
                sentences.append(f"it says nothing of {target}")
            else:
                remover = _at(facts, str(must.get("unless") or ""))
                if isinstance(remover, str) and is_in_force(remover, target):
                    continue
                sentences += _contradictions(must, facts, f"{target}: ")
    return list(dict.fromkeys(sentences))


def _contradictions(must: Mapping[str, Any], facts: Mapping[str, Any], prefix: str) -> Iterator[str]:
    key = str(must.get("key"))
    value = _at(facts, key)
    if value is _ABSENT or value is None:
        yield f"{prefix}{key} is missing"
        return
    if "values" in must and value not in must["values"]:
        yield f"{prefix}{key} is {quoted(value)}, not {' or '.join(map(quoted, must['values']))}"
    if "unlike" in must and value in must["unlike"]:
        yield f"{prefix}{key} is {quoted(value)}"
    if "least" in must and not _reaches(value, must["least"]):
        yield f"{prefix}{key} is {quoted(value)}, at least {must['least']:g} is needed"
    if "differs_from" in must:
        other = _at(facts, must["differs_from"])
        if other is _ABSENT or other is None:
            yield f"{prefix}{must['differs_from']} is missing, and {key} must differ from it"
        elif value == other:
            yield f"{prefix}{key} is {quoted(value)}, as {must['differs_from']} is"


def _at(facts: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(facts, Mapping) or part not in facts:
            return _ABSENT
        facts = facts[part]
    return facts


def _reaches(value: Any, minimum: float) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(_reaches(part, minimum) for part in value.values())
    return isinstance(value, int | float) and value >= minimum
