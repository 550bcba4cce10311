"""Power and suspension by the inventory's commands: their order, and their evidence."""

import socket
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from nemeses.ports import Result
from orchestrator.errors import WorldError
from orchestrator.worlds.inventory.access import HostAccess
from orchestrator.worlds.inventory.hosts import InventoryHost, chosen
from orchestrator.worlds.inventory.lab import HostsSuspender
from orchestrator.worlds.inventory.parser import Inventory, Listed
from orchestrator.worlds.inventory.power import HostsPower


class Machine:
    """A host whose SSH port is a socket of ours: open while the file `on` is there."""

    def __init__(self, directory: Path, variables: dict[str, Any]) -> None:
        self.log = directory / "log"
        self.log.touch()
        self.commands: list[str] = []
        self.server: socket.socket | None = None
        self.port = 0
        self.boot()
        listed = Listed("web", {k: v.replace("LOG", str(self.log)) for k, v in variables.items()})
        (self.inventory,) = chosen(Inventory(Path("h.ini"), "brownout", (listed,)), 1)
        self.access = HostAccess("127.0.0.1", self.port, "root", None, ())

    def boot(self) -> None:
        self.server = socket.create_server(("127.0.0.1", self.port))
        self.port = self.server.getsockname()[1]

    def die(self) -> None:
        assert self.server is not None
        self.server.close()

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        del timeout_s
        self.commands.append(command)
        self.die()
        return Result(0, "", "")

    def connect(self) -> None:
        self.log.write_text(self.log.read_text() + "connected\n")

    def disconnect(self) -> None:
        self.die()

    def said(self) -> list[str]:
        return self.log.read_text().split()


def inventory(machine: Machine) -> dict[str, InventoryHost]:
    return {"n1": machine.inventory}


def power(machine: Machine, back: list[str]) -> HostsPower:
    def on_back(names: Collection[str]) -> None:
        back.extend(names)

    hosts: Any = {"n1": machine}
    return HostsPower(inventory(machine), hosts, {"n1": machine.access}, on_back)


def test_commands_switch_power_off_and_on(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path, {"brownout_power_off": "echo off-{name} >> LOG", "brownout_power_on": "echo on-{node} >> LOG"}
    )
    back: list[str] = []
    switch = power(machine, back)
    lost = switch.cut(["n1"], 7)
    assert (switch.is_on("n1"), machine.said()) == (False, ["off-web"])
    assert lost["n1"]["silent_after_ms"] >= 0
    assert switch.cut(["n1"]) == {}
    machine.boot()
    switch.restore(["n1"])
    assert (switch.is_on("n1"), machine.said(), back) == (True, ["off-web", "on-n1", "connected"], ["n1"])
    assert switch.restore(["n1"]) == {}


def test_a_reset_from_inside_counts_as_off_until_it_is_restored(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"brownout_power": "sysrq"})
    back: list[str] = []
    switch = power(machine, back)
    switch.cut(["n1"])
    assert ("/proc/sysrq-trigger" in machine.commands[0], switch.is_on("n1")) == (True, False)
    machine.boot()
    switch.restore(["n1"])
    assert (switch.is_on("n1"), back) == (True, ["n1"])


def test_a_switch_that_fails_is_named_and_its_host_is_restored_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"brownout_power_off": "exit 3", "brownout_power_on": "echo on >> LOG"})
    switch = power(machine, [])
    with pytest.raises(WorldError, match=r"n1 \(web\): brownout_power_off ended with exit code 3"):
        switch.cut(["n1"])
    switch.restore(["n1"])
    assert machine.said() == ["on", "connected"]


def test_a_machine_that_answers_does_not_count_as_suspended(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path, {f"brownout_suspend_{word}": f"echo {word} >> LOG" for word in ("stall", "freeze", "resume")}
    )
    back: list[str] = []
    suspender = HostsSuspender(inventory(machine), {"n1": machine.access}, back.extend)
    suspender.stall(["n1"])
    assert (suspender.state("n1"), suspender.asked("n1")) == ("running", "stalled")
    machine.die()
    assert suspender.state("n1") == "stalled"
    suspender.resume(["n1"])
    suspender.freeze(["n1"])
    assert suspender.state("n1") == "frozen"
    suspender.resume(["n1"])
    assert suspender.resume(["n1"]) == {}
    assert (machine.said(), back) == (["stall", "resume", "freeze", "resume"], ["n1", "n1"])
