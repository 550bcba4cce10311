"""One requirement of a world on the machine: whether it is met, and the remedy."""

import os
from dataclasses import dataclass

from orchestrator.machine.programs import find_program


@dataclass(frozen=True)
class Requirement:
    """One requirement; `remedy`: what to do if it is not `met`."""

    name: str
    met: bool
    detail: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" + ("" if self.met else f"; {self.remedy}")


def root() -> Requirement:
    """That this process is root's."""
    met = os.geteuid() == 0
    return Requirement("root", met, "yes" if met else f"this is user {os.geteuid()}", "run with sudo, or as root")


def installed(program: str, package: str) -> Requirement:
    """That a program of this Debian package is there."""
    path = find_program(program)
    return Requirement(program, path is not None, path or "not installed", f"apt-get install {package}")
