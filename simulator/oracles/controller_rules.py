"""The oracles of the controller: elections, ISR and ELR changes, from one state of the metadata to the next."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from broker.replica.leader import IsrProposal
from simulator.oracles.findings import BAD_ELECTION, NOT_GRANTED, OracleFindings, members_text
from simulator.oracles.machine_view import MachineView
from simulator.oracles.settings import MIN_INSYNC

Key = tuple[bytes, int]


class ControllerRules:
    """The states of all partitions and brokers so far, and the ISRs that their leaders have requested. `machines` by
    broker id."""

    def __init__(self, machines: Mapping[int, MachineView], findings: OracleFindings) -> None:
        self._machines = machines
        self._findings = findings
        self._known: dict[Key, PartitionImage] = {}
        self._brokers: dict[int, BrokerImage] = {}
        self._asked: dict[Key, dict[IsrProposal, None]] = {}

    def asked(self, key: Key, proposal: IsrProposal) -> None:
        """Record that a leader requests this ISR."""
        self._asked.setdefault(key, {})[proposal] = None

    def electable(self, key: Key) -> frozenset[int]:
        """The brokers in the ISR and the ELR of this partition; none before its metadata is known."""
        state = self._known.get(key)
        return frozenset() if state is None else frozenset((*state.isr, *state.elr))

    def look(self, image: MetadataImage) -> list[tuple[TopicImage, int, PartitionImage]]:
        """Check the newest metadata of all brokers; returns the partitions that have changed."""
        changed = []
        returned = [broker for broker in image.brokers.values() if self._is_another(broker)]
        unclean = [broker.id for broker in returned if self._was_unclean(broker)]
        for topic, index, state in image.partitions():
            before = self._known.get((topic.id, index))
            if state is not before:
                self._known[topic.id, index] = state
                changed.append((topic, index, state))
            flaws = [*standing_flaws(topic, state), *bounce_flaws(returned, unclean, before, state)]
            if before is not None and state.partition_epoch == before.partition_epoch + 1:
                may_leave = self._may_leave(image, topic, index, before)
                flaws += election_flaws(before, state)
                flaws += membership_flaws(topic, before, state, may_leave, [broker.id for broker in returned])
            self._report(BAD_ELECTION, topic, index, state, flaws)
            self._report(NOT_GRANTED, topic, index, state, self._joined(image, topic, index, before, state))
        self._unfenced(image)
        self._brokers = dict(image.brokers)
        return changed

    def _is_another(self, broker: BrokerImage) -> bool:
        """Whether another process has registered for a broker since the last check."""
        return broker.id in self._brokers and self._brokers[broker.id].epoch != broker.epoch

    def _was_unclean(self, broker: BrokerImage) -> bool:
        """Whether a registration is certainly of a process whose predecessor left no clean-shutdown mark."""
        machine = self._machines.get(broker.id)
        if machine is None or machine.node is None or machine.was_clean:
            return False
        return machine.node.lifecycle.incarnation_id == broker.incarnation

    def _may_leave(
        self, image: MetadataImage, topic: TopicImage, index: int, before: PartitionImage
    ) -> Callable[[int], bool]:
        """Whether a broker may leave the ISR of a partition: it was lost, or its leader has asked for that."""
        proposals = [
            set(proposal.isr)
            for proposal in self._asked.get((topic.id, index), ())
            if (proposal.leader_epoch, proposal.partition_epoch) == (before.leader_epoch, before.partition_epoch)
        ]

        def may_leave(member: int) -> bool:
            was, now = self._brokers.get(member), image.brokers.get(member)
            is_same = was is not None and was == now and not was.fenced
            return not is_same or any(member not in isr for isr in proposals)

        return may_leave

    def _unfenced(self, image: MetadataImage) -> None:
        """A broker may lead again once it has applied its own registration and fencing (KIP-631): before that it does
        not know which leaderships it has lost."""
        for broker in image.brokers.values():
            was, machine = self._brokers.get(broker.id), self._machines.get(broker.id)
            if broker.fenced or was is None or not was.fenced or was.epoch != broker.epoch:
                continue
            if machine is None or machine.registered_in != broker.epoch:
                continue
            self._findings.compared(BAD_ELECTION, METADATA_TOPIC)
            lost_at = max(broker.epoch, was.lost_at)
            if machine.image.offset < lost_at:
                sentence = (
                    f"broker {broker.id} may lead again, and has applied the metadata up to {machine.image.offset}; it "
                    f"was fenced at {lost_at}"
                )
                witness = {"broker": broker.id, "applied": machine.image.offset, "fenced_at": lost_at}
                self._findings.report(BAD_ELECTION, METADATA_TOPIC, PARTITION, sentence, witness)

    def _joined(
        self, image: MetadataImage, topic: TopicImage, index: int, before: PartitionImage | None, state: PartitionImage
    ) -> Iterator[str]:
        """A broker that joins an ISR was requested by the leader on top of this exact state, and is the requested
        process (H13, H15); every member is available (H14)."""
        absent = [member for member in state.isr if not is_reachable(image, member)]
        if absent:
            yield f"the ISR is {list(state.isr)}, and {absent} cannot be reached"
        if before is None or state.partition_epoch != before.partition_epoch + 1 or state is before:
            return
        joined = set(state.isr) - set(before.isr)
        if not joined or state.leader_epoch != before.leader_epoch:
            return
        proposals = [
            proposal
            for proposal in self._asked.get((topic.id, index), ())
            if (proposal.leader_epoch, proposal.partition_epoch) == (before.leader_epoch, before.partition_epoch)
            and joined <= set(proposal.isr)
        ]
        if not proposals:
            yield (
                f"the ISR {list(before.isr)} grew to {list(state.isr)}, which the leader has not asked for on top of "
                f"partition epoch {before.partition_epoch}"
            )
        elif not any(_same_processes(image, proposal, joined) for proposal in proposals):
            yield f"the ISR grew to {list(state.isr)}, by what an earlier process of {sorted(joined)} had fetched"

    def _report(
        self, oracle: str, topic: TopicImage, index: int, state: PartitionImage, sentences: Iterable[str]
    ) -> None:
        self._findings.checks[oracle] += 1
        for sentence in sentences:
            self._findings.report(oracle, topic.name, index, f"{topic.name}-{index}: {sentence}", _witness(state))


def is_reachable(image: MetadataImage, broker_id: int) -> bool:
    """Whether the metadata have a broker registered and not fenced (H14)."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def standing_flaws(topic: TopicImage, state: PartitionImage) -> Iterator[str]:
    """Invariants of every state: H14 for the leader, K704-4, and KIP-966 for the eligible leader replicas."""
    if state.leader != NO_LEADER and state.leader not in state.isr:
        yield f"broker {state.leader} leads epoch {state.leader_epoch}, and is not in the ISR {list(state.isr)}"
    if state.recovering and len(state.isr) > 1:
        yield f"the ISR is {list(state.isr)} while the leader of epoch {state.leader_epoch} recovers"
    if not set(state.isr) | set(state.elr) <= set(state.replicas):
        yield f"the ISR {list(state.isr)} and the ELR {members_text(state.elr)} are not among {list(state.replicas)}"
    if set(state.isr) & set(state.elr):
        yield f"the ISR {list(state.isr)} and the ELR {members_text(state.elr)} have common members"
    minimum = _minimum(topic, state)
    if state.elr and minimum is not None and len(state.isr) >= minimum and not state.adding and not state.removing:
        yield (
            f"the ELR is {members_text(state.elr)} beside the ISR {list(state.isr)}: with {minimum} in sync, records "
            "are committed without its members"
        )


