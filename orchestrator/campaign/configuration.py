"""The configuration files that a run's nodes must have, as patterns for `run.toml`.

Fills the system's templates for places whose properties (address, directory, port) are marks. A pattern has `*` in the
place of a mark. Each configuration file is in the run's evidence, and the checker `configuration` compares it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Final

from systems import Deployed
from systems.service import shown_as

_FIRST_PORT: Final = 47_311
_MARK: Final = re.compile(r"mark(?P<node>\d+)of(?P<what>[a-z]+)kram")


@dataclass(frozen=True)
class _Marked:
    """A place whose properties are marks. It has no files on this machine."""

    id: int
    ports: Mapping[str, int]
    is_local: bool = False

    @property
    def name(self) -> str:
        return f"n{self.id}"

    @property
    def address(self) -> str:
        return self._mark("address")

    @property
    def data_dir(self) -> str:
        return self._mark("data")

    @property
    def etc_dir(self) -> str:
        return self._mark("etc")

    @property
    def var_dir(self) -> str:
        return self._mark("var")

    @property
    def files_dir(self) -> str:
        return self._mark("files")

    @property
    def shared_dir(self) -> str:
        return self._mark("shared")

    @property
    def python(self) -> str:
        return self._mark("python")

    @property
    def python_path(self) -> str:
        return self._mark("modules")

    def _mark(self, what: str) -> str:
        return f"mark{self.id}of{what}kram"


def expected_files(deployed: Deployed, time_scale: float) -> dict[str, dict[str, list[str]]]:
    """By node and by the name of each configuration file in the evidence, its lines as glob patterns: `*` stands for
    what depends on the run's places and name. Times are those of a world with this scale. Raises `InputError` for a
    template that cannot be filled in here."""
    places = _places(deployed)
    unknown = _unknown(places)
    one, other = (replace(deployed, cluster_id=name) for name in ("one", "two"))  # what differs depends on the name
    found: dict[str, dict[str, list[str]]] = {}
    for place in places:
        others = other.configuration(place, places, time_scale)
        for path, text in one.configuration(place, places, time_scale).items():
            pairs = zip(text.splitlines(), others[path].splitlines(), strict=True)
            lines = [unknown.sub("*", _shared(*pair)) for pair in pairs]
            found.setdefault(place.name, {})[str(shown_as(Path(path)))] = lines
    return found


def _shared(line: str, other: str) -> str:
    """A glob pattern of two lines: of two that differ, at most the key that they set."""
    if line == other:
        return escape(line)
    key = "".join(line.partition("=")[:2])
    return f"{escape(key)}*" if other.startswith(key) else "*"


def _unknown(places: Sequence[_Marked]) -> re.Pattern[str]:
    """Finds what only a run's places settle: ports and marks."""
    ports = "|".join(str(port) for place in places for port in place.ports.values())
    return re.compile(f"{_MARK.pattern}|{ports}" if ports else _MARK.pattern)


def _places(deployed: Deployed) -> Sequence[_Marked]:
    places, port = [], _FIRST_PORT
    for number in range(1, len(deployed.roles) + 1):
        names = deployed.ports(number)
        places.append(_Marked(number, {name: port + at for at, name in enumerate(names)}))
        port += len(names)
    return places
