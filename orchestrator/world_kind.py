"""The declaration of a world. Each world is one file in `orchestrator/world_kinds/`, found automatically, and its
implementation in `orchestrator/worlds/<world>/`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from installation import extras

_NAME: Final = re.compile(r"[a-z]+")
_IMPLEMENTATIONS: Final = Path(__file__).resolve().parent / "worlds"
AUTO: Final = "auto"
"""In place of a world's name: the first automatic world that this machine can run."""
TRACE_IN_MEMORY: Final = (
    "services write their trace into their node's memory, from where it is copied: the last moments before a power cut "
    "may be missing"
)
"""A limit of worlds whose nodes are reached by SSH."""


class WorldKindError(Exception):
    """A file that does not define a complete world; the message has the file or the world, and what is wrong."""


@dataclass(frozen=True)
class WorldKind:
    """A world. A file defines it as `WORLD`, under the name of the file.

    `place`: its position in lists of the worlds; `auto` prefers lower places. `description`: what its nodes are.
    `limits`: the limits that each of its runs has, as sentences; the gate demands them of each stored run.
    `automatic`: `auto` may select it. `extra`: the optional part of Brownout that it needs (`installation.extras`).

    Its implementation is the package `orchestrator.worlds.<name>`, whose module `lab` has the lab's class as `LAB`.
    """

    name: str
    place: int
    description: str
    limits: tuple[str, ...]
    automatic: bool = False
    extra: str | None = None

    def __post_init__(self) -> None:
        """Raises `WorldKindError` for an incomplete world."""
        for wrong, what in (
            (_NAME.fullmatch(self.name) is None, "its name must consist of small letters"),
            (self.name == AUTO, "this name stands for the choice of a world"),
            (self.place < 1, "its place is not a positive number"),
            (not self.description.endswith("."), "its description is not a sentence"),
            (not self.limits or not all(self.limits), "it states no limits"),
            (self.extra is not None and self.extra not in extras.MODULES, f"the extra {self.extra!r} is unknown"),
            (not (_IMPLEMENTATIONS / self.name / "lab.py").is_file(), f"worlds/{self.name}/lab.py is missing"),
        ):
            if wrong:
                raise WorldKindError(f"world {self.name!r}: {what}")
