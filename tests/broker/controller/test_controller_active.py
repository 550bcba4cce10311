"""The running controller: its term, its sessions, its proofs of leadership, and one operation at a time."""

import asyncio

import pytest

from broker.clock_rates import PACE
from broker.controller import active
from broker.errors import AppendRefusedError, CommitUncertainError, ErrorCode, NotLeaderError, ProtocolError
from broker.protocol.messages.metadata_records import NoOpRecord
from broker.protocol.messages.partition_apis import (
    AlterPartitionRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.controller.clock import play, stall
from tests.broker.controller.node import COMMIT_DELAY, LEASE, SESSION, Node, a_node
from tests.broker.controller.world import registration, topic_request
from tests.stories import run_by

STORIES = run_by(play)


async def test_a_node_that_does_not_lead_is_not_the_controller() -> None:
    node = Node()
    controller = node.controller
    assert not controller.is_active
    refused = ErrorCode.NOT_CONTROLLER
    assert (await controller.handle_broker_registration(registration(1), 4)).error_code == refused
    assert (await node.heartbeat(1)).error_code == refused
    assert (await controller.handle_alter_partition(AlterPartitionRequest(1), 3)).error_code == refused
    created = await controller.handle_create_topics(topic_request("t", [1]), 7)
    assert created.topics[0].error_code == refused
    deleted = await controller.handle_delete_topics(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000), 6)
    assert deleted.responses[0].error_code == refused


@pytest.mark.conforms("K595-46")
async def test_the_first_leader_commits_the_clusters_id() -> None:
    node = await a_node(1)
    assert node.image.cluster_id == "brownout-cluster"
    assert (await node.controller.handle_broker_registration(registration(2, 1, "other"), 4)).error_code == (
        ErrorCode.INCONSISTENT_CLUSTER_ID
    )


async def test_brokers_topics_and_isrs_are_stored_in_the_metadata_log() -> None:
    node = await a_node(1, 2, 3)
    created = await node.controller.handle_create_topics(topic_request("t", [1, 2, 3]), 7)
    assert created.topics[0].error_code == 0
    assert node.image.partition("t", 0) is not None
    request = CreateTopicsRequest([CreatableTopic("u", 1, 3)], validate_only=True)
    assert (await node.controller.handle_create_topics(request, 7)).topics[0].error_code == 0
    deleted = await node.controller.handle_delete_topics(
        DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000), 6
    )
    assert deleted.responses[0].error_code == 0
    assert node.image.topics == {}
    await node.controller.stop()
    assert node.quorum.most_appending == 1


async def test_an_answer_waits_until_the_records_are_applied_here() -> None:
    node = await a_node()
    node.quorum.deliver_late = True
    epoch = await node.register(1)
    assert node.image.brokers[1].epoch == epoch


async def test_operations_are_made_one_at_a_time_and_in_order() -> None:
    node = await a_node(1)
    requests = [topic_request("t", [1]), topic_request("t", [1]), topic_request("u", [1])]
    answers = await asyncio.gather(*(node.controller.handle_create_topics(request, 7) for request in requests))
    codes = [answer.topics[0].error_code for answer in answers]
    assert codes == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    assert node.quorum.most_appending == 1


async def test_a_disconnected_client_does_not_cancel_an_operation() -> None:
    node = await a_node(1)
    task = asyncio.ensure_future(node.controller.handle_create_topics(topic_request("t", [1]), 7))
    await asyncio.sleep(COMMIT_DELAY / 2)
    task.cancel()
    again = await node.controller.handle_create_topics(topic_request("t", [1]), 7)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_client_waits_for_its_requested_timeout() -> None:
    node = await a_node(1)
    node.quorum.may_commit.clear()
    request = topic_request("t", [1])
    request.timeout_ms = 500
    answer = await node.controller.handle_create_topics(request, 7)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    deletion = DeleteTopicsRequest([DeleteTopicState("u")], timeout_ms=500)
    deleted = await node.controller.handle_delete_topics(deletion, 6)
    assert deleted.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    node.quorum.may_commit.set()
    await asyncio.sleep(1)
    assert "t" in node.image.topics


