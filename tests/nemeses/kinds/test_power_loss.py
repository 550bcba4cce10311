"""Power losses: a new boot, and the marks that a cut must keep and should take."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nemeses import KINDS, Evidence, Fault, Nemesis, Site
from nemeses.mechanisms import power as marks_module
from nemeses.ports import HostError, Result
from tests.nemeses.fakes import FakeHost, FakePower, heal, inject, lines


def machine(power: FakePower, *, same_boot: bool = False) -> FakeHost:
    """A host whose boot id changes with each boot."""

    def answer(command: str) -> str:
        if command == "cat /proc/sys/kernel/random/boot_id":
            return f"boot-{0 if same_boot else power.boots}\n"
        return lines(port="open")

    return FakeHost("n1", answer)


def test_a_power_loss_is_a_new_boot() -> None:
    power = FakePower()
    nemesis, fault = Nemesis(Site({"n1": machine(power)}, power)), Fault("power-loss", ("n1",), parameters={"tear": 5})
    injected = nemesis.inject(fault)
    assert injected.status == "confirmed"
    assert injected.detail["n1"] == {"tear": 5, "off": True, "answers": False}
    healed = nemesis.heal(fault)
    assert healed.status == "confirmed"
    assert (healed.detail["n1"]["boot_id_before"], healed.detail["n1"]["boot_id"]) == ("boot-0", "boot-1")
    assert nemesis.heal(fault).status == "confirmed"
    assert power.boots == 1


def test_a_switch_that_is_stuck_is_a_mismatch() -> None:
    power = FakePower(stuck=True)
    assert inject("power-loss", machine(power), power=power).status == "mismatch"


def test_the_same_boot_is_a_mismatch_however_dark_it_was() -> None:
    power = FakePower()
    nemesis, fault = Nemesis(Site({"n1": machine(power, same_boot=True)}, power)), Fault("power-loss", ("n1",))
    assert nemesis.inject(fault).status == "confirmed"
    assert nemesis.heal(fault).status == "mismatch"


def test_a_boot_without_an_earlier_boot_id_is_inconclusive() -> None:
    power = FakePower()
    power.off.add("n1")
    assert heal("power-loss", machine(power), power=power).status == "inconclusive"


class MarkedMachine(FakeHost):
    """Its shell is this machine's, its disk a directory; a boot takes away what `cut_takes` names."""

    def __init__(self, disk: Path, power: FakePower, *cut_takes: str) -> None:
        super().__init__("n1")
        self.data_dir = str(disk)
        self._marks, self._power, self._cut_takes = disk / ".brownout", power, cut_takes

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        if (seen := self.look(command)) is not None:
            return seen
        if command == "cat /proc/sys/kernel/random/boot_id":
            return Result(0, f"boot-{self._power.boots}\n", "")
        if self._power.boots:
            for name in self._cut_takes:
                (self._marks / name).unlink(missing_ok=True)
            self._cut_takes = ()
        if "/dev/tcp" in command:
            return Result(0, "port=open\n", "")
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=timeout_s, check=False)
        return Result(done.returncode, done.stdout, done.stderr)


CUT = Fault("power-loss", ("n1",))


@pytest.mark.parametrize(
    ("taken", "status", "marks"),
    [
        (["unsynced"], "confirmed", {"synced_mark": "kept", "unsynced_mark": "lost"}),
        ([], "confirmed", {"synced_mark": "kept", "unsynced_mark": "kept"}),
        (["synced", "unsynced"], "mismatch", {"synced_mark": "LOST", "unsynced_mark": "lost"}),
    ],
)
def test_a_cut_must_keep_the_mark_that_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[str], status: str, marks: dict[str, str]
) -> None:
    monkeypatch.setattr(marks_module, "_MOUNTED_S", 0.1)
    power = FakePower()
    nemesis = Nemesis(Site({"n1": MarkedMachine(tmp_path, power, *taken)}, power))
    assert nemesis.arm().status == "confirmed"
    assert nemesis.inject(CUT).status == "confirmed"
    healed = nemesis.heal(CUT)
    assert healed.status == status
    assert {key: healed.detail["n1"][key] for key in marks} == marks
    assert healed.detail["n1"]["service"]["port"] == "open", "the service runs, whatever the marks say"
    again = nemesis.inject(CUT), nemesis.heal(CUT)
    assert [each.status for each in again] == ["confirmed"] * 2, "marked again after the boot"
    assert again[1].detail["n1"]["synced_mark"] == "kept"


