"""One thing that a world needs of the machine: whether it is there, and what to do where it is not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One need; `remedy` is what to do where it is not `met`."""

    name: str
    met: bool
    detail: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" + ("" if self.met else f"; {self.remedy}")