async def test_the_queue_is_bounded_except_for_session_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "MAX_QUEUED", 2)
    node = await a_node(1)
    node.quorum.may_commit.clear()
    waiting = []
    for name in ("first", "second", "third"):
        waiting.append(asyncio.ensure_future(node.controller.handle_create_topics(topic_request(name, [1]), 7)))
        await asyncio.sleep(0.01)
    refused = await node.controller.handle_create_topics(topic_request("fourth", [1]), 7)
    assert refused.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    leaving = asyncio.ensure_future(node.heartbeat(1, want_fence=True))
    await asyncio.sleep(0.1)
    node.quorum.may_commit.set()
    answers = await asyncio.gather(*waiting)
    assert [answer.topics[0].error_code for answer in answers] == [0, 0, 0]
    assert (await leaving).is_fenced


async def test_a_broker_that_falls_silent_is_fenced_after_its_session_and_not_before() -> None:
    node = await a_node(1, 2)
    await node.controller.handle_create_topics(topic_request("t", [2, 1]), 7)
    await node.beat(SESSION - 0.4, 1)
    assert not node.image.brokers[2].fenced
    await node.beat(1.0, 1)
    assert node.image.brokers[2].fenced
    assert not node.image.brokers[1].fenced
    partition = node.image.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.isr) == (1, (1,))
    assert [event["broker"] for event in node.events if event["event"] == "session_expired"] == [2]
    assert not (await node.heartbeat(2)).is_fenced, "back again"


async def test_a_new_controller_grants_a_full_session() -> None:
    node = await a_node(1, 2)
    await node.beat(SESSION - 0.4, 1)
    node.controller.leadership_changed(None)
    assert (await node.heartbeat(1)).error_code == ErrorCode.NOT_CONTROLLER
    await asyncio.sleep(10)
    node.lead(2)
    await asyncio.sleep(SESSION - 0.1)
    assert not any(broker.fenced for broker in node.image.brokers.values())
    await asyncio.sleep(0.2)
    assert all(broker.fenced for broker in node.image.brokers.values())


async def test_a_suspended_controller_does_not_fence_brokers_for_its_pause() -> None:
    node = await a_node(1, 2)
    await node.beat(1.0, 1, 2)
    stall(10)
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert not any(broker.fenced for broker in node.image.brokers.values())
    await node.beat(0.5, 1, 2)
    assert not any(event["event"] == "session_expired" for event in node.events)


async def test_a_heartbeat_of_a_broker_that_is_being_fenced_waits_for_the_outcome() -> None:
    """The answer "not fenced" would be a lease that outlives the election of another leader."""
    node = await a_node(1, 2)
    await node.controller.handle_create_topics(topic_request("t", [2, 1]), 7)
    await node.beat(SESSION - 0.2, 1)
    node.quorum.may_commit.clear()
    await asyncio.sleep(0.5)
    late = asyncio.ensure_future(node.heartbeat(2))
    await asyncio.sleep(0.2)
    assert not late.done()
    node.quorum.may_commit.set()
    await late
    partition = node.image.partition("t", 0)
    assert partition is not None
    assert partition.leader == 1, "it was fenced first, and let in again then"


async def test_a_leader_without_a_recent_proof_renews_no_session() -> None:
    """Another controller fences a session after its election at the earliest, and that may be soon after the proof."""
    node = await a_node(1)
    await node.beat(5.0, 1)
    node.quorum.may_commit.clear()
    loop = asyncio.get_running_loop()
    cut_off_at = last_answer_at = loop.time()
    while True:
        beat = asyncio.ensure_future(node.heartbeat(1))
        await asyncio.sleep(0.1)
        if not beat.done():
            break
        assert beat.result().error_code == 0
        last_answer_at = loop.time()
    assert last_answer_at - cut_off_at <= SESSION - LEASE
    node.quorum.failure = CommitUncertainError("deposed")
    node.quorum.may_commit.set()
    assert (await beat).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await node.heartbeat(1)).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.conforms("H31")
