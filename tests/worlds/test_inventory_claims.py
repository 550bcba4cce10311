"""Claims of hosts that are slow to answer, as they are when they have just booted."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nemeses import Need
from nemeses.ports import HostError, HostUnreachableError, Result
from orchestrator.errors import WorldError
from orchestrator.worlds.inventory.lab import HostLocks, HostMachines


class Booting:
    """A host that cannot be logged in to at first."""

    def __init__(self, failures: int, answer: bytes = b"locked") -> None:
        self.failures = failures
        self.answer = answer
        self.connected = False

    def disconnect(self) -> None:
        self.connected = False

    def follow(self, command: str, sink: Callable[[bytes], None], *, connect_timeout_s: float) -> "Booting":
        assert not self.connected
        assert "flock" in command
        assert connect_timeout_s > 1
        if self.failures:
            self.failures -= 1
            raise HostUnreachableError("n1: no existing session")
        self.connected = True
        sink(self.answer)
        return self

    def wait(self) -> None:
        pass

    def close(self) -> None:
        self.connected = False


class Cut(Booting):
    """A host with remaining cuts of a killed campaign. It records the commands to remove them."""

    name, address = "n1", "10.0.0.1"

    def __init__(self, answer: bytes = b"locked") -> None:
        super().__init__(failures=0, answer=answer)
        self.commands: list[str] = []

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        assert timeout_s > 0
        self.commands.append(command)
        return Result(0, "", "")

    @property
    def mended(self) -> int:
        """How often its cuts were taken away."""
        return len([command for command in self.commands if "nft delete table inet brownout" in command])


@pytest.mark.parametrize(("offers", "mended"), [({"network"}, 1), (set(), 0)])
def test_a_claimed_host_has_no_remaining_cut(tmp_path: Path, offers: set[Need], mended: int) -> None:
    """Before it is seen whether they reach each other: what a killed campaign cut would be taken for a firewall."""
    host = Cut()
    machines({"n1": host}, offers, tmp_path).claim()
    assert host.mended == mended


def test_a_refused_campaign_leaves_the_cuts_of_another_one(tmp_path: Path) -> None:
    free, theirs = Cut(), Cut(b"eve@far, process 7")
    ours = machines({"n1": free, "n2": theirs}, {"network"}, tmp_path)
    with pytest.raises(WorldError, match=r"n2 \(web\) is in use by another campaign"):
        ours.claim()
    ours.release()
    assert (free.mended, theirs.mended) == (1, 0)


def machines(hosts: dict[str, Cut], offers: set[Need], directory: Path) -> HostMachines:
    def checked(name: str, host: Cut) -> Any:
        listed = SimpleNamespace(node=name, title=f"{name} (web)", time_scale=1.0, port=None)
        return SimpleNamespace(host=listed, access=None, facts={"listeners": []}, connection=lambda _: host)

    each = [checked(name, host) for name, host in hosts.items()]
    return HostMachines(each, frozenset(offers), {}, directory, directory / "known")


def claims(host: Any, time_scale: float = 1.0) -> HostLocks:
    return HostLocks({"n1": host}, {"n1": "n1 (web)"}, time_scale)


def test_a_host_that_has_just_booted_is_queried_again() -> None:
    host = Booting(failures=2)
    held = claims(host)
    held.take(["n1"])
    assert (host.failures, host.connected) == (0, True)
    held.release()
    assert not host.connected


def test_a_host_that_never_answers_times_out() -> None:
    with pytest.raises(HostError, match="n1: no existing session"):
        claims(Booting(failures=1000), time_scale=0.0).take(["n1"])


def test_a_host_of_another_campaign_is_refused_at_once() -> None:
    host = Booting(failures=0, answer=b"eve@far, process 7")
    with pytest.raises(WorldError, match=r"n1 \(web\) is in use by another campaign \(eve@far, process 7\)"):
        claims(host).take(["n1"])
    assert not host.connected


def test_a_host_claimed_by_another_campaign_after_its_boot_is_lost() -> None:
    host = Booting(failures=0)
    held = claims(host)
    held.take(["n1"])
    assert held.held == {"n1"}
    host.answer = b"eve@far, process 7"
    with pytest.raises(WorldError, match="in use by another campaign"):
        held.take(["n1"])
    assert held.held == set()
