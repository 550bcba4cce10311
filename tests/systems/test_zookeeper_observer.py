"""An observer reads a ZooKeeper's znodes, and writes some of them."""

from typing import Any

import pytest

from systems import Elector, Member, PartitionState
from systems.apache_kafka_zk.kafka import BrokerReport, ZooKeeperClient, ZooKeeperObserver
from tests.systems.fake_znodes import FakeZnodes, as_json

MEMBERS = [
    Member("n1", 1, "10.0.0.1", 9092, "broker"),
    Member("n2", 2, "10.0.0.2", 9092, "broker"),
    Member("n3", 3, "10.0.0.3", 2181, "zookeeper"),
]
SETTLED = BrokerReport(2, {0: 1})
STATE = "/brokers/topics/log/partitions/0/state"
REASSIGNMENT, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"


def cluster(**changes: Any) -> FakeZnodes:
    """Two brokers; n2 controls, n1 leads the one partition, and both are in sync. `None` takes a znode away."""
    content: dict[str, Any] = {
        "/brokers/ids": b"",
        "/brokers/ids/1": {"host": "10.0.0.1"},
        "/brokers/ids/2": {"host": "10.0.0.2"},
        "/brokers/topics": b"",
        "/config/topics": b"",
        "/admin/delete_topics": b"",
        "/controller": {"version": 1, "brokerid": 2},
        "/controller_epoch": b"7",
        "/brokers/topics/log": {"version": 1, "partitions": {"0": [1, 2]}},
        STATE: {"leader": 1, "leader_epoch": 4, "isr": [1, 2], "controller_epoch": 7},
    } | {path.replace("__", "/"): value for path, value in changes.items()}
    return FakeZnodes({path: value for path, value in content.items() if value is not None})


def observer(znodes: FakeZnodes, report: BrokerReport = SETTLED) -> ZooKeeperObserver:
    return ZooKeeperObserver(MEMBERS, "log", znodes, ask=lambda *_: report)


def test_the_observer_returns_the_state_written_by_the_controller() -> None:
    view = observer(cluster()).view()
    assert (view.controller, view.epoch) == ("n2", 7)
    assert view.unfenced == {"n1", "n2", "n3"}
    assert view.partitions == {0: PartitionState("n1", 4, ("n1", "n2"), ("n1", "n2"))}
    assert view.complaints == ()


def test_a_broker_with_an_ended_session_is_not_alive() -> None:
    assert observer(cluster(**{"/brokers/ids/2": None})).view().unfenced == {"n1", "n3"}


def test_before_the_first_broker_only_zookeeper_is_alive() -> None:
    view = observer(FakeZnodes({})).view()
    assert (view.controller, view.epoch) == (None, -1)
    assert view.unfenced == {"n3"}
    assert not view.partitions


def test_a_partition_without_a_leader_or_a_state_has_no_leader() -> None:
    offline = {STATE: {"leader": -1, "leader_epoch": 5, "isr": [2]}}
    assert observer(cluster(**offline)).view().partitions[0] == PartitionState(None, 5, ("n2",), ("n1", "n2"))
    assert observer(cluster(**{STATE: None})).view().partitions[0] == PartitionState(None, -1, (), ("n1", "n2"))


def test_a_zookeeper_that_does_not_answer_is_a_complaint() -> None:
    znodes = cluster()
    znodes.refusal = "not connected"
    view = observer(znodes).view()
    assert view.unfenced == frozenset()
    assert view.complaints == ("ZooKeeper does not answer (not connected)",)
    assert observer(znodes).create_topic([[1, 2]], 1.0) == "ZooKeeper does not answer (not connected)"
    assert observer(znodes).elect("n1", None) == "ZooKeeper does not answer (not connected)"


@pytest.mark.parametrize("wrong", [b"no JSON", b"{}", b"[]", b'{"brokerid": "x"}'])
def test_znodes_that_kafka_does_not_write_are_a_complaint(wrong: bytes) -> None:
    found = observer(cluster(**{"/controller": wrong}))
    assert "ZooKeeper has content that Kafka does not write" in found.view().complaints[0]
    assert "ZooKeeper has content that Kafka does not write" in (found.elect("n1", None) or "")


def test_a_topic_is_created_once() -> None:
    znodes = cluster(**{"/brokers/topics/log": None, STATE: None})
    for _ in range(2):
        assert observer(znodes).create_topic([[1, 2], [2, 1]], 1.0) is None
    assert znodes.json("/brokers/topics/log") == {"version": 1, "partitions": {"0": [1, 2], "1": [2, 1]}}
    assert znodes.json("/config/topics/log") == {"version": 1, "config": {}}


def test_without_a_broker_topic_creation_fails() -> None:
    assert observer(FakeZnodes({})).create_topic([[1]], 1.0) == "no broker has created its znodes yet"


def test_a_controller_is_relieved_until_the_right_one_has_won() -> None:
    znodes = cluster()
    found = observer(znodes)
    assert isinstance(found, Elector)
    assert found.elect("n1", None) == "the term of the controller n2 was ended"
    assert found.elect("n1", None) == "there is no controller"
    znodes.content["/controller"] = as_json({"brokerid": 1})
    assert found.elect("n1", None) == "n1 was elected controller, but does not yet report it to clients"
    assert observer(znodes, BrokerReport(1)).elect("n1", None) is None
    assert znodes.json("/controller") == {"brokerid": 1}


def test_an_elected_leader_is_put_first_then_elected_then_queried() -> None:
    znodes = cluster()
    assert "was asked to prefer n2" in str(observer(znodes).elect("n2", 0))
    plan = {"topic": "log", "partition": 0}
    assert znodes.json(REASSIGNMENT) == {"version": 1, "partitions": [{**plan, "replicas": [2, 1]}]}
    assert "still busy" in str(observer(znodes).elect("n2", 0))

    znodes.delete(REASSIGNMENT)
    znodes.content["/brokers/topics/log"] = as_json({"partitions": {"0": [2, 1]}})
    assert "was asked to elect n2" in str(observer(znodes).elect("n2", 0))
    assert znodes.json(ELECTION) == {"version": 1, "partitions": [plan]}
    assert "still busy" in str(observer(znodes).elect("n2", 0))

    znodes.delete(ELECTION)
    znodes.content[STATE] = as_json({"leader": 2, "leader_epoch": 6, "isr": [1, 2]})
    assert (
        observer(znodes, BrokerReport(2, {0: 1})).elect("n2", 0)
        == "n2 was elected, but does not yet report it to clients"
    )
    assert observer(znodes, BrokerReport(2, {0: 2})).elect("n2", 0) is None


@pytest.mark.parametrize(("node", "partition"), [("n3", 0), ("n1", 1)])
def test_a_node_without_a_replica_cannot_be_elected(node: str, partition: int) -> None:
    assert observer(cluster()).elect(node, partition) == f"{node} has no replica of partition {partition}"


def test_closing_ends_the_session() -> None:
    znodes = cluster()
    observer(znodes).close()
    assert znodes.closed


def test_the_observer_does_not_wait_for_a_missing_zookeeper() -> None:
    client = ZooKeeperClient(["127.0.0.1:1"])
    found = ZooKeeperObserver(MEMBERS, "log", client)
    assert found.view().complaints == ("ZooKeeper does not answer (not connected)",)
    found.close()
