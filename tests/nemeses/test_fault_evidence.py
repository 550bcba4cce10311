"""What is concluded from what the hosts say: confirmed, mismatch or inconclusive."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nemeses import Evidence, Fault, Nemesis, Site
from nemeses.fault import combine, worst
from nemeses.inflict import marks as marks_module
from nemeses.inflict import partition
from nemeses.ports import HostError, Result
from tests.nemeses.fakes import FakeHost, FakeNetwork, FakePower, unreachable


def lines(**values: str) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


def inject(kind: str, host: FakeHost, **parts: Any) -> Evidence:
    return Nemesis(Site({host.name: host}, **parts)).inject(Fault(kind, (host.name,)))  # type: ignore[arg-type]


def heal(kind: str, host: FakeHost, **parts: Any) -> Evidence:
    return Nemesis(Site({host.name: host}, **parts)).heal(Fault(kind, (host.name,)))  # type: ignore[arg-type]


GONE = {"start": "7", "signalled": "yes", "state": "gone", "port": "closed"}
STOPPED = {"start": "7", "before": "S", "signalled": "yes", "after": "T"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "confirmed"),
        ({"state": "S"}, "mismatch"),
        ({"port": "open"}, "mismatch"),
        ({"signalled": ""}, "mismatch"),
        ({"start": ""}, "inconclusive"),
    ],
)
def test_a_kill_is_a_process_gone_and_a_port_closed(change: dict[str, str], status: str) -> None:
    evidence = inject("kill", FakeHost("n1", lambda _: lines(**{**GONE, **change})))
    assert evidence.status == status
    assert evidence.detail["n1"]["pid"] == 42


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "confirmed"),
        ({"after": "S"}, "mismatch"),
        ({"after": "ST"}, "mismatch"),
        ({"signalled": ""}, "mismatch"),
        ({"start": "", "after": ""}, "inconclusive"),
    ],
)
def test_a_pause_is_every_thread_stopped(change: dict[str, str], status: str) -> None:
    assert inject("pause", FakeHost("n1", lambda _: lines(**{**STOPPED, **change}))).status == status


@pytest.mark.parametrize(
    ("after", "status"), [("S", "confirmed"), ("RS", "confirmed"), ("T", "mismatch"), ("", "mismatch")]
)
def test_a_pause_is_over_when_no_thread_is_stopped(after: str, status: str) -> None:
    assert heal("pause", FakeHost("n1", lambda _: lines(**{**STOPPED, "after": after}))).status == status


@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_who_was_not_there_proves_nothing(kind: str) -> None:
    host = FakeHost("n1")
    host.pid = None
    assert inject(kind, host).status == "inconclusive"
    assert host.commands == []


@pytest.mark.parametrize("kind", ["kill", "pause"])
@pytest.mark.parametrize("answer", [unreachable, lambda _: "", lambda _: "no such file\n"])
def test_who_does_not_answer_proves_nothing(kind: str, answer: Any) -> None:
    evidence = inject(kind, FakeHost("n1", answer))
    assert evidence.status == "inconclusive"
    assert evidence.detail["n1"]["error"]


def test_a_killed_broker_is_started_again_once() -> None:
    host = FakeHost("n1", lambda _: lines(port="open"))
    host.pid = None
    nemesis = Nemesis(Site({"n1": host}))
    fault = Fault("kill", ("n1",))
    assert [nemesis.heal(fault).status, nemesis.heal(fault).status] == ["confirmed", "confirmed"]
    assert host.starts == 1


@pytest.mark.parametrize("problem", ["port stays closed", "ends at once"])
def test_a_broker_that_does_not_come_back_is_a_mismatch(problem: str) -> None:
    host = FakeHost("n1", lambda _: lines(port="closed"))
    host.pid, host.comes_up = None, problem != "ends at once"
    assert heal("kill", host).status == "mismatch"


def machine(power: FakePower, *, same_boot: bool = False) -> FakeHost:
    """A host whose boot id changes with each boot."""

    def answer(command: str) -> str:
        if "boot_id" in command:
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


def test_a_boot_with_nothing_to_compare_proves_nothing() -> None:
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
        if "boot_id" in command:
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
    assert healed.detail["n1"]["broker"]["port"] == "open", "the broker runs, whatever the marks say"
    again = nemesis.inject(CUT), nemesis.heal(CUT)
    assert [each.status for each in again] == ["confirmed"] * 2, "marked anew after the boot"
    assert again[1].detail["n1"]["synced_mark"] == "kept"


def test_a_mark_that_is_lost_is_told_even_if_no_other_can_be_written(
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


def test_a_world_without_power_needs_no_marks() -> None:
    host = FakeHost("n1", lambda _: lines(moved="no", queues="[]"))
    assert Nemesis(Site({"n1": host})).arm().status == "confirmed"
    assert not any("sync" in command for command in host.commands)


class Cluster:
    """Three hosts on one network; `silent` ones cannot be asked to send."""

    def __init__(self, *silent: str) -> None:
        names = ("n1", "n2", "n3")
        self.network = FakeNetwork(names)
        self.hosts = {name: FakeHost(name, unreachable if name in silent else self._answer(name)) for name in names}
        self.nemesis = Nemesis(Site(self.hosts, None, self.network))
        self.reached = "open"

    def _answer(self, name: str) -> Any:
        def answer(command: str) -> str:
            if "/dev/udp/" in command:
                self.network.carry(name)
                return lines(sent="1")
            return lines(**dict.fromkeys(("n1", "n2", "n3"), self.reached))

        return answer


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_INJECT_DEADLINE_S", 0.01)
    monkeypatch.setattr(partition, "_HEAL_DEADLINE_S", 0.01)


ISOLATE = Fault("partition-one", ("n1",))
ONE_WAY = Fault("partition-one", ("n1",), parameters={"direction": "out"})


@pytest.mark.parametrize("fault", [ISOLATE, ONE_WAY])
def test_a_partition_is_probes_dropped_and_counted(fault: Fault) -> None:
    cluster = Cluster()
    injected = cluster.nemesis.inject(fault)
    assert injected.status == "confirmed"
    assert injected.detail["dropped"]["n1->n2"] >= 1
    assert bool(injected.detail["passing"]) == (fault is ONE_WAY)
    healed = cluster.nemesis.heal(fault)
    assert healed.status == "confirmed"
    assert healed.detail["dropped"]["n1->n3"] >= 1
    assert cluster.nemesis.heal(fault).status == "confirmed"


def test_a_partition_that_drops_nothing_is_a_mismatch() -> None:
    cluster = Cluster()
    cluster.network.deaf = True
    assert cluster.nemesis.inject(ISOLATE).status == "mismatch"


def test_a_one_way_cut_whose_other_way_does_not_pass_is_a_mismatch() -> None:
    cluster = Cluster()
    cluster.network.dropped[("n2", "n1")] = 3
    assert cluster.nemesis.inject(ONE_WAY).status == "mismatch"


def test_a_partition_that_nobody_could_probe_is_inconclusive() -> None:
    assert Cluster("n1", "n2", "n3").nemesis.inject(ISOLATE).status == "inconclusive"


def test_a_partition_of_nobody_is_a_mismatch() -> None:
    assert Cluster().nemesis.inject(Fault("partition-halves", ())).status == "mismatch"


def test_a_heal_is_connections_that_succeed() -> None:
    cluster = Cluster()
    cluster.nemesis.inject(ISOLATE)
    cluster.reached = "closed"
    assert cluster.nemesis.heal(ISOLATE).status == "mismatch"
    cluster.reached, cluster.network.stuck = "open", True
    cluster.network.cut({("n1", "n2")})
    stuck = cluster.nemesis.heal(ISOLATE)
    assert stuck.status == "mismatch"
    assert stuck.detail["still_cut"] == ["n1->n2"]


def test_heal_all_leaves_nothing_behind() -> None:
    power, network = FakePower(), FakeNetwork(("n1",))

    def answer(command: str) -> str:
        return (
            lines(start="7", before="T", signalled="yes", after="S") if "kill -CONT" in command else lines(port="open")
        )

    host = FakeHost("n1", answer)
    host.pid = None
    power.off.add("n1")
    evidence = Nemesis(Site({"n1": host}, power, network)).heal_all()
    assert evidence.status == "confirmed", evidence
    assert (power.off, host.starts) == (set(), 1)


def test_heal_all_says_what_it_could_not_heal() -> None:
    host = FakeHost("n1", unreachable)
    evidence = Nemesis(Site({"n1": host})).heal_all()
    assert evidence.status == "inconclusive"
    assert "cannot be reached" in evidence.detail["brokers"]["n1"]["error"]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="known: kill"):
        inject("earthquake", FakeHost("n1"))


def test_the_worst_of_several_counts() -> None:
    assert worst(["confirmed", "inconclusive", "mismatch", "confirmed"]) == "mismatch"
    assert worst(["confirmed", "inconclusive"]) == "inconclusive"
    assert worst([]) == "inconclusive"
    parts = {"n1": Evidence("confirmed", {"pid": 1}), "n2": Evidence("inconclusive", {})}
    assert combine(parts) == Evidence("inconclusive", {"n1": {"pid": 1}, "n2": {}})


def test_a_failing_switch_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
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
