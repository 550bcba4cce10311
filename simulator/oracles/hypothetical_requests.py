"""The oracles of hypothetical requests: requests that no client of the run sends, because another rule prevents them.

A broker that keeps one rule never sends the request that the second rule forbids, so no event shows a violation of the
second. Its decision is a pure function, though: in states that a run reaches, brokers are asked what they would decide.
The questions change nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.controller.controller import Controller
from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.errors import ErrorCode, ProtocolError
from broker.producers.producer_state import ProducerState, Sequenced
from broker.protocol.messages.broker_apis import BrokerRegistrationRequest, Listener
from broker.protocol.messages.metadata_records import NO_LEADER, MetadataRecord, PartitionChangeRecord
from broker.protocol.messages.partition_apis import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopicData,
    BrokerState,
)
from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import UNDEFINED, divergence
from broker.replica.partition import Partition
from broker.replica.queries import EARLIEST, epoch_end, list_offset
from broker.replica.reads import CONSUMER, FetchLimits, FetchPosition, PartitionReader
from simulator.oracles.controller_rules import (
    bounce_flaws,
    election_flaws,
    is_reachable,
    membership_flaws,
    standing_flaws,
)
from simulator.oracles.findings import (
    BAD_ELECTION,
    EPOCHS_DIFFER,
    IN_RECOVERY,
    NOT_A_MEMBER,
    PRODUCERS_DIFFER,
    UNMATCHED,
    WOULD_ANSWER,
    WOULD_COUNT,
    WOULD_GRANT,
    OracleFindings,
)
from simulator.oracles.log_copy import MAX_SEQUENCE, BatchSequence
from simulator.oracles.log_rules import LogRules
from simulator.oracles.replica import ObservedReplica

OTHER_PROCESS: Final = bytes(16)
"""The incarnation id of a supposed process."""
SUPPOSED_RECORDS: Final = 3
"""How many records a supposed follower has that its leader lacks."""
SUPPOSED_EPOCH = 0
"""A broker epoch: a replica that names none is refused."""
MATCHED = -1
"""The end of a log that need not be compared with its leader's."""

UNUSED_ID: Final = 1 << 62
"""The id of no producer: ids are given out from 0 on."""
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


def would_elect(
    findings: OracleFindings,
    rules: Controller,
    image: MetadataImage,
    partitions: Iterable[tuple[TopicImage, int, PartitionImage]],
) -> None:
    """The controller keeps the rules of elections, ISR and ELR when a broker is fenced, or another process registers
    for it after a clean or an unclean shutdown (H14, H16, K101-10, K704-1)."""
    partitions = tuple(partitions)
    for loss in _losses(rules, image):
        changes = {
            (record.topic_id, record.partition_id): record
            for record in loss.records
            if isinstance(record, PartitionChangeRecord)
        }
        lost = loss.broker.id
        returned, unclean = [loss.broker] * loss.is_another_process, [lost] * loss.is_unclean
        for topic, index, state in partitions:
            if lost not in state.replicas:
                continue
            record = changes.get((topic.id, index))
            after = state if record is None else state.changed(record)
            flaws = [*standing_flaws(topic, after), *bounce_flaws(returned, unclean, state, after)]
            if record is not None:
                flaws += election_flaws(state, after)
                flaws += membership_flaws(topic, state, after, lost.__eq__, unclean)
            if lost in after.isr and not loss.is_another_process:
                flaws.append(f"the ISR stays {list(after.isr)}")
            findings.checks[BAD_ELECTION] += 1
            for flaw in flaws:
                sentence = f"{topic.name}-{index}: if {loss.text}: {flaw}"
                witness = {"leader": state.leader, "isr": list(state.isr), "elr": list(state.elr), "broker": lost}
                findings.report(BAD_ELECTION, topic.name, index, sentence, witness)


class BrokerLoss(NamedTuple):
    """A possible loss of a broker, and the records by which the controller would answer it."""

    text: str
    broker: BrokerImage
    records: Sequence[MetadataRecord]
    is_another_process: bool = False
    is_unclean: bool = False


def _losses(rules: Controller, image: MetadataImage) -> Iterator[BrokerLoss]:
    for broker in image.brokers.values():
        if not broker.fenced:
            yield BrokerLoss(
                f"broker {broker.id} is fenced", broker, rules.fence(image, broker.id, broker.epoch).records
            )
        for is_unclean in (False, True):
            request = BrokerRegistrationRequest(
                broker_id=broker.id,
                cluster_id=image.cluster_id or "",
                incarnation_id=OTHER_PROCESS,
                listeners=[
                    Listener(endpoint.name, endpoint.host, endpoint.port, endpoint.protocol)
                    for endpoint in broker.endpoints
                ],
                log_dirs=list(broker.directories),
                previous_broker_epoch=-1 if is_unclean else broker.epoch,
            )
            text = f"broker {broker.id} returns after {'an unclean' if is_unclean else 'a clean'} shutdown"
            records = rules.register(image, request).records
            yield BrokerLoss(text, broker, records, is_another_process=True, is_unclean=is_unclean)


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


