"""How machines are run: on the processor itself (KVM), or emulated. Settled by the user, else by trying."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.errors import UsageError
from orchestrator.worlds.vagrant import kvm

VARIABLE = "BROWNOUT_DRIVER"

Name = Literal["kvm", "qemu"]
"""As libvirt and the Vagrantfile call them."""


@dataclass(frozen=True)
class Driver:
    """`reason`: why it is this one, for people. `is_asked`: by the user, who is not contradicted."""

    name: Name
    reason: str
    is_asked: bool = False

    @property
    def emulates(self) -> bool:
        return self.name == "qemu"


def asked() -> Name | None:
    """What the environment asks for. Raises `UsageError` when that is nothing known."""
    given = os.environ.get(VARIABLE)
    match given:
        case "kvm" | "qemu":
            return given
        case None | "":
            return None
    raise UsageError(f"{VARIABLE}={given} is not known: use kvm or qemu, or leave it out")


def choose(image: Path | None, *, anew: bool = False) -> Driver:
    """The driver for machines that boot the image in this directory. With `anew`, what is known of KVM from before is
    not enough. Raises `UsageError`."""
    given = asked()
    if given is not None:
        return Driver(given, f"{VARIABLE}={given}", is_asked=True)
    answer = kvm.asked(image, anew=anew)
    return Driver("kvm" if answer.works else "qemu", f"KVM: {answer.detail}")
