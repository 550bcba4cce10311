"""The kinds of fault are the classes in a directory: each complete one is found, and others are refused."""

import importlib
import itertools
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from nemeses import (
    HEALED_BY,
    INJECTED_BY,
    KINDS,
    Evidence,
    Fault,
    Need,
    Nemesis,
    ParameterError,
    Site,
    injectable,
    needing,
)
from nemeses.registry import RegistrationError, discover
from tests.nemeses.fakes import FakeHost

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count()

HEAD = """
from history.fault_looks import FaultGroup, FaultMark
from nemeses.fault import Evidence
from nemeses.kind import Kind
from nemeses.mechanisms.service import Services

class Quake(Kind[Services]):
    name = "quake"
    action = "the floor shakes"
    mechanism = Services
    destroys = frozenset()
    group, mark = FaultGroup.MACHINE, FaultMark.STAR
    injected_by, healed_by = "shake", "steady"
    def inject(self, by, fault): return Evidence("confirmed", {})
    def heal(self, by, fault): return Evidence("confirmed", {})
    def sentence(self, fault): return "it shakes"
"""
WHOLE = HEAD + "    proven_by = 'the cups fall'\n    def proof(self, seen, after): return ''\n"


@pytest.fixture
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Package":
    monkeypatch.syspath_prepend(str(tmp_path))
    return Package(tmp_path)


class Package:
    """A directory of kinds that a test writes."""

    def __init__(self, directory: Path) -> None:
        self._name = f"kinds_of_test_{next(_numbers)}"
        self._directory = directory / self._name
        self._directory.mkdir()
        (self._directory / "__init__.py").touch()

    def write(self, name: str, text: str) -> ModuleType:
        (self._directory / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(self._name)


def test_a_class_that_is_added_is_found(kinds: Package) -> None:
    found = discover(kinds.write("quake", WHOLE + "\nclass Flood(Quake):\n    name, injected_by = 'flood', 'flood'\n"))
    assert list(found) == ["flood", "quake"]
    assert found["quake"].sentence(Fault("quake", ("n1",))) == "it shakes"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("quake", HEAD, "Quake lacks proof, proven_by"),
        ("quake", "", "defines no kind of fault"),
        ("quake", WHOLE + "\nclass Flood(Quake):\n    name = 'flood'\n", "are both injected by 'shake'"),
        ("quake", WHOLE.replace('"steady"', '""'), "cannot heal it"),
        ("quake", WHOLE.replace('"steady"', '"shake"'), "both inject a fault and heal one"),
    ],
)
def test_an_incomplete_kind_file_is_refused(kinds: Package, name: str, text: str, complaint: str) -> None:
    with pytest.raises(RegistrationError, match=complaint):
        discover(kinds.write(name, text))


def test_two_files_with_the_same_kind_or_verb_are_refused(kinds: Package) -> None:
    kinds.write("flood", WHOLE.replace('"quake"', '"flood"'))
    with pytest.raises(RegistrationError, match="flood are both injected by 'shake'"):
        discover(kinds.write("quake", WHOLE))
    kinds.write("flood", WHOLE)
    kinds_again = Package(Path(kinds.write("flood", WHOLE).__path__[0]).parent)
    kinds_again.write("a", WHOLE.replace('"quake"', '"a"').replace("shake", "a"))
    with pytest.raises(RegistrationError, match=r"two classes define the kind 'a': the second is in .*\.b$"):
        discover(kinds_again.write("b", WHOLE.replace('"quake"', '"a"').replace("shake", "b")))


def test_the_capabilities_of_a_world_decide_its_kinds_of_faults() -> None:
    assert {"kill", "pause"} <= injectable(())
    assert {KINDS[name].needs for name in injectable(())} == {frozenset()}
    power: tuple[Need, ...] = ("power",)
    assert injectable(power) - injectable(()) == needing("power") - needing("disk") == {"power-loss", "power-loss-all"}
    assert needing("network") == {"partition-one", "partition-halves", "partition-leader", "reject"}
    on_machines = injectable(("power", "network", "netem", "stall", "freeze", "clock"))
    assert set(KINDS) - on_machines == needing("drift") | needing("wire") | needing("disk") | needing(
        "store"
    ) | needing("objects")
    assert injectable(get_args(Need)) == set(KINDS)


def test_scripts_accept_the_verb_of_each_kind() -> None:
    assert INJECTED_BY["freeze"].name == "clock-freeze"
    assert HEALED_BY["resume"] == {"pause", "stall", "clock-freeze"}
    assert HEALED_BY["power-on"] == {"power-loss", "power-loss-all"}


def test_parameters_are_checked_before_any_action() -> None:
    host = FakeHost("n1")
    nemesis = Nemesis(Site({"n1": host}))
    for parameters, complaint in (({}, "jump_s: missing"), ({"jump_s": 0.5}, "0.5 is not 1 to 86400 s, forward")):
        with pytest.raises(ParameterError, match=complaint) as caught:
            nemesis.inject(Fault("clock-jump", ("n1",), parameters=parameters))
        assert caught.value.parameter == "jump_s"
    assert host.commands == []


def test_each_part_of_a_world_has_one_mechanism_for_all_its_kinds() -> None:
    stages = [kind.mechanism.stage for kind in KINDS.values()]
    assert len({kind.mechanism for kind in KINDS.values()}) == len(set(stages)), "each has its own place"
    assert isinstance(Nemesis(Site({})).heal_all(), Evidence)
