"""Chooses a world for this machine, with the reason."""

import importlib
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from installation import extras
from orchestrator.errors import UsageError
from orchestrator.machine.requirement import Requirement
from orchestrator.world_kind import AUTO
from orchestrator.world_kinds import NAMES, WORLDS
from orchestrator.worlds.lab import Lab


@dataclass(frozen=True)
class Selection:
    """A lab and the reason for its choice."""

    lab: type[Lab]
    reason: str


LEAST_FILES: Final = 1024
"""Files that the tester or a node may have open at a time."""


def open_files() -> Requirement:
    """Whether this process may open enough files; raises its own limit to that number if it may."""
    limit, bound = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_met = bound == resource.RLIM_INFINITY or bound >= LEAST_FILES
    if is_met and limit != resource.RLIM_INFINITY and limit < LEAST_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST_FILES, bound))
    detail = f"{bound} at a time, and a run needs {LEAST_FILES}" if not is_met else f"at least {LEAST_FILES} at a time"
    return Requirement(
        "open files", is_met, detail, f"allow them in the shell that starts Brownout: ulimit -n {LEAST_FILES}"
    )


def lab_named(name: str) -> type[Lab]:
    """The lab of this world. Raises `UsageError` for an unknown name."""
    if name not in WORLDS:
        raise UsageError(f"unknown world {name!r}; use one of: {', '.join(NAMES)}")
    # Imported late, because each imports libraries that only its own runs need.
    lab: type[Lab] = importlib.import_module(f"orchestrator.worlds.{name}.lab").LAB
    return lab


def require_machines(purpose: str) -> None:
    """Raise `UsageError` if the software for machines (virtual ones and inventory hosts) is not installed."""
    _require_extra(extras.VMS, purpose)


def select_lab(name: str = AUTO, filesystem: str = "ext4") -> Selection:
    """The lab of this world; for `auto` the first automatic world that this machine can run.

    Raises `UsageError` for an unknown name, and for a requested world that cannot run here, with what is missing and
    the remedy. A lab's `prepare` checks what it can install.
    """
    files = open_files()
    if not files.met:
        raise UsageError(f"no world can run here: {files}")
    if name == AUTO:
        return _automatic(filesystem)
    extra = WORLDS[name].extra if name in WORLDS else None
    if extra is not None:
        _require_extra(extra, f"the {name} world")
    lab = lab_named(name)
    if lacks := lab.missing(filesystem):
        raise UsageError(f"{_cannot_run(name, lacks)}; or use --world process")
    return Selection(lab, f"the {name} world was asked for")


def _automatic(filesystem: str) -> Selection:
    """The last automatic world, the process world, lacks nothing anywhere."""
    reasons: list[str] = []
    names = [name for name, world in WORLDS.items() if world.automatic]
    for name in names:
        lab = lab_named(name)
        lacks = lab.missing(filesystem)
        if not lacks:
            return Selection(lab, " / ".join(reasons) or f"this machine has all that the {name} world needs")
        reasons.append(_cannot_run(name, lacks))
    raise UsageError(" / ".join(reasons))


def _cannot_run(name: str, lacks: Sequence[Requirement]) -> str:
    return f"the {name} world cannot run here: {' / '.join(map(str, lacks))}"


def _require_extra(extra: str, purpose: str) -> None:
    if not extras.is_there(extra):
        raise UsageError(extras.what_is_missing(extra, purpose))
