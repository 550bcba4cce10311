"""The doctor's report on a machine, and its handling of missing requirements."""

import json
import re
import tomllib

import pytest

from installation import extras
from installation.files import PROJECT_ROOT
from orchestrator.command import doctor
from orchestrator.command.doctor import DoctorFinding
from orchestrator.command.line import main
from orchestrator.machine.requirement import Requirement
from orchestrator.worlds.vagrant import requirements


@pytest.mark.parametrize(
    ("missing", "worlds"),
    [
        ([], {"process", "namespaces", "vagrant", "inventory"}),
        ([doctor.NAMESPACES], {"process", "vagrant", "inventory"}),
        ([doctor.VIRTUAL_MACHINES, doctor.INVENTORY], {"process", "namespaces"}),
        ([doctor.EVERY_WORLD], set()),
    ],
)
def test_a_world_can_be_where_its_own_and_everybodys_needs_are_met(missing: list[str], worlds: set[str]) -> None:
    parts = (doctor.EVERY_WORLD, doctor.NAMESPACES, doctor.VIRTUAL_MACHINES, doctor.INVENTORY)
    able = doctor.able([DoctorFinding(part, "something", part not in missing, "") for part in parts])
    assert {world for world, can in able.items() if can} == worlds


def test_parts_of_virtual_machines_that_are_missing_are_named_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacks = [Requirement("vagrant", False, "not installed", "apt-get install vagrant")]
    monkeypatch.setattr(requirements, "check", lambda: lacks)
    monkeypatch.setattr(requirements, "acceleration", lambda _: Requirement("KVM", False, "no emulator", ""))
    assert main(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["can_run"], said["vagrant"], said["inventory"]) == (True, False, True)
    found = {each["name"]: each for each in said["findings"] if each["part"] == "virtual machines"}
    assert found["vagrant"]["remedy"] == "apt-get install vagrant"
    assert found["KVM"]["met"], "machines are emulated without it"
    assert found["image"]["met"] or found["image"]["remedy"] == "./brownout image build"

    assert main(["doctor"]) == 0
    last = capsys.readouterr().out.splitlines()[-2:]
    assert "unknown: virtual machines (--world vagrant) are not usable: vagrant" in last[0]
    assert "pass: campaigns run on hosts that this machine reaches by SSH" in last[1]


def test_the_libraries_of_every_installation_and_the_extras_are_those_that_are_declared() -> None:
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(doctor._LIBRARIES) == [re.split(r"[<>=]", each)[0] for each in project["dependencies"]]
    assert set(extras.MODULES) == set(project["optional-dependencies"])