def would_join(rules: LogRules, leader: ObservedReplica, role: PartitionLeader, node_id: int) -> None:
    """A leader that takes a follower into the ISR would not do so if the follower lacked a record (H5), or if its log
    started before the leader's (K107-2). Joining has no pure form: copies of the leader's state decide here."""
    short, early = deepcopy(role), deepcopy(role)
    needed_end = max(leader.copy.end_before(role.leader_epoch), role.high_watermark)
    short.follower(node_id).log_end_offset = needed_end - 1
    early.follower(node_id).log_start_offset = role.log_start_offset - 1
    cases = ((short, f"its log ended at {needed_end - 1}"), (early, f"its log started before {role.log_start_offset}"))
    for twin, condition in cases:
        rules.checked(NOT_A_MEMBER)
        twin.pending = None
        if twin.may_join(node_id):
            sentence = f"{leader.name} would take broker {node_id} into the ISR if {condition}"
            rules.report(NOT_A_MEMBER, sentence, {"node": leader.name, "epoch": role.leader_epoch})


def would_delete(rules: LogRules, leader: ObservedReplica, role: PartitionLeader, node_id: int) -> None:
    """A leader that has asked for a follower in the ISR counts the start of its log before it answers a deletion
    (K107-1)."""
    twin = deepcopy(role)
    start = role.log_start_offset - 1
    twin.follower(node_id).log_start_offset = start
    rules.checked(NOT_A_MEMBER)
    if (low := twin.low_watermark(())) > start:
        sentence = (
            f"{leader.name} has asked for broker {node_id}, and would answer a deletion below {low} if the log of that "
            f"broker started at {start}"
        )
        rules.report(NOT_A_MEMBER, sentence, {"node": leader.name, "epoch": role.leader_epoch})


def would_date(rules: LogRules, leader: ObservedReplica, role: PartitionLeader) -> None:
    """A new leader answers OffsetForLeaderEpoch with the largest epoch of its log that is not above the asked one, and
    with the start of the next one (K101-5, K101-6, H1)."""
    partition = leader.alive
    if partition is None:
        return
    log_start = partition.log.log_start_offset  # the log does not know the epochs that end below
    starts = {batch.epoch: batch.base for batch in reversed(leader.copy.batches) if batch.next > log_start}
    if not starts:
        return
    epochs = [*sorted(starts), role.leader_epoch] if role.leader_epoch not in starts else sorted(starts)
    starts.setdefault(role.leader_epoch, leader.copy.end)
    ends = [*(starts[epoch] for epoch in epochs[1:]), partition.log.log_end_offset]
    expected = {role.leader_epoch + 1: (UNDEFINED, UNDEFINED)}
    for epoch, following, end in zip(epochs, [*epochs[1:], role.leader_epoch + 1], ends, strict=True):
        expected |= dict.fromkeys({epoch, following - 1}, (epoch, end))
    for asked_epoch, log_answer in expected.items():
        rules.checked(EPOCHS_DIFFER)
        answer = epoch_end(partition, UNDEFINED, asked_epoch)
        if answer.error is ErrorCode.NONE and tuple(answer.end) != log_answer:
            sentence = (
                f"{leader.name} would answer that epoch {asked_epoch} ends as epoch {answer.end[0]} at "
                f"{answer.end[1]}; in its log it is epoch {log_answer[0]} at {log_answer[1]}"
            )
            rules.report(EPOCHS_DIFFER, sentence, {"node": leader.name, "asked": asked_epoch})


@dataclass(frozen=True)
class SupposedLog:
    """A follower's log that consists of epochs, each with its first offset; also its epoch cache."""

    entries: tuple[tuple[int, int], ...]
    log_end_offset: int

    @property
    def log_start_offset(self) -> int:
        return self.entries[0][1]

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0]

    @property
    def epochs(self) -> "SupposedLog":
        return self

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and its end; for one below all, itself and the log's start."""
        below = [own_epoch for own_epoch, _ in self.entries if own_epoch <= epoch]
        above = [start for own_epoch, start in self.entries if own_epoch > epoch]
        if epoch == UNDEFINED or epoch > self.latest_epoch:
            return (UNDEFINED, UNDEFINED)
        return (below[-1] if below else epoch, above[0] if above else log_end_offset)

    def cut(self, end: int) -> "SupposedLog":
        """The log up to an offset above its start, without the epochs that start there."""
        return SupposedLog(tuple(entry for entry in self.entries if entry[1] < end), min(end, self.log_end_offset))