async def test_a_proof_of_leadership_has_the_start_time_of_its_commit() -> None:
    """A late commit shows the leader at the time of its write: another leader may have been elected since."""
    node = await a_node(1)
    node.quorum.may_commit.clear()
    late = asyncio.ensure_future(node.register(2))
    await asyncio.sleep(SESSION - LEASE + 0.1)
    node.quorum.may_commit.set()
    await late
    node.quorum.may_commit.clear()
    beat = asyncio.ensure_future(node.heartbeat(1))
    await asyncio.sleep(0.1)
    assert not beat.done(), "it waits for another proof"
    node.quorum.may_commit.set()
    assert (await beat).error_code == 0


@pytest.mark.conforms("H31")
async def test_a_late_proof_of_leadership_is_ignored() -> None:
    node = await a_node(1)
    node.quorum.may_commit.clear()
    await asyncio.sleep(SESSION - LEASE + 0.1)
    beat = asyncio.ensure_future(node.heartbeat(1))
    await asyncio.sleep(SESSION - LEASE + 0.1)
    node.quorum.may_commit.set()
    assert (await beat).error_code == ErrorCode.NOT_CONTROLLER, (
        "another controller may have been elected since the heartbeat started"
    )
    assert (await node.heartbeat(1)).error_code == 0


@pytest.mark.conforms("H31")
async def test_a_session_that_ends_while_its_heartbeat_waits_for_a_proof_gives_no_lease() -> None:
    node = await a_node(1)
    await asyncio.sleep(SESSION - 0.2)
    node.quorum.may_commit.clear()
    beat = asyncio.ensure_future(node.heartbeat(1))
    await asyncio.sleep(0.4)
    assert any(event["event"] == "session_expired" for event in node.events)
    node.quorum.may_commit.set()
    assert (await beat).is_fenced, "it is about to be replaced, though the metadata do not say so yet"


async def test_proofs_are_cheap() -> None:
    node = await a_node(1, 2, 3)
    before = len(node.quorum.log)
    await node.beat(30.0, 1, 2, 3)
    proofs = [record for record in node.quorum.log[before:] if isinstance(record, NoOpRecord)]
    assert len(node.quorum.log) - before == len(proofs)
    assert 20 <= len(proofs) <= 70, "about two a second, whatever the number of brokers"


