"""The oracles of hypothetical requests: requests that no client of the run sends, because another rule prevents them.

A broker that keeps one rule never sends the request that the second rule forbids, so no event shows a violation of the
second. Its decision is a pure function, though: in states that a run reaches, brokers are asked what they would decide.
The questions change nothing.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from broker.controller.controller import Controller
from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.protocol.messages.partition_apis import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopicData,
    BrokerState,
)
from broker.replica.follower import PartitionFollower, Phase
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import UNDEFINED
from broker.replica.partition import Partition
from broker.replica.queries import EARLIEST, epoch_end, list_offset
from broker.replica.reads import CONSUMER, FetchLimits, FetchPosition, PartitionReader
from simulator.oracles.controller_rules import is_reachable
from simulator.oracles.findings import IN_RECOVERY, WOULD_ANSWER, WOULD_COUNT, WOULD_GRANT, OracleFindings
from simulator.oracles.log_rules import LogRules
from simulator.oracles.replica import ObservedReplica

SUPPOSED_EPOCH = 0
"""A broker epoch: a replica that names none is refused."""
MATCHED = -1
"""The end of a log that need not be compared with its leader's."""

WITH_EPOCHS = 3
"""The version of AlterPartition that has the broker epoch of each ISR member."""


class Asked(NamedTuple):
    """A possible request to the controller for a partition, and why it must be refused; empty if it need not be."""

    sender: int
    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int
    recovering: bool
    why_not: str = ""


def would_grant(
    findings: OracleFindings,
    rules: Controller,
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    state: PartitionImage,
) -> None:
    """No controller grants an ISR on top of another state (H13), to another broker than the leader, with an unreachable
    member (H14) or another process (H15), or beside a leader that recovers (K704-4).

    The questions are asked only if it grants the leader its current ISR: then nothing else prevents the others.
    """
    if state.leader == NO_LEADER or not _granted(rules, image, topic, index, _as_it_is(image, state)):
        return
    for proposal in _forbidden(image, state):
        findings.checks[WOULD_GRANT] += 1
        if _granted(rules, image, topic, index, proposal):
            sentence = (
                f"{topic.name}-{index}: the controller would grant broker {proposal.sender} the ISR "
                f"{[member for member, _ in proposal.isr]} on top of partition epoch {proposal.partition_epoch}: "
                f"{proposal.why_not}"
            )
            witness = {"leader": state.leader, "isr": list(state.isr), "partition_epoch": state.partition_epoch}
            findings.report(WOULD_GRANT, topic.name, index, sentence, witness)


def _as_it_is(image: MetadataImage, state: PartitionImage) -> Asked:
    members = tuple((member, image.brokers[member].epoch) for member in state.isr if member in image.brokers)
    return Asked(state.leader, members, state.leader_epoch, state.partition_epoch, state.recovering)


def _forbidden(image: MetadataImage, state: PartitionImage) -> Iterator[Asked]:
    """Each request differs in one thing from one that would be granted, and ends a recovery where another broker joins
    only then."""
    fine = _as_it_is(image, state)
    if state.partition_epoch > 0:
        yield fine._replace(partition_epoch=state.partition_epoch - 1, why_not="the state has changed since")
    other_brokers = [broker for broker in state.replicas if broker != state.leader and broker in image.brokers]
    for broker in other_brokers:
        epoch = image.brokers[broker].epoch
        yield fine._replace(sender=broker, why_not="it does not lead")
        base = tuple(member for member in fine.isr if member[0] != broker)
        if not is_reachable(image, broker):
            yield fine._replace(isr=(*base, (broker, epoch)), recovering=False, why_not=f"{broker} cannot be reached")
            continue
        if epoch > 0:  # epochs below are unknown, and not compared
            earlier = f"{broker} is another process than the one of epoch {epoch - 1}"
            yield fine._replace(isr=(*base, (broker, epoch - 1)), recovering=False, why_not=earlier)
        if state.recovering:
            yield fine._replace(isr=(*base, (broker, epoch)), why_not="the leader recovers, and does so alone")


