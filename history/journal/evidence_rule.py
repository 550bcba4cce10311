"""What evidence must show, as data: the journal stores the rules with the fault, and the analysis checks them again."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


class EvidenceRule(msgspec.Struct, frozen=True):
    """One fact of some evidence: a detail that must exist, and what it must be."""

    key: str
    """The path of the detail, its parts separated by dots."""
    of: Literal["target", "fault"] = "target"
    """Whether it is in the details of each target, or of the whole fault."""
    values: tuple[Any, ...] = ()
    """It is one of these."""
    unlike: tuple[Any, ...] = ()
    """It is not one of these."""
    least: Annotated[float, Meta(gt=-1e11, lt=1e11)] | None = None
    """It is at least this, or a non-empty mapping to such numbers."""
    differs_from: str = ""
    """It differs from the detail with this other key."""
    unless: str = ""
    """The key of a detail that names the kind of a fault; while that fault is in force on the target, the rule does not
    apply."""

    def to_json(self) -> dict[str, Any]:
        """The form that `analysis.checkers.faults` reads; empty fields are left out."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if value not in ([], (), None, "")}
