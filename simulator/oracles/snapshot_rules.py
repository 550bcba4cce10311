"""The oracle of the snapshots of the metadata log: each equals the result of the records before its end.

This includes the records that name the voters: a member with another set of voters counts other votes. A member that
starts from a snapshot continues as if there had been no other records. What the snapshot lacks has effects only later,
and other oracles compare each state only with an earlier one of the same node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from broker.controller.image import MetadataImage
from broker.controller.image_records import records_of
from broker.errors import StartupError
from broker.protocol.messages.metadata_records import NO_LEADER, encode_record
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.runner import QuorumRunner
from broker.quorum.snapshots import Snapshots
from broker.quorum.voters import VoterSet
from broker.server.node_directory import METADATA_DIRECTORY
from simulator.oracles.findings import SNAPSHOT_DIFFERS
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView


class SnapshotState(NamedTuple):
    """The content of an image, without what no snapshot holds: where brokers lost their places last, and the deleted
    topics."""

    cluster: Mapping[Any, Any]
    brokers: Mapping[Any, Any]
    topics: Mapping[Any, Any]
    acls: Mapping[Any, Any]
    credentials: Mapping[Any, Any]
    voters: Mapping[Any, Any]


class Difference(NamedTuple):
    """A difference between two states, as text."""

    what: str
    was: str
    now: str


class SnapshotRules:
    """Checks all snapshots of one metadata log; `rules`: that log's. Records before an offset are identified by its
    epoch, too: records that were written again after the loss of a majority are in a later epoch."""

    def __init__(self, rules: LogRules) -> None:
        self._rules = rules
        self._known: dict[OffsetAndEpoch, tuple[SnapshotState, str]] = {}
        self._looked_at = -1
        self._kinds: set[tuple[object, ...]] = set()
        """The kinds of content of states for which a hypothetical snapshot was checked."""

    def look(self, machine: MachineView, epoch: int) -> None:
        """A member in this epoch has applied a record. Few runs make a snapshot of each relevant state, so a
        hypothetical one is made of each state with content of a new kind."""
        image = machine.image
        if image.offset <= self._looked_at:
            return
        self._looked_at = image.offset
        kinds = set(_kinds(image))
        if kinds <= self._kinds:
            return
        self._kinds |= kinds
        self._rules.checked(SNAPSHOT_DIFFERS)
        restored, where = MetadataImage(), OffsetAndEpoch(epoch, image.offset + 1)
        try:
            restored.restore(where.offset, [encode_record(record) for record in records_of(image)])
        except ValueError as error:
            self._report(machine, where, f"could not be read: {error}")
            return
        made_of = "the state that it is made of"
        self._compare(machine, where, _state_of(image, None), _state_of(restored, None), f"would not be {made_of}")

    def heard(self, machine: MachineView, snapshot: OffsetAndEpoch) -> None:
        """A member has made a snapshot, or starts from one, now: it equals the state at that offset."""
        if machine.node is None:
            return
        self._rules.checked(SNAPSHOT_DIFFERS)
        last = self._rules.committed.last_below(snapshot.offset)
        if last is not None and last.epoch != snapshot.epoch:
            # With another epoch its node would truncate records that it has acknowledged, and send it to others.
            self._report(machine, snapshot, f"is behind a record of epoch {last.epoch}", last.to_json())
            return
        state = _state_of(machine.image, _voters_at(machine.node.quorum, snapshot.offset))
        known, who = self._known.setdefault(snapshot, (state, machine.name))
        try:
            written = _written(machine, snapshot)
        except (OSError, StartupError, ValueError) as error:
            self._report(machine, snapshot, f"cannot be read: {error}")
            return
        other_copy = "the state that it was made of" if who == machine.name else f"what {who} had there"
        for other in (state, written):
            self._compare(machine, snapshot, known, other, f"is not {other_copy}")

    def _compare(
        self, machine: MachineView, snapshot: OffsetAndEpoch, one: SnapshotState, other: SnapshotState, how: str
    ) -> None:
        difference = next(_differences(one, other), None)
        if difference is not None:
            values = {"was": difference.was, "is": difference.now}
            self._report(machine, snapshot, f"{how}: it differs in {difference.what}", values)

    def _report(
        self, machine: MachineView, snapshot: OffsetAndEpoch, what: str, *witness: Mapping[str, object]
    ) -> None:
        of = {"node": machine.name, "offset": snapshot.offset, "epoch": snapshot.epoch}
        sentence = f"the snapshot of {machine.name} at {snapshot.offset} in epoch {snapshot.epoch} {what}"
        self._rules.report(SNAPSHOT_DIFFERS, sentence, of, *witness)


def _kinds(image: MetadataImage) -> Iterator[tuple[object, ...]]:
    """The kinds of content of a state: partitions, brokers and the rest, by what a snapshot could lack."""
    for topic, _, it in image.partitions():
        of = (it.leader == NO_LEADER, it.recovering, *map(bool, (it.elr, it.last_known_elr, it.adding, it.removing)))
        yield ("partition", *of, *sorted(topic.configs))
    for broker in image.brokers.values():
        yield ("broker", broker.fenced, broker.rack is None, len(broker.endpoints), len(broker.directories))
    rest = (image.cluster_id, image.session_timeout_ms, image.defaults, image.next_producer_id, image.acls, image.scram)
    yield ("rest", *map(bool, rest))


def _voters_at(quorum: QuorumRunner, end: int) -> VoterSet | None:
    """The voters according to the records below an offset."""
    return next((voters for offset, voters in reversed(quorum.member.voters.sets) if offset < end), None)


def _state_of(image: MetadataImage, voters: VoterSet | None) -> SnapshotState:
    return SnapshotState(
        {
            "id": image.cluster_id,
            "session timeout": image.session_timeout_ms,
            "defaults": dict(image.defaults),
            "next producer id": image.next_producer_id,
        },
        {broker.id: replace(broker, lost_at=-1) for broker in image.brokers.values()},
        {name: (topic.id, dict(topic.partitions), dict(topic.configs)) for name, topic in image.topics.items()},
        dict(image.acls),
        dict(image.scram),
        {} if voters is None else dict(voters.keys),
    )


def _written(machine: MachineView, snapshot: OffsetAndEpoch) -> SnapshotState:
    """The content of the file. Raises `OSError`, `StartupError`, `ValueError` for a missing or damaged one."""
    image = MetadataImage()
    with machine.disk.as_written():
        content = Snapshots(machine.disk, machine.path_of(METADATA_DIRECTORY)).load(snapshot)
    image.restore(snapshot.offset, content.records)
    return _state_of(image, content.voters)


def _differences(one: SnapshotState, other: SnapshotState) -> Iterator[Difference]:
    for kind, ours, theirs in zip(SnapshotState._fields, one, other, strict=True):
        for key in {**ours, **theirs}:
            if ours.get(key) != theirs.get(key):
                yield Difference(f"{kind} {key}", str(ours.get(key)), str(theirs.get(key)))
