"""Decides how machines are run: on the processor itself (KVM), or emulated; by the user's choice, else by trying."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.errors import UsageError
from orchestrator.worlds.vagrant import kvm

VARIABLE = "BROWNOUT_DRIVER"

Name = Literal["kvm", "qemu"]
"""The names that libvirt and the Vagrantfile use."""


@dataclass(frozen=True)
class Driver:
    """`reason`: why this driver was chosen. `is_asked`: by the user, whose choice is final."""

    name: Name
    reason: str
    is_asked: bool = False

    @property
    def emulates(self) -> bool:
        return self.name == "qemu"


def asked() -> Name | None:
    """The choice in the environment variable. Raises `UsageError` for an unknown value."""
    choice = os.environ.get(VARIABLE)
    match choice:
        case "kvm" | "qemu":
            return choice
        case None | "":
            return None
    raise UsageError(f"{VARIABLE}={choice} is not known: use kvm or qemu, or leave it out")


def choose(image: Path | None, *, again: bool = False) -> Driver:
    """The driver for machines that boot the image in this directory. With `again`, an earlier result for KVM is
    ignored. Raises `UsageError`."""
    choice = asked()
    if choice is not None:
        return Driver(choice, f"{VARIABLE}={choice}", is_asked=True)
    answer = kvm.asked(image, again=again)
    return Driver("kvm" if answer.works else "qemu", f"KVM: {answer.detail}")