def _granted(rules: Controller, image: MetadataImage, topic: TopicImage, index: int, proposal: Asked) -> bool:
    """Whether the controller would grant it."""
    data = AlterPartitionData(
        partition_index=index,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id, epoch) for broker_id, epoch in proposal.isr],
        leader_recovery_state=int(proposal.recovering),
        partition_epoch=proposal.partition_epoch,
    )
    epoch = image.brokers[proposal.sender].epoch if proposal.sender in image.brokers else -1
    request = AlterPartitionRequest(proposal.sender, epoch, [AlterPartitionTopicData(topic.id, [data])])
    response = rules.alter_partition(image, request, WITH_EPOCHS).answer(image)
    results = (result for topic_data in response.topics for result in topic_data.partitions)
    return response.error_code == ErrorCode.NONE and all(result.error_code == ErrorCode.NONE for result in results)


def would_count(
    rules: LogRules, reader: PartitionReader, leader: ObservedReplica, replicas: Iterable[ObservedReplica]
) -> None:
    """No leader counts a fetch of another epoch (H3), of a log that diverges from its own (H6), such as a deposed
    leader's before it has found the divergence, or of a process that another one has replaced (H15)."""
    partition = leader.alive
    if partition is None or not isinstance(partition.role, PartitionLeader):
        return
    role, log = partition.role, partition.log
    end, epoch = log.log_end_offset, log.epochs.latest_epoch
    for replica in replicas:
        node_id = replica.machine.node_id
        if node_id not in role.replicas or replica.alive is None:
            continue
        ends = MATCHED if _matched(replica.alive, role) else replica.alive.log.log_end_offset
        now = (role.leader_epoch, ends, role.follower(node_id).broker_epoch)
        before = leader.supposed.get(node_id)
        if before == now:
            continue
        shared = FetchPosition(partition.topic, partition.index, end, 0, role.leader_epoch, epoch)
        limits = FetchLimits(node_id, SUPPOSED_EPOCH)
        if reader.shown_by(limits, shared) is not partition:
            return  # no fetch would be counted now
        leader.supposed[node_id] = now
        _of_another_epoch(rules, reader, leader, limits, replace(shared, current_leader_epoch=role.leader_epoch - 1))
        if before is None or (before[0], before[2]) != (now[0], now[2]):
            _of_another_process(rules, leader, role, replica.name, node_id, end)
        if ends != MATCHED:
            _of_another_log(rules, reader, leader, replica, shared)


def would_answer(rules: LogRules, reader: PartitionReader, leader: ObservedReplica) -> None:
    """No leader answers a request that names another epoch (H3), and one that recovers answers none (K704-5)."""
    partition = leader.alive
    if partition is None or not isinstance(partition.role, PartitionLeader):
        return
    role = partition.role
    if leader.asked == (role, role.recovering):
        return
    if not role.recovering and not _answered(reader, partition, role, role.leader_epoch):
        return  # no request would be answered now
    leader.asked = (role, role.recovering)
    mine = role.leader_epoch
    if role.recovering:
        oracle, does, epochs = IN_RECOVERY, "recovers", [UNDEFINED, mine]
    else:
        # A request without an epoch is answered in any.
        oracle, does, epochs = WOULD_ANSWER, "leads", [epoch for epoch in (mine - 1, mine + 1) if epoch != UNDEFINED]
    for epoch in epochs:
        rules.checked(oracle)
        answered = ", ".join(_answered(reader, partition, role, epoch))
        if answered:
            sentence = f"{leader.name} {does} in epoch {mine}, and would answer what names epoch {epoch}: {answered}"
            rules.report(oracle, sentence, {"node": leader.name, "epoch": mine, "asked": epoch})


