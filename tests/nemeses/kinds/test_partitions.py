"""Partitions: probes that are dropped and counted, and pass again when healed."""

from typing import Any

import pytest

from nemeses import KINDS, Fault, HostError, Nemesis, Site
from nemeses.kind import with_before
from nemeses.mechanisms import partition
from tests.nemeses.fakes import FakeHost, FakeNetwork, lines, unreachable


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
            if "refused" in command:
                state = "refused" if self.network.rejecting else "silent"
                return lines(**{b: state for a, b in self.network.cuts if a == name})
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


def test_a_partition_without_drops_is_a_mismatch() -> None:
    cluster = Cluster()
    cluster.network.deaf = True
    assert cluster.nemesis.inject(ISOLATE).status == "mismatch"


def test_a_one_way_cut_that_blocks_both_ways_is_a_mismatch() -> None:
    cluster = Cluster()
    cluster.network.dropped[("n2", "n1")] = 3
    assert cluster.nemesis.inject(ONE_WAY).status == "mismatch"


def test_a_partition_without_a_probe_is_inconclusive() -> None:
    assert Cluster("n1", "n2", "n3").nemesis.inject(ISOLATE).status == "inconclusive"


def test_a_partition_without_targets_is_a_mismatch() -> None:
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


@pytest.mark.parametrize("unread", ["counters", "cut_pairs"])
def test_an_unreadable_network_is_inconclusive_and_other_faults_are_healed(
    unread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster("n1", "n2", "n3")

    def fail() -> Any:
        raise HostError("n3: its packet filter does not answer")

    monkeypatch.setattr(cluster.network, unread, fail)
    injected, healed = cluster.nemesis.inject(ISOLATE), cluster.nemesis.heal(ISOLATE)
    everything = cluster.nemesis.heal_all()
    assert [each.status for each in (injected, healed, everything)] == ["inconclusive"] * 3
    for detail in (injected.detail, healed.detail, everything.detail["network"]):
        assert detail["error"] == "n3: its packet filter does not answer"
    assert everything.detail.keys() >= {"packets", "clocks", "services"}


def test_a_partition_with_one_stopped_side_is_confirmed_with_a_note() -> None:
    cluster = Cluster()
    cluster.hosts["n2"].pid, cluster.hosts["n3"].threads = None, "T"
    injected = cluster.nemesis.inject(ISOLATE)
    assert injected.status == "confirmed"
    assert injected.detail["already"] == ["n2: its service had ended before", "n3: its service was suspended before"]
    assert with_before("7 packets", injected.detail).startswith("7 packets; n2: its service had ended before")


REJECT = Fault("reject", ("n1",))


def test_a_rejecting_partition_is_connections_refused_at_once() -> None:
    cluster = Cluster()
    injected = cluster.nemesis.inject(REJECT)
    assert injected.status == "confirmed"
    assert cluster.network.rejecting
    assert injected.detail["dropped"]["n1->n2"] >= 1
    assert (injected.detail["not_refused"], injected.detail["unasked"]) == ({}, [])
    assert cluster.nemesis.heal(REJECT).status == "confirmed"


def test_a_partition_that_should_reject_and_is_silent_is_a_mismatch() -> None:
    cluster = Cluster()
    cluster.network.can_reject = False
    injected = cluster.nemesis.inject(REJECT)
    assert injected.status == "mismatch"
    assert injected.detail["not_refused"]["n1"] == ["n2", "n3"]


def test_the_evidence_of_a_rejecting_partition_states_the_rejection() -> None:
    assert KINDS["reject"].sentence(REJECT) == "n1 is cut off from the other nodes, both ways: connections are refused"
    assert KINDS["reject"].proof({"dropped": {"n1->n2": 3}}, {}) == "3 packets rejected on 1 directed link"