def test_a_lost_mark_is_reported_even_if_a_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_module, "_MOUNTED_S", 0.1)
    power = FakePower()
    machine = MarkedMachine(tmp_path, power)
    nemesis = Nemesis(Site({"n1": machine}, power))
    nemesis.arm()
    nemesis.inject(CUT)
    machine.data_dir = "/proc"  # where no mark is, and none can be written
    healed = nemesis.heal(CUT)
    assert healed.status == "mismatch"
    assert healed.detail["n1"]["synced_mark"] == "LOST"
    assert "exit code" in healed.detail["n1"]["marks"]
    assert Nemesis(Site({"n1": machine}, power)).arm().status == "inconclusive"


AT_STAKE = Fault("power-loss", ("n1",), parameters={"tear": None, "loses": "log/log-0/*.log"})


class StakedMachine(MarkedMachine):
    """A boot leaves of its log what `left` says; None: nothing at all."""

    def __init__(self, disk: Path, power: FakePower, left: bytes | None) -> None:
        super().__init__(disk, power, "unsynced")
        self._left, self._was_booted = left, False
        self.log = disk / "log" / "log-0" / "0.log"
        self.log.parent.mkdir(parents=True)

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        if self._power.boots and not self._was_booted:
            self._was_booted = True
            self.log.unlink()
            if self._left is not None:
                self.log.write_bytes(self._left)
        return super().run(command, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("left", "status", "fate"),
    [
        (b"synced", "confirmed", "lost"),
        (b"synced" + bytes(5), "confirmed", "lost"),
        (None, "confirmed", "lost"),
        (b"synced tail", "mismatch", "kept"),
        (b"synced tail and what came after the look", "mismatch", "kept"),
    ],
)
def test_a_power_cut_that_lost_no_unsynced_data_is_a_mismatch(
    tmp_path: Path, left: bytes | None, status: str, fate: str
) -> None:
    power = FakePower()
    machine = StakedMachine(tmp_path, power, left)
    machine.log.write_bytes(b"synced tail")
    (machine.log.parent / "empty.log").touch()
    nemesis = Nemesis(Site({"n1": machine}, power))
    assert nemesis.arm().status == "confirmed"
    assert nemesis.inject(AT_STAKE).status == "confirmed"
    healed = nemesis.heal(AT_STAKE)
    assert (healed.status, healed.detail["n1"]["at_stake"]) == (status, fate)
    assert healed.detail["n1"]["service"]["port"] == "open"
    because = healed.detail.get("because", [])
    assert [status, *because] == ["confirmed"] or "n1: its disk kept all of log/log-0/0.log" in because[0]
    assert f"what was at stake on n1: {fate}" in KINDS["power-loss"].proof({"n1": {}}, healed.detail)
    assert "at_stake" not in nemesis.heal(AT_STAKE).detail["n1"], "reported once"


def test_a_power_cut_without_unsynced_data_is_not_made(tmp_path: Path) -> None:
    power = FakePower()
    machine = StakedMachine(tmp_path, power, None)
    machine.log.touch()
    injected = Nemesis(Site({"n1": machine}, power)).inject(AT_STAKE)
    assert injected.status == "inconclusive"
    assert "no file in" in injected.detail["n1"]["error"]
    assert power.is_on("n1")


def test_a_world_without_power_needs_no_marks() -> None:
    host = FakeHost("n1", lambda _: lines(moved="no", queues="[]"))
    assert Nemesis(Site({"n1": host})).arm().status == "confirmed"
    assert not any("sync" in command for command in host.commands)


def test_a_failed_power_switch_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    power = FakePower()

    def fail(*_: Any) -> dict[str, dict[str, Any]]:
        raise HostError("the switch does not answer")

    monkeypatch.setattr(power, "cut", fail)
    monkeypatch.setattr(power, "restore", fail)
    for evidence in (
        inject("power-loss", machine(power), power=power),
        heal("power-loss", machine(power), power=power),
    ):
        assert evidence == Evidence("inconclusive", {"error": "the switch does not answer"})
