"""The rooms are found in the tree. Every list of them elsewhere (wheel, source archive, types, floors) has them all."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

from tests.house.test_floors import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]
FOR_DEVELOPERS = {"benchmarks", "tests"}
DATA = {"campaigns", "docs", "playbooks"}
GENERATORS = "docs.generators"
"""The package that writes pages of `docs`. It is checked like a room, and the wheel does not have it."""
NO_PART_OF_A_SOURCE_ARCHIVE = {".ci", ".github", "store"}


def tracked() -> list[str]:
    return subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    ).stdout.split("\0")


def packages() -> set[str]:
    return {name.removesuffix("/__init__.py") for name in tracked() if name.endswith("/__init__.py")} & directories()


def directories() -> set[str]:
    return {name.split("/")[0] for name in tracked() if "/" in name}


def rooms() -> set[str]:
    return packages() - FOR_DEVELOPERS


def declared() -> dict[str, Any]:
    tool: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return tool


def test_every_room_is_in_the_wheel() -> None:
    wheel = declared()["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["only-include"]) == rooms() | DATA
    assert wheel["sources"] == {name: f"brownout/home/{name}" for name in rooms() | DATA} | {"top": ""}


def test_the_source_archive_has_every_directory() -> None:
    listed = {name.lstrip("/") for name in declared()["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert directories() - NO_PART_OF_A_SOURCE_ARCHIVE <= listed


def test_the_types_of_every_package_are_checked() -> None:
    assert set(declared()["mypy"]["packages"]) == packages() | {GENERATORS}


def test_every_room_has_its_floor() -> None:
    assert set(MAY_IMPORT) == rooms()


def test_every_room_is_described() -> None:
    described = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert {room for room in rooms() if f"| `{room}/` |" not in described} == set()
