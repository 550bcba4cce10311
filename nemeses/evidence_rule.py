"""What evidence must show to be believed, as data: the journal has it with the fault, for whoever judges the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class EvidenceRule:
    """One fact of some evidence.

    `key`: where it stands, its parts separated by dots; `of`: in what is told of each target, or of the fault as a
    whole. It must be there, and `values`: be one of these; `unlike`: be none of these; `least`: be this or more, or be
    a mapping to such numbers and not empty; `differs_from`: differ from what stands under this other key.
    """

    key: str
    of: Literal["target", "fault"] = "target"
    values: tuple[Any, ...] = ()
    unlike: tuple[Any, ...] = ()
    least: float | None = None
    differs_from: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form in which `analysis.fault_evidence` reads it; what says nothing is left out."""
        told: dict[str, Any] = {"key": self.key, "of": self.of}
        if self.values:
            told["values"] = list(self.values)
        if self.unlike:
            told["unlike"] = list(self.unlike)
        if self.least is not None:
            told["least"] = self.least
        if self.differs_from:
            told["differs_from"] = self.differs_from
        return told
