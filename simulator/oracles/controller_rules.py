"""The oracles of the controller: elections and ISR changes, from one state of the metadata to the next."""

from collections.abc import Iterable, Iterator

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.replica.leader import IsrProposal
from simulator.oracles.findings import BAD_ELECTION, NOT_GRANTED, OracleFindings, members_text

Key = tuple[bytes, int]


class ControllerRules:
    """The states of all partitions so far, and the ISRs that their leaders have requested."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._known: dict[Key, PartitionImage] = {}
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
        for topic, index, state in image.partitions():
            before = self._known.get((topic.id, index))
            if state is not before:
                self._known[topic.id, index] = state
                changed.append((topic, index, state))
            sentences = list(_standing(state))
            if before is not None and state.partition_epoch == before.partition_epoch + 1:
                sentences += _elected(before, state)
            self._report(BAD_ELECTION, topic, index, state, sentences)
            self._report(NOT_GRANTED, topic, index, state, self._joined(image, topic, index, before, state))
        return changed

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


def _standing(state: PartitionImage) -> Iterator[str]:
    """Invariants of every state."""
    if state.leader != NO_LEADER and state.leader not in state.isr:
        yield f"broker {state.leader} leads epoch {state.leader_epoch}, and is not in the ISR {list(state.isr)}"
    if state.recovering and len(state.isr) > 1:
        yield f"the ISR is {list(state.isr)} while the leader of epoch {state.leader_epoch} recovers"
    if not set(state.isr) | set(state.elr) <= set(state.replicas):
        yield f"the ISR {list(state.isr)} and the ELR {members_text(state.elr)} are not among {list(state.replicas)}"


def _elected(before: PartitionImage, state: PartitionImage) -> Iterator[str]:
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
