"""Faults are data: what is done to whom and when; and the evidence that it took effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["confirmed", "mismatch", "inconclusive"]

_GRAVITY: dict[Status, int] = {"confirmed": 0, "inconclusive": 1, "mismatch": 2}


@dataclass(frozen=True)
class Fault:
    """One fault: `kind` done to the nodes `targets`, `at` seconds after the main phase began.

    `kind` is the name of one of `nemeses.KINDS`, `parameters` are what that kind takes. Random schedules add
    `duration_s` (until its heal) and `aim` (what the targets were chosen for).
    """

    kind: str
    targets: tuple[str, ...]
    at: float = 0.0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "targets": list(self.targets), "at": self.at, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Evidence:
    """Whether a fault, or its heal, took effect: `confirmed` (it was seen to), `mismatch` (it was seen not to) or
    `inconclusive` (it was not seen)."""

    status: Status
    detail: dict[str, Any]

    @property
    def confirmed(self) -> bool:
        return self.status == "confirmed"

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "detail": self.detail}


def worst(statuses: Iterable[Status]) -> Status:
    """The gravest of several statuses; inconclusive when there are none, for nothing was seen."""
    return max(statuses, key=_GRAVITY.__getitem__, default="inconclusive")


def combine(evidence: Mapping[str, Evidence]) -> Evidence:
    """The evidence of one fault on several nodes: it took effect only if it did on each."""
    return Evidence(worst(e.status for e in evidence.values()), {name: e.detail for name, e in evidence.items()})
