"""Admission of connections: bounds on all and on each address, and further places for connections that prove to be
brokers."""

import pytest

from broker.protocol.api import ApiKey, encode_request
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.server.connection import Connection, Outcome, Rejected
from broker.server.listener import KEPT_FOR_BROKERS, Admission, Doorway, Listener
from broker.server.work_budget import MOST_ENTRIES
from broker.trace import Tracer
from tests.broker.server.test_connection import Echo


def connections(count: int) -> list[Connection]:
    listener = Listener(
        Echo(), Tracer(1, lambda: 0, lambda _: None), request_max_bytes=1, max_connections=1, max_queued=1
    )
    return [Connection(listener) for _ in range(count)]


def test_the_bounds_are_of_all_and_of_each_address() -> None:
    admission = Admission(3, 2, {"10.0.0.9": 1})
    first, second, ninth = connections(3)
    for connection, address in ((first, "10.0.0.1"), (ninth, "10.0.0.9")):
        assert admission.refusal(address) is None
        admission.admit(connection, address)
    assert admission.refusal("10.0.0.9") == "more than max.connections.per.ip=1 connections from 10.0.0.9"
    assert admission.refusal("10.0.0.1") is None
    admission.admit(second, "10.0.0.1")
    assert admission.refusal("10.0.0.2") == "more than max.connections=3 connections"
    admission.left(ninth)
    assert admission.refusal("10.0.0.9") is None
    assert admission.refusal("10.0.0.1") == "more than max.connections.per.ip=2 connections from 10.0.0.1"


def test_silent_connections_are_closed_for_new_ones_and_brokers_stay() -> None:
    admission = Admission(0, 0, {})
    broker, *silent = connections(KEPT_FOR_BROKERS + 1)
    assert admission.try_out(broker) is None
    admission.is_broker(broker)
    for connection in silent[:-1]:
        assert admission.try_out(connection) is None
    assert admission.try_out(silent[-1]) is silent[0]
    assert not admission.on_trial(silent[0])
    assert admission.on_trial(silent[-1])
    for connection in silent[1:]:
        admission.is_broker(connection)
    (late,) = connections(1)
    assert admission.try_out(late) is late
    admission.left(broker)
    assert admission.try_out(late) is None


def test_a_connection_with_an_oversized_request_does_not_count_as_a_broker() -> None:
    """The bytes that identify a connection are decoded within the bound of any request."""
    admission = Admission(0, 0, {})
    peer, stranger = connections(2)
    host = peer._host

    def dispatched(connection: Connection, partitions: int) -> Outcome:
        admission.try_out(connection)
        topics = [FetchTopic("t", partitions=[FetchPartition()] * partitions)]
        frame = encode_request(FetchRequest(replica_id=2, topics=topics), 12, 1, None)
        return Doorway(host, admission, "full").dispatch(connection, memoryview(frame)[4:])

    with pytest.raises(Rejected, match="full"):
        dispatched(stranger, MOST_ENTRIES[ApiKey.FETCH] + 1)
    with pytest.raises(Rejected, match="as you wish"):  # of the host behind the door
        dispatched(peer, 1)
    assert not admission.on_trial(peer)