def _answered(reader: PartitionReader, partition: Partition, role: PartitionLeader, epoch: int) -> list[str]:
    """The kinds of request that a leader would answer though they name this epoch."""
    position = FetchPosition(partition.topic, partition.index, partition.log.local_start_offset, 0, epoch)
    follower = next((replica for replica in role.replicas if replica != role.node_id), CONSUMER)
    answers = {
        "a consumer's Fetch": reader.shown_by(FetchLimits(), position) is not None,
        "a replica's Fetch": reader.shown_by(FetchLimits(follower, SUPPOSED_EPOCH), position) is not None,
        "ListOffsets": list_offset(partition, EARLIEST, epoch, by_replica=False).error is ErrorCode.NONE,
        "OffsetForLeaderEpoch": epoch_end(partition, epoch, role.leader_epoch).error is ErrorCode.NONE,
    }
    return [name for name, answered in answers.items() if answered]


def _matched(follower: Partition, leader: PartitionLeader) -> bool:
    """Whether the follower has found the common prefix with this leader."""
    role = follower.role
    if not isinstance(role, PartitionFollower) or role.phase is not Phase.FETCHING:
        return False
    return role.leader_epoch >= leader.leader_epoch


def _of_another_epoch(
    rules: LogRules, reader: PartitionReader, leader: ObservedReplica, limits: FetchLimits, position: FetchPosition
) -> None:
    rules.checked(WOULD_COUNT)
    if reader.shown_by(limits, position) is not None:
        sentence = (
            f"{leader.name} would count a fetch of broker {limits.replica_id} in epoch "
            f"{position.current_leader_epoch}, in which it does not lead"
        )
        rules.report(WOULD_COUNT, sentence, {"node": leader.name, "epoch": position.current_leader_epoch})


def _of_another_process(
    rules: LogRules, leader: ObservedReplica, role: PartitionLeader, name: str, node_id: int, end: int
) -> None:
    """Counting has no pure form: a copy of the leader's state counts here."""
    twin, state = deepcopy(role), role.follower(node_id)
    if state.broker_epoch <= 0:
        return  # lower epochs are unknown
    rules.checked(WOULD_COUNT)
    twin.follower_fetched(
        node_id,
        broker_epoch=state.broker_epoch - 1,
        fetch_offset=end,
        log_start_offset=role.log_start_offset,
        leader_end=end,
        now=state.last_fetch,
    )
    if twin.follower(node_id) != state:
        sentence = (
            f"{leader.name} would count a fetch that {name} had sent before it registered in epoch "
            f"{state.broker_epoch}, from which it has fetched since"
        )
        rules.report(WOULD_COUNT, sentence, {"node": leader.name, "epoch": role.leader_epoch}, {"node": name})


def _of_another_log(
    rules: LogRules, reader: PartitionReader, leader: ObservedReplica, replica: ObservedReplica, shared: FetchPosition
) -> None:
    mine, alive = leader.alive, replica.alive
    if mine is None or alive is None:
        return
    rules.follow(replica.machine, replica.copy, alive.log)
    last_batch = replica.copy.batches[-1] if replica.copy.batches else None
    if last_batch is None or last_batch.next <= mine.log.local_start_offset or leader.copy.holds(last_batch):
        return
    rules.checked(WOULD_COUNT)
    position = replace(shared, fetch_offset=alive.log.log_end_offset, last_fetched_epoch=alive.log.epochs.latest_epoch)
    if reader.shown_by(FetchLimits(replica.machine.node_id, SUPPOSED_EPOCH), position) is not None:
        sentence = (
            f"{leader.name} would count {replica.name} up to {position.fetch_offset} in epoch "
            f"{shared.current_leader_epoch}, had it fetched now, and has not its offset {last_batch.base} of epoch "
            f"{last_batch.epoch}"
        )
        rules.report(WOULD_COUNT, sentence, {"node": leader.name}, {"node": replica.name, **last_batch.to_json()})