def bounce_flaws(
    returned: Iterable[BrokerImage], unclean: Collection[int], before: PartitionImage | None, state: PartitionImage
) -> Iterator[str]:
    """Invariants of a partition when another process of a broker has registered: it leads in no epoch of its
    predecessor (K101-10), and it is not eligible if that ended uncleanly (KIP-966, H16). It may stay in the ISR:
    followers that ask for epochs lose nothing by that (H12)."""
    for broker in returned:
        if broker.id in unclean and broker.id in state.elr:
            yield f"the ELR is {members_text(state.elr)}, and broker {broker.id} has lost its page cache"
        if before is not None and before.leader == broker.id and state.leader_epoch == before.leader_epoch:
            yield f"the new process of broker {broker.id} is in the leader epoch {state.leader_epoch} of the old one"


def membership_flaws(
    topic: TopicImage,
    before: PartitionImage,
    state: PartitionImage,
    may_leave: Callable[[int], bool],
    returned: Collection[int],
) -> Iterator[str]:
    """Invariants of a transition of the ISR and the ELR (KIP-966). `may_leave`: whether a member may leave the ISR;
    `returned`: the brokers that may have lost their page cache."""
    eligible = {*before.isr, *before.elr}
    if not set(state.elr) <= eligible:
        yield f"the ELR becomes {members_text(state.elr)}, and {sorted(eligible)} were eligible"
    if state.recovering and not before.recovering:
        if able_members := [member for member in before.isr if not may_leave(member)]:
            yield f"the leader of epoch {state.leader_epoch} recovers, and {able_members} of the ISR could have led"
        return
    removed = {*before.replicas} - {*state.replicas}
    if dropped := [member for member in before.isr if member not in {*state.isr, *removed} and not may_leave(member)]:
        yield f"the ISR {list(before.isr)} becomes {list(state.isr)} without {dropped} for no reason"
    minimum = _minimum(topic, state)
    if minimum is None or len(state.isr) >= minimum or before.replicas != state.replicas:
        return
    if lost := sorted(eligible - {*state.isr, *state.elr, *returned}):
        yield f"{lost} are not eligible any more, and nothing is committed without them: the ISR is {list(state.isr)}"