def would_match(rules: LogRules, leader: ObservedReplica, role: PartitionLeader) -> None:
    """A follower with another history keeps what it shares with this leader, and nothing else, after the dialogue about
    epochs (K101-4, K101-7, K101-14, H1). Supposed followers have fewer records of an epoch of the leader's, more of
    them, or those of an epoch that the leader never had."""
    partition = leader.alive
    if partition is None:
        return
    start, end = partition.log.log_start_offset, partition.log.log_end_offset
    entries = tuple((entry.epoch, max(start, entry.start_offset)) for entry in partition.log.epochs.entries)
    entries = tuple(entry for entry in entries if entry[1] < end)
    if not entries or entries[0][1] > start:
        return  # it does not know the first epochs of its log
    ends = [*(first for _, first in entries[1:]), end]
    following = [*(epoch for epoch, _ in entries[1:]), role.leader_epoch]
    for at, ((epoch, first), last, later) in enumerate(zip(entries, ends, following, strict=True), 1):
        own_entries, middle = entries[:at], (first + last + 1) // 2
        cases = [
            (SupposedLog(own_entries, middle), middle),
            (SupposedLog(own_entries, last + SUPPOSED_RECORDS), last),
        ]
        if epoch + 1 < later:
            cases.append((SupposedLog((*own_entries, (epoch + 1, middle)), middle + SUPPOSED_RECORDS), middle))
        for log, shared_end in cases:
            rules.checked(UNMATCHED)
            kept_end = _reconciled(partition, role, log)
            if kept_end != shared_end:
                sentence = (
                    f"a follower of {leader.name} with the epochs {list(log.entries)} up to {log.log_end_offset} would "
                    f"{'not end the dialogue' if kept_end is None else f'keep {kept_end}'}, and they share {shared_end}"
                )
                rules.report(UNMATCHED, sentence, {"node": leader.name, "epoch": role.leader_epoch})


def _reconciled(partition: Partition, role: PartitionLeader, log: SupposedLog) -> int | None:
    """The end of a follower's log when it fetches, and the leader finds no divergence; None: it never does."""
    follower = PartitionFollower(
        leader_id=role.node_id, leader_epoch=role.leader_epoch, partition_epoch=role.partition_epoch, high_watermark=0
    )
    for _ in range(2 * len(log.entries) + 2):
        step = follower.next_step(log)
        if isinstance(step, AskEpochEnd):
            answer = epoch_end(partition, role.leader_epoch, step.epoch, by_replica=True)
            if answer.error is not ErrorCode.NONE:
                return log.log_end_offset  # no follower is answered now
            step = follower.epoch_end_answered(log, *answer.end)
        if step.to_offset <= log.log_start_offset:
            return step.to_offset
        log = log.cut(step.to_offset)
        follower.truncated(step, log)
        if follower.phase is Phase.FETCHING:
            if divergence(partition.log, log.log_end_offset, follower.last_fetched_epoch(log)) is None:
                return log.log_end_offset
            follower.diverged()
    return None


def would_append(
    rules: LogRules, replica: ObservedReplica, producers: ProducerState, batches: Mapping[BatchSequence, int]
) -> None:
    """After `batches`, the last ones of a producer's epoch with their last offsets, a log recognizes each of them when
    it comes again (K98-3). It refuses a batch of an older epoch (K98-4), one behind a gap, and one that starts a new
    epoch, or the first epoch of a new producer, with another sequence than 0 (K98-2, K98-10)."""
    *_, last = batches
    following = last.next_sequence
    gap, old = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
    answers: dict[BatchSequence, object] = {
        BatchSequence(last.producer_id, last.epoch - 1, following, 0): old,
        BatchSequence(last.producer_id, last.epoch, (following + 1) & MAX_SEQUENCE, 0): gap,
        BatchSequence(last.producer_id, last.epoch + 1, 1, 0): gap,
        **batches,
    }
    if replica.partition is not None and isinstance(replica.partition.role, PartitionLeader):
        answers[BatchSequence(UNUSED_ID, 0, 1, 0)] = gap
    for batch, expected in answers.items():
        if batch.epoch < 0:
            continue
        rules.checked(PRODUCERS_DIFFER)
        answer: object = None
        try:
            written = producers.check([Sequenced(*batch)])
            answer = None if written is None else written.last_offset
        except ProtocolError as error:
            answer = error.code
        if answer != expected:
            sentence = (
                f"{replica.name} would answer {_outcome(answer)} to sequence {batch.sequence} in epoch {batch.epoch} "
                f"of producer {batch.producer_id}, not {_outcome(expected)}; sequence {last.last_sequence} in epoch "
                f"{last.epoch} is the last of producer {last.producer_id}"
            )
            rules.report(PRODUCERS_DIFFER, sentence, {"node": replica.name, "producer": batch.producer_id})
            return


def _outcome(answer: object) -> str:
    """`answer`: an error, the offset of a duplicate, or None for an append."""
    return answer.name if isinstance(answer, ErrorCode) else "an append" if answer is None else f"offset {answer}"


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
    if not role.recovering and not leader.machine.excused(EPOCHS_DIFFER, leader.copy.path):
        would_date(rules, leader, role)
        would_match(rules, leader, role)
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
