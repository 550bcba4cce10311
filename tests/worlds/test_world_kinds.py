"""Each world is one file in `orchestrator/world_kinds/`, with its implementation in `orchestrator/worlds/`."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator import world_kinds
from orchestrator.campaign.parser import parse
from orchestrator.world_kind import WorldKind, WorldKindError
from orchestrator.world_kinds import NAMES, WORLDS, registry
from orchestrator.worlds.selection import lab_named
from systems.errors import InputError
from systems.toml_tables import TomlSource

ROOT = Path(__file__).resolve().parents[2]
COMPLETE: dict[str, Any] = {"name": "process", "place": 20, "description": "Processes.", "limits": ("one kernel",)}


def module(name: str, **contents: object) -> ModuleType:
    made = ModuleType(f"worlds_of_a_test.{name}")
    made.__file__ = f"{name}.py"
    vars(made).update(contents)
    return made


def test_every_implementation_has_a_declaration() -> None:
    labs = {path.parent.name for path in (ROOT / "orchestrator" / "worlds").glob("*/lab.py")}
    assert labs == set(WORLDS)
    assert NAMES == ("auto", "namespaces", "process", "vagrant", "inventory", "simulation")


@pytest.mark.parametrize("name", WORLDS)
def test_the_lab_of_a_world_has_its_name(name: str) -> None:
    assert lab_named(name).name == name


def test_a_campaign_may_name_every_world() -> None:
    with pytest.raises(InputError, match="known: auto, inventory, namespaces, process, simulation, vagrant"):
        parse(TomlSource("c.toml", 'name = "c"\n[topology]\nworld = "moon"\n'), Path("c.toml"))


def test_a_campaign_is_read_without_loading_a_world() -> None:
    program = "import sys; import orchestrator.campaign.parser; print([m for m in sys.modules if '.worlds' in m])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"name": "Process"}, "its name must consist of small letters"),
        ({"name": "auto"}, "this name stands for the choice of a world"),
        ({"name": "moon"}, "worlds/moon/lab.py is missing"),
        ({"place": 0}, "its place is not a positive number"),
        ({"description": "processes"}, "its description is not a sentence"),
        ({"limits": ()}, "it states no limits"),
        ({"extra": "rockets"}, "the extra 'rockets' is unknown"),
    ],
)
def test_an_incomplete_world_is_refused(changed: dict[str, Any], complaint: str) -> None:
    WorldKind(**COMPLETE)
    with pytest.raises(WorldKindError, match=complaint):
        WorldKind(**(COMPLETE | changed))


def test_a_file_defines_one_world_under_its_own_name_and_place() -> None:
    process, other = WorldKind(**COMPLETE), WorldKind(**(COMPLETE | {"name": "vagrant"}))
    assert registry([module("process", WORLD=process)]) == {"process": process}
    with pytest.raises(WorldKindError, match=r"moon\.py: defines no WORLD"):
        registry([module("moon")])
    with pytest.raises(WorldKindError, match=r"moon\.py defines 'process'; give both the same name"):
        registry([module("moon", WORLD=process)])
    with pytest.raises(WorldKindError, match=r"vagrant\.py: place 20 is that of 'process'; choose another"):
        registry([module("process", WORLD=process), module("vagrant", WORLD=other)])


def test_a_file_without_a_world_stops_the_program(tmp_path: Path) -> None:
    shutil.copytree(Path(world_kinds.__file__).parent, tmp_path / "world_kinds")
    (tmp_path / "world_kinds" / "moon.py").write_text("")
    program = (
        f"import sys, orchestrator; orchestrator.__path__.insert(0, {str(tmp_path)!r}); "
        "from orchestrator.command.line import main; sys.exit(main(['run', '--dry-run']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 70
    assert "moon.py: defines no WORLD = WorldKind(...)" in done.stderr
