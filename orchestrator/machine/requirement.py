"""One requirement of a world on the machine: whether it is met, and the remedy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One requirement; `remedy`: what to do if it is not `met`."""

    name: str
    met: bool
    detail: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" + ("" if self.met else f"; {self.remedy}")
