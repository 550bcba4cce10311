"""The world that runs here, and the message when it is not the requested one."""

import os

import pytest

from orchestrator.errors import UsageError
from orchestrator.machine.requirement import Requirement
from orchestrator.worlds.namespaces import requirements
from orchestrator.worlds.namespaces.lab import NamespaceLab
from orchestrator.worlds.process.lab import ProcessLab
from orchestrator.worlds.selection import select_lab

NFT = Requirement("nft", False, "not installed", "apt-get install nftables")


@pytest.fixture
def lacking_nft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing", lambda _: [NFT])


@pytest.fixture
def lacking_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing", lambda _: [])


@pytest.mark.usefixtures("lacking_nothing")
def test_namespaces_are_preferred() -> None:
    assert select_lab("auto").lab is NamespaceLab
    assert select_lab("namespaces").lab is NamespaceLab
    assert select_lab("process").lab is ProcessLab


@pytest.mark.usefixtures("lacking_nft")
def test_a_missing_requirement_is_reported_with_its_remedy() -> None:
    chosen = select_lab("auto")
    assert chosen.lab is ProcessLab
    assert "nft: not installed; apt-get install nftables" in chosen.reason
    with pytest.raises(UsageError, match="apt-get install nftables"):
        select_lab("namespaces")


def test_an_unknown_world_is_refused() -> None:
    with pytest.raises(UsageError, match="auto, namespaces, process, vagrant, inventory"):
        select_lab("moon")


def test_missing_privileges_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (root, *_) = requirements.missing()
    assert (root.name, root.met) == ("root", False)
    assert "sudo" in root.remedy


def test_a_program_that_is_not_installed_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "orchestrator.machine.requirement.find_program", lambda name: None if name == "nft" else f"/sbin/{name}"
    )
    assert "apt-get install nftables" in [each.remedy for each in requirements.missing()]
    assert not any(each.name == "packet filter" for each in requirements.check()), "no trial without the programs"


@pytest.mark.root
def test_all_trials_pass_where_the_world_runs() -> None:
    assert {"namespaces", "overlay", "packet filter", "control groups"} <= {each.name for each in requirements.check()}
    assert requirements.missing() == []
