"""Faults as data: their kind, targets and times; and the evidence that a fault took effect."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from installation.sanitize import brief, plain

Status = Literal["confirmed", "prevented", "mismatch", "inconclusive"]

_GRAVITY: dict[Status, int] = {"confirmed": 0, "prevented": 0, "inconclusive": 1, "mismatch": 2}


@dataclass(frozen=True)
class Fault:
    """One fault: `kind` is injected on the nodes `targets`, `at` seconds after the start of the main phase.

    `kind` is a name in `nemeses.KINDS`; `parameters` are those of the kind. Random schedules add `duration_s` (until
    the heal) and `aim` (the reason for the choice of targets).
    """

    kind: str
    targets: tuple[str, ...]
    at: float = 0.0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "targets": list(self.targets), "at": self.at, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Evidence:
    """Whether a fault, or its heal, took effect: `confirmed` (it did), `prevented` (nothing was done, because another
    fault in force left nothing to act on), `mismatch` (it did not) or `inconclusive` (it could not be observed)."""

    status: Status
    detail: dict[str, Any]

    @property
    def confirmed(self) -> bool:
        return self.status == "confirmed"

    @property
    def cause(self) -> str:
        """Why it is not confirmed, for people: the first stated error with its node, and the number of the others;
        without an error, all facts."""
        errors = list(_errors(self.detail, ""))
        if not errors:
            return brief(plain(self.detail), 600)
        suffix = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return f"{brief(errors[0], 600)}{suffix}"

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "detail": self.detail}


def _errors(detail: Mapping[str, Any], part_name: str) -> Iterator[str]:
    """The errors in an evidence's facts, each after the name of the part that has it, unless the error names it."""
    for key, value in detail.items():
        if isinstance(value, Mapping):
            yield from _errors(value, str(key))
        elif key in ("error", "because") and value:
            text = plain(value)
            yield text if not part_name or text.startswith(part_name) else f"{part_name}: {text}"


def worst(statuses: Iterable[Status]) -> Status:
    """The most severe of several statuses; without a status `inconclusive`, because nothing was observed."""
    return max(statuses, key=_GRAVITY.__getitem__, default="inconclusive")


def combine(evidence: Mapping[str, Evidence]) -> Evidence:
    """The evidence of one fault on several nodes: it took effect only if it took effect on each of them."""
    return Evidence(worst(e.status for e in evidence.values()), {name: e.detail for name, e in evidence.items()})