@pytest.mark.conforms("H12")
async def test_a_bounced_broker_need_not_wait_for_its_old_session() -> None:
    node = await a_node(1, 2)
    started = asyncio.get_running_loop().time()
    old = node.image.brokers[2].epoch
    await node.register(2, life=2)
    assert (await node.heartbeat(2, broker_epoch=old)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not (await node.heartbeat(2)).is_fenced
    assert asyncio.get_running_loop().time() - started < 0.1


async def test_a_broker_that_has_not_caught_up_stays_fenced() -> None:
    node = await a_node()
    await node.register(1)
    behind = await node.heartbeat(1, current_metadata_offset=node.image.brokers[1].epoch - 1)
    assert (behind.error_code, behind.is_caught_up, behind.is_fenced) == (0, False, True)
    ready = await node.heartbeat(1)
    assert (ready.is_caught_up, ready.is_fenced, ready.should_shut_down) == (True, False, False)


async def test_a_broker_that_shuts_down_is_released() -> None:
    node = await a_node(1, 2)
    answer = await node.heartbeat(2, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert node.image.brokers[2].fenced
    assert (await node.heartbeat(2, want_shut_down=True)).should_shut_down, "asked again"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotLeaderError("deposed"), ErrorCode.NOT_CONTROLLER),
        (CommitUncertainError("deposed"), ErrorCode.REQUEST_TIMED_OUT),
        (ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_an_append_that_fails_ends_the_term(failure: Exception, code: ErrorCode) -> None:
    node = await a_node(1)
    node.quorum.failure = failure
    first = asyncio.ensure_future(node.controller.handle_create_topics(topic_request("t", [1]), 7))
    second = asyncio.ensure_future(node.controller.handle_create_topics(topic_request("u", [1]), 7))
    assert (await first).topics[0].error_code == code
    assert (await second).topics[0].error_code == ErrorCode.NOT_CONTROLLER, "this one certainly did not happen"
    assert not node.controller.is_active
    assert node.quorum.resigned == [1], "who cannot decide does not stand in the way of others"
    node.quorum.failure = None
    assert (await node.heartbeat(1)).error_code == ErrorCode.NOT_CONTROLLER
    node.lead(2)
    assert (await node.heartbeat(1)).error_code == 0


async def test_a_request_too_large_to_append_is_refused_and_the_term_continues() -> None:
    node = await a_node(1)
    node.quorum.failure = AppendRefusedError(ErrorCode.POLICY_VIOLATION, "too many bytes")
    answer = await node.controller.handle_create_topics(topic_request("t", [1]), 7)
    assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    node.quorum.failure = None
    assert node.controller.is_active
    assert node.quorum.resigned == []
    assert (await node.controller.handle_create_topics(topic_request("u", [1]), 7)).topics[0].error_code == 0


async def test_a_fencing_that_was_refused_is_tried_again() -> None:
    node = await a_node(1, 2)
    assert (await node.controller.handle_create_topics(topic_request("t", [2, 1]), 7)).topics[0].error_code == 0
    node.quorum.most_records = 1
    await node.beat(1.5 * SESSION, 1)
    assert not node.image.brokers[2].fenced
    assert [event["broker"] for event in node.events if event["event"] == "fencing_refused"] == [2]
    node.quorum.most_records = 2
    await node.beat(2 * SESSION, 1)
    assert node.image.brokers[2].fenced
    assert node.image.topics["t"].partitions[0].leader == 1


@pytest.mark.parametrize("wish", ["want_fence", "want_shut_down"])
async def test_a_refused_fencing_requested_by_the_broker_is_repeated(wish: str) -> None:
    """A broker that stops waits only for a bounded time for the controller's consent."""
    node = await a_node(1, 2)
    assert (await node.controller.handle_create_topics(topic_request("t", [2, 1]), 7)).topics[0].error_code == 0
    node.quorum.most_records = 1
    assert (await node.heartbeat(2, **{wish: True})).error_code == ErrorCode.POLICY_VIOLATION
    assert [event["broker"] for event in node.events if event["event"] == "fencing_refused"] == [2]
    node.quorum.most_records = 2
    await node.beat(2 * SESSION, 1)
    assert node.image.brokers[2].fenced
    assert node.image.topics["t"].partitions[0].leader == 1


async def test_a_broker_that_returns_after_a_refused_fencing_stays_unfenced() -> None:
    node = await a_node(1, 2)
    await node.controller.handle_create_topics(topic_request("t", [2, 1]), 7)
    node.quorum.most_records = 1
    await node.beat(SESSION + 0.5, 1)
    assert not (await node.heartbeat(2)).is_fenced
    await node.beat(2 * SESSION, 1, 2)
    assert node.image.topics["t"].partitions[0].leader == 2


async def test_a_leadership_lost_between_commit_and_answer_leaves_the_result_open() -> None:
    node = await a_node(1)
    node.quorum.deliver_late = True
    waiting = asyncio.ensure_future(node.controller.handle_create_topics(topic_request("t", [1]), 7))
    await asyncio.sleep(COMMIT_DELAY * 2)
    node.controller.leadership_changed(None)
    assert (await waiting).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_stop_answers_waiting_requests() -> None:
    node = await a_node(1)
    node.quorum.may_commit.clear()
    waiting = [
        asyncio.ensure_future(node.controller.handle_create_topics(topic_request(name, [1]), 7)) for name in "tu"
    ]
    await asyncio.sleep(0.1)
    await node.controller.stop()
    codes = [answer.topics[0].error_code for answer in await asyncio.gather(*waiting)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]
    assert not node.controller.is_active


async def test_a_mistake_in_one_request_does_not_end_the_term() -> None:
    node = await a_node(1)
    request = topic_request("t", [1])
    request.topics = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        await node.controller.handle_create_topics(request, 7)
    assert (await node.controller.handle_create_topics(topic_request("t", [1]), 7)).topics[0].error_code == 0


@pytest.mark.conforms("H31")
async def test_an_unresponsive_broker_is_fenced_when_its_lease_has_ended() -> None:
    node = await a_node(1, 2)
    loop = asyncio.get_running_loop()
    await node.beat(1.0, 1, 2)
    await node.heartbeat(2)
    heard = loop.time()
    node.controller.broker_looks_dead(2, node.image.brokers[2].epoch)
    await node.beat(PACE * LEASE - 0.01 - (loop.time() - heard), 1)
    while not node.image.brokers[2].fenced:
        await node.heartbeat(1)
        await asyncio.sleep(0.01)
    assert PACE * LEASE <= loop.time() - heard < PACE * LEASE + 0.5 < SESSION


@pytest.mark.conforms("H31")
async def test_an_unresponsive_broker_that_sends_a_heartbeat_again_stays_unfenced() -> None:
    node = await a_node(1, 2)
    node.controller.broker_looks_dead(2, node.image.brokers[2].epoch)
    await node.beat(2 * SESSION, 1, 2)
    assert not node.image.brokers[2].fenced
    node.controller.broker_looks_dead(2, node.image.brokers[2].epoch - 1)  # a process that is gone long since
    await node.beat(LEASE, 1, 2)


@pytest.mark.conforms("H31")
async def test_a_new_controller_waits_for_the_leases_of_the_one_before_it() -> None:
    node = await a_node(1, 2)
    node.controller.leadership_changed(None)
    loop = asyncio.get_running_loop()
    node.lead(2)
    began = loop.time()
    node.controller.broker_looks_dead(2, node.image.brokers[2].epoch)
    while not node.image.brokers[2].fenced:
        await node.heartbeat(1)
        await asyncio.sleep(0.1)
    assert loop.time() - began >= SESSION


def test_the_mutant_takes_a_refusal_for_death() -> None:
    async def story() -> None:
        node = Node("refused_is_dead")
        node.lead()
        await node.start(1, 2)
        node.controller.broker_looks_dead(2, node.image.brokers[2].epoch)
        await asyncio.sleep(10 * COMMIT_DELAY)
        assert node.image.brokers[2].fenced


@pytest.mark.conforms("H16", "K101-15")
async def test_the_most_complete_log_leads_after_all_candidates_returned() -> None:
    node = Node()
    node.lead()
    await node.start(1, 2)
    response = await node.controller.handle_create_topics(topic_request("t", [1, 2]), 7)
    assert response.topics[0].error_code == 0
    await node.heartbeat(1, want_shut_down=True)
    await node.register(1, life=2)
    node.log_ends = {1: (0, 3)}
    await node.register(2, life=2)
    await node.heartbeat(1)
    partition = node.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (), (2,))
    await node.heartbeat(2)
    await asyncio.sleep(1)
    assert 2 in node.asked
    assert node.image.topics["t"].partitions[0].leader == -1, "it did not answer"
    node.log_ends[2] = (0, 5)
    await asyncio.sleep(1)
    assert node.image.topics["t"].partitions[0].leader == 2
    assert node.image.topics["t"].partitions[0].recovering
    await node.controller.stop()


async def test_elections_are_for_the_controller_to_hold() -> None:
    node = Node()
    request = ElectLeadersRequest(0, [ElectLeadersTopicPartitions("t", [0, 1])])
    refused = await node.controller.handle_elect_leaders(request, 2)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    codes = [it.error_code for it in refused.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.NOT_CONTROLLER] * 2, "version 0 has no error for the whole"
    node.lead()
    await node.start(1)
    unknown = await node.controller.handle_elect_leaders(request, 2)
    codes = [it.error_code for it in unknown.replica_election_results[0].partition_result]
    assert (unknown.error_code, codes) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2)
    await node.controller.stop()
