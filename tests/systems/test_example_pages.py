"""The pages with examples of real systems: their files are valid unchanged. Where a system is installed, its campaigns
have the documented results without a power loss."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Example:
    """A page with the files of a directory. `settings`: by campaign, the cells that have their documented result in the
    process world; all if empty. `program`: that the machine needs; `beside`: it is run from the directory."""

    settings: dict[str, Sequence[str]]
    program: str
    beside: bool = False

    def installed(self) -> str | None:
        return shutil.which(self.program) or next(map(str, Path("/").glob(self.program.lstrip("/"))), None)


EXAMPLES = {
    "postgresql": Example({"durability": (), "isolation": ()}, "/usr/lib/postgresql/*/bin/postgres"),
    "zookeeper": Example({"registers": ("ordered",), "ids": ("sync",), "first-seconds": ("trusting",)}, ""),
    "nats": Example({"stream": ("always",)}, "nats-server", beside=True),
}
