"""What evidence must show, as data: the journal stores the rules with the fault, and the analysis checks them again."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class EvidenceRule:
    """One fact of some evidence.

    `key`: the path of a detail, its parts separated by dots; `of`: in the details of each target, or of the whole
    fault. The detail must exist. `values`: it is one of these; `unlike`: it is not one of these; `least`: it is at
    least this, or a non-empty mapping to such numbers; `differs_from`: it differs from the detail with this other key.
    `unless`: the key of a detail that names the kind of a fault; while that fault is in force on the target, the rule
    does not apply.
    """

    key: str
    of: Literal["target", "fault"] = "target"
    values: tuple[Any, ...] = ()
    unlike: tuple[Any, ...] = ()
    least: float | None = None
    differs_from: str = ""
    unless: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form that `analysis.checkers.faults` reads; empty fields are left out."""
        described: dict[str, Any] = {"key": self.key, "of": self.of}
        if self.values:
            described["values"] = list(self.values)
        if self.unlike:
            described["unlike"] = list(self.unlike)
        if self.least is not None:
            described["least"] = self.least
        if self.differs_from:
            described["differs_from"] = self.differs_from
        if self.unless:
            described["unless"] = self.unless
        return described
