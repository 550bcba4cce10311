"""Faults are data: what is done to whom and when; and the evidence that it took effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal[
    "kill",
    "pause",
    "power-loss",
    "power-loss-all",
    "partition-one",
    "partition-halves",
    "partition-leader",
    "stall",
    "clock-freeze",
    "clock-jump",
    "packet-delay",
    "packet-loss",
]
Status = Literal["confirmed", "mismatch", "inconclusive"]
Direction = Literal["both", "out", "in"]

KINDS: tuple[Kind, ...] = get_args(Kind)
PARTITIONS: frozenset[Kind] = frozenset({"partition-one", "partition-halves", "partition-leader"})
POWER_LOSSES: frozenset[Kind] = frozenset({"power-loss", "power-loss-all"})
SUSPENSIONS: frozenset[Kind] = frozenset({"stall", "clock-freeze"})
PACKET_FAULTS: frozenset[Kind] = frozenset({"packet-delay", "packet-loss"})
# What these did is seen only afterwards: by a boot, or by what clocks show once a machine goes on or is set right.
PROVEN_LATE: frozenset[Kind] = POWER_LOSSES | SUSPENSIONS | {"clock-jump"}

_GRAVITY: dict[Status, int] = {"confirmed": 0, "inconclusive": 1, "mismatch": 2}


@dataclass(frozen=True)
class Fault:
    """One fault: `kind` done to the nodes `targets`, `at` seconds after the main phase began.

    `parameters`: `duration_s` (until its heal); for power losses `tear` (a seed for partly written back pages, or None
    for a clean cut); for partitions `direction`: what the targets lose towards the rest: "both", "out" or "in"; or
    `pairs`: exactly these directed pairs, as lists of two names; for clock jumps `jump_s` (seconds, negative: back);
    for packets `delay_ms` and `jitter_ms`, or `percent`.
    """

    kind: Kind
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


def cut_pairs(fault: Fault, nodes: Iterable[str]) -> set[tuple[str, str]]:
    """The directed pairs (source, destination) that a partition cuts. Raises `ValueError` for other kinds of fault."""
    if fault.kind not in PARTITIONS:
        raise ValueError(f"{fault.kind} is not a partition")
    if "pairs" in fault.parameters:
        return {(source, destination) for source, destination in fault.parameters["pairs"]}
    inside, outside = set(fault.targets), set(nodes) - set(fault.targets)
    direction: Direction = fault.parameters.get("direction", "both")
    pairs = set()
    if direction in ("both", "out"):
        pairs |= {(a, b) for a in inside for b in outside}
    if direction in ("both", "in"):
        pairs |= {(b, a) for a in inside for b in outside}
    return pairs
