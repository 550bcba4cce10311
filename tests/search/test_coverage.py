"""Which states a run has been in, how long it stayed where, and which of them are deep."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from analysis.evidence.meetings import DURING, POWERLESS
from analysis.evidence.run_directory import node_events
from orchestrator.search.coverage import (
    DEEP,
    SOMETIMES,
    ClusterAbstraction,
    Meetings,
    ReplicaAbstraction,
    Stay,
    Visit,
    constellation,
    met,
    stays,
    visits,
)
from tests.worlds.simulated import SimulatedRun, campaign, simulate


@pytest.fixture
def bounced(tmp_path: Path) -> SimulatedRun:
    return simulate(campaign("bounce-unseen"), tmp_path, cell="mutated", seeds=[2])


def test_visits_have_times_in_seconds_of_the_load(bounced: SimulatedRun) -> None:
    moments = [it.at_s for it in visits(bounced.path, "log")]
    (began,) = (line["wall"] for line in bounced.of("phase") if line["name"] == "main")
    (first, *_) = (line["wall"] for line in bounced.of("fault_injected"))
    assert moments[0] == -1.0, "before the load"
    assert any(abs(moment - (first - began)) < 0.001 for moment in moments)


LOG = ("log", 0)
LEADER, FOLLOWER, LAGGARD = (
    ReplicaAbstraction("up", "leader", "=", True, "="),
    ReplicaAbstraction("up", "follower", "=", True, "="),
    ReplicaAbstraction("up", "follower", "<", False, "<"),
)
BOTH, ALONE = ClusterAbstraction((FOLLOWER, LEADER), (), ()), ClusterAbstraction((LAGGARD, LEADER), (), ())


def test_a_constellation_has_its_longest_stay_and_the_roles_of_nodes() -> None:
    shaken = ClusterAbstraction(BOTH.replicas, (), ("kill",))
    found = stays(
        [
            Visit(-1.0, ALONE, LOG, ("n9", "n8")),
            Visit(1.0, BOTH, LOG, ("n1", "n2")),
            Visit(1.5, shaken, LOG, ("n1", "n2")),
            Visit(2.0, ALONE, LOG, ("n1", "n2")),
            Visit(2.25, BOTH, LOG, ("n1", "n2")),
            Visit(2.5, ALONE, LOG, ("n2", "n1")),
            Visit(3.5, BOTH, LOG, ("n1", "n2")),
        ]
    )
    assert found == {
        constellation(str(BOTH)): Stay(1.0, 1.0, {"up/followeri": ["n1"], "up/leaderi": ["n2"]}),
        constellation(str(ALONE)): Stay(2.5, 1.0, {"up/followero": ["n2"], "up/leaderi": ["n1"]}),
    }


def test_stays_are_counted_for_each_partition() -> None:
    found = stays(
        [
            Visit(1.0, ALONE, LOG, ("n1", "n2")),
            Visit(1.5, BOTH, ("log", 1), ("n1", "n2")),
            Visit(3.0, BOTH, LOG, ("n1", "n2")),
        ]
    )
    assert found[constellation(str(ALONE))].lasts_s == 2.0


def test_a_visit_names_the_node_of_each_replica(bounced: SimulatedRun) -> None:
    last = list(visits(bounced.path, "log"))[-1]
    leader = next(node for node, it in zip(last.nodes, last.state.replicas, strict=True) if it.role == "leader")
    events = [event for node in last.nodes for event in node_events(bounced.path, node)]
    led = [it for it in events if it["event"] == "partition_role" and it["role"] == "leader" and it["topic"] == "log"]
    assert leader == f"n{max(led, key=lambda event: event['leader_epoch'])['node']}"


def test_states_are_those_of_the_traces(bounced: SimulatedRun) -> None:
    states = [it.state for it in visits(bounced.path, "log")]
    assert any(state.faults == ("partition-one", "partition-one", "power-loss") for state in states)
    last = states[-1]
    assert sorted(replica.role for replica in last.replicas) == ["follower", "leader"]
    assert all(replica.runs == "up" and replica.epoch == "=" and replica.in_sync for replica in last.replicas)
    assert DEEP["an ISR member that does not run"](next(state for state in states if "power-loss" in state.faults))
    assert list(visits(bounced.path, "other")) == []


@pytest.mark.parametrize(
    ("name", "deep", "shallow"),
    [
        (
            "two leaders",
            [ReplicaAbstraction("up", "leader", "<", False, "="), ReplicaAbstraction("up", "leader", "=", True, "=")],
            [ReplicaAbstraction("down", "leader", "<", False, "="), ReplicaAbstraction("up", "leader", "=", True, "=")],
        ),
        (
            "a leader alone in its ISR",
            [ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "=", False, "<")],
            [ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "=", True, "=")],
        ),
        (
            "a follower ahead of its leader",
            [ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "=", True, ">")],
            [ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "=", True, "<")],
        ),
        (
            "a leader alone in its ISR behind another replica",
            [ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "<", False, ">")],
            [ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "<", True, ">")],
        ),
        (
            "the last ISR member does not run while another replica does",
            [
                ReplicaAbstraction("down", "leader", "=", True, "="),
                ReplicaAbstraction("up", "follower", "=", False, "<"),
            ],
            [
                ReplicaAbstraction("down", "leader", "=", True, "="),
                ReplicaAbstraction("still", "follower", "=", False, "<"),
            ],
        ),
    ],
)
def test_a_deep_state_is_distinguished_from_a_shallow_one(
    name: str, deep: list[ReplicaAbstraction], shallow: list[ReplicaAbstraction]
) -> None:
    assert DEEP[name](ClusterAbstraction(tuple(deep), (), ()))
    assert not DEEP[name](ClusterAbstraction(tuple(shallow), (), ()))


def test_a_leader_that_is_alone_and_cut_off_is_deep() -> None:
    alone = (ReplicaAbstraction("up", "leader", "=", True, "="), ReplicaAbstraction("up", "follower", "<", False, "<"))
    deep = DEEP["a leader alone in its ISR while a partition is in force"]
    assert deep(ClusterAbstraction(alone, (), ("partition-one",)))
    assert not deep(ClusterAbstraction(alone, (), ("kill",)))


UNFLUSHED = {"quorum.voters": "3", "min.insync.replicas": "2"}
FLUSHED = {**UNFLUSHED, "log.flush.interval.messages": "1"}
CUT = {"event": "truncated", "topic": "log", "from_offset": 7, "to_offset": 5, "rule": "epoch"}
COMPARED = {"recovery-point-ahead": 3}


def meetings(
    *events: Mapping[str, object],
    settings: Mapping[str, str] = FLUSHED,
    kinds: Sequence[str] = (),
    checks: Mapping[str, int] | None = None,
    administered: str = "",
    added: Sequence[int] = (),
) -> Meetings:
    operations = ({"operation": administered, "arguments": {"added": added}},) if administered else ()
    return Meetings(settings, frozenset(kinds), events, checks or {}, operations)


@pytest.mark.parametrize(
    ("name", "it", "other"),
    [
        ("a session expired", meetings({"event": "session_expired"}), meetings({"event": "fenced"})),
        (
            "power lost with three voters and min.insync.replicas of 2",
            meetings(kinds=["power-loss"]),
            meetings(kinds=["power-loss"], settings=FLUSHED | {"quorum.voters": "2"}),
        ),
        (
            "power lost while records were not flushed",
            meetings(kinds=["power-loss-all"], settings=UNFLUSHED),
            meetings(kinds=["power-loss-all"]),
        ),
        (
            "a crash after a recovery point",
            meetings(kinds=["kill"], checks=COMPARED),
            meetings(kinds=["stop"], checks=COMPARED),
        ),
        (
            "a crash after a recovery point, without flushes",
            meetings(kinds=["kill"], checks=COMPARED, settings=UNFLUSHED),
            meetings(kinds=["kill"], checks=COMPARED),
        ),
        ("a start that shortened a log", meetings({"event": "log_shortened"}), meetings()),
        ("a follower that removed records", meetings(CUT), meetings(CUT | {"to_offset": 7})),
        ("a voter that removed records", meetings(CUT | {"rule": "K595-40"}), meetings(CUT)),
        (
            "five leader epochs of a partition",
            meetings({"event": "partition_role", "leader_epoch": 5}),
            meetings({"event": "partition_role", "leader_epoch": 4}),
        ),
        (
            "three leaders of the quorum",
            meetings(*({"event": "quorum_role", "role": "leader", "epoch": epoch} for epoch in (1, 3, 4))),
            meetings(*({"event": "quorum_role", "role": "leader", "epoch": epoch} for epoch in (1, 3, 3))),
        ),
        (
            "a fault longer than a session",
            meetings()._replace(conditions={"longer than session": 1}),
            meetings()._replace(conditions={"longer than session": 0, "longer than lag": 1}),
        ),
        ("a fault during another", meetings()._replace(conditions={DURING: 1}), meetings()),
        ("a majority without power", meetings()._replace(conditions={POWERLESS: 1}), meetings()),
        ("a snapshot of the metadata", meetings({"event": "quorum_snapshot"}), meetings()),
        ("a disk replaced", meetings(kinds=["disk-wipe"]), meetings(kinds=["disk-flip"])),
        ("a log set aside", meetings({"event": "partition_set_aside"}), meetings()),
        ("records deleted", meetings({"event": "records_deleted"}), meetings({"event": "log_start_moved"})),
        (
            "records expired",
            meetings({"event": "log_start_moved", "topic": "log"}),
            meetings({"event": "log_start_moved", "topic": "log"}, {"event": "records_deleted"}),
        ),
        ("a topic created by an administrator", meetings(administered="create"), meetings(administered="grow")),
        ("a topic enlarged", meetings(administered="grow"), meetings(administered="create")),
        ("a topic deleted", meetings(administered="delete"), meetings(administered="delete-records")),
        ("a setting of a topic changed", meetings(administered="configure"), meetings(administered="elect")),
        (
            "a partition given to an empty replica",
            meetings(administered="reassign", added=[2]),
            meetings(administered="reassign"),
        ),
        ("a group deleted", meetings(administered="delete-group"), meetings(administered="commit")),
        (
            "a remote segment uploaded",
            meetings({"event": "remote_segment", "state": "COPY_FINISHED"}),
            meetings({"event": "remote_segment", "state": "COPY_STARTED"}),
        ),
        ("a start from remote storage", meetings({"event": "bootstrapped"}), meetings({"event": "bootstrap_waits"})),
        (
            "a coordinator that loaded records",
            meetings({"event": "coordinator_loaded", "records": 1}),
            meetings({"event": "coordinator_loaded", "records": 0}),
        ),
        ("a log compacted", meetings({"event": "log_compacted"}), meetings({"event": "log_uncleanable"})),
        ("a leader recovered before it served", meetings({"event": "leader_recovered"}), meetings()),
        (
            "an unclean election was possible, and a leader recovered",
            meetings({"event": "leader_recovered"}, settings={"unclean.leader.election.enable": "true"}),
            meetings({"event": "leader_recovered"}),
        ),
        ("an object damaged at rest", meetings(kinds=["object-cut"]), meetings(kinds=["objects-slow"])),
        *(
            (f"a crash at operations on {files}", meetings()._replace(crashes=frozenset({files})), meetings())
            for files in ("any", "segments", "remote")
        ),
    ],
)
def test_a_run_that_met_it_differs_from_one_that_did_not(name: str, it: Meetings, other: Meetings) -> None:
    assert (SOMETIMES[name](it), SOMETIMES[name](other)) == (True, False)


def test_a_run_names_its_meetings(bounced: SimulatedRun) -> None:
    names = met(bounced.path, {"quorum.voters": "3", "min.insync.replicas": "2"}, {"session": 0.1})
    assert {"power lost with three voters and min.insync.replicas of 2", "a follower that removed records"} <= set(
        names
    )
    assert "records deleted" not in names