def _minimum(topic: TopicImage, state: PartitionImage) -> int | None:
    """The least number of replicas in sync with which records are committed; None: the metadata do not say."""
    value = topic.configs.get(MIN_INSYNC, topic.defaults.get(MIN_INSYNC))
    return None if value is None else min(int(value), len(state.replicas))


def election_flaws(before: PartitionImage, state: PartitionImage) -> Iterator[str]:
    """Invariants of a transition: an ineligible leader must recover (K704-1), and no broker leads without the recovery
    that was started and has not ended (K704-9)."""
    new = state.leader_epoch != before.leader_epoch and state.leader != NO_LEADER
    eligible = (*before.isr, *before.elr)
    alone = len(state.isr) == 1 and not state.elr
    if new and state.leader not in eligible and not (state.recovering and alone):
        yield (
            f"broker {state.leader} leads epoch {state.leader_epoch} with the ISR {list(state.isr)} and the ELR "
            f"{members_text(state.elr)} as if it had been eligible, which were {list(eligible)}"
        )
    if state.leader != before.leader and state.leader_epoch != before.leader_epoch + 1:
        yield f"broker {state.leader} leads after {before.leader}, and the leader epoch is {state.leader_epoch}"
    if before.recovering and not state.recovering and state.leader_epoch != before.leader_epoch:
        yield f"the recovery of epoch {before.leader_epoch} has not ended, and epoch {state.leader_epoch} has none"


def _same_processes(image: MetadataImage, proposal: IsrProposal, joined: set[int]) -> bool:
    epochs = dict(zip(proposal.isr, proposal.broker_epochs, strict=True))
    return all(epochs[member] in (-1, _epoch(image.brokers.get(member))) for member in joined)


def _epoch(broker: BrokerImage | None) -> int:
    return -1 if broker is None else broker.epoch


def _witness(state: PartitionImage) -> dict[str, object]:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": list(state.isr),
        "elr": list(state.elr),
        "recovering": state.recovering,
    }
