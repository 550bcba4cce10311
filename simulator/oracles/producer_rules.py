"""The oracle of idempotent producers: a log's producer state equals what its batches say (K98-6, K98-7, K98-8).

A replica that knows too little appends a repeated batch again; one that knows too much reports a missing batch as
written. Both show only when a producer repeats a batch after a change of leader or a restart, which most never do.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from broker.log.log import PartitionLog
from simulator.oracles.findings import PRODUCERS_DIFFER
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.replica import ObservedReplica
from simulator.oracles.sequence_rules import forgets

REMEMBERED = 5
"""The number of batches that are remembered per producer, the most requests that it may have in flight (KIP-98; in
Apache Kafka `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`)."""


class Last(NamedTuple):
    """A remembered batch of a producer."""

    sequence: int
    offset: int
    delta: int


class KnownProducer(NamedTuple):
    """A producer: its epoch and the last batches of that epoch, oldest first."""

    epoch: int
    batches: tuple[Last, ...]

    def __str__(self) -> str:
        batches = ", ".join(f"{last.sequence} at offset {last.offset}" for last in self.batches)
        return f"epoch {self.epoch}, last sequences {batches or 'of no batch'}"


def look_at_producers(rules: LogRules, replica: ObservedReplica) -> None:
    """Check a replica when its log was opened or truncated, and when its role changes: otherwise it only adds what it
    appends. `replica.copy` is the content of its log."""
    partition = replica.partition
    if partition is None:
        return
    log = partition.log
    now = (log, log.truncations, partition.role)
    if now == replica.producers_of:  # first, because it is true for nearly every check
        return
    if replica.machine.excused(PRODUCERS_DIFFER, replica.copy.path) or partition.lock.locked():
        return  # with the lock held, a truncation may be in progress: the next check sees its result
    if forgets(replica.machine):
        return
    replica.producers_of = now
    rules.checked(PRODUCERS_DIFFER)
    first = log.segments[0].base_offset
    said = _said_by(replica.copy)
    known = {
        producer_id: KnownProducer(producer.epoch, tuple(Last(*written[:3]) for written in producer.batches))
        for producer_id, producer in log.producers
    }
    for producer_id in sorted(said.keys() | known.keys()):
        ours, theirs = known.get(producer_id), said.get(producer_id)
        # Producers of records that retention removed are still known, but not those from before a restart of the log.
        removed = [last for last in ours.batches if last.offset < first] if ours is not None else []
        expected = ours and KnownProducer(ours.epoch, ours.batches[len(removed) :])
        only_removed = theirs is None and expected is not None and not expected.batches
        if any(last.offset < replica.restarted_at for last in removed) or not (only_removed or expected == theirs):
            sentence = (
                f"{replica.name} knows of producer {producer_id} {ours or 'nothing'}, and the batches of its log, from "
                f"{first} to {replica.copy.end}, say {theirs or 'nothing'}"
            )
            of = {"node": replica.name, "producer": producer_id, "end": replica.copy.end}
            rules.report(PRODUCERS_DIFFER, sentence, of)
            return


def note_begin(replica: ObservedReplica, log: PartitionLog, end: int) -> None:
    """The log's start has moved; `end`: the log's end then. Notes whether the whole log was removed and restarted."""
    _, cuts, _ = replica.producers_of or (log, log.truncations, None)
    if cuts != log.truncations and not replica.start < log.log_start_offset <= end:
        replica.restarted_at = log.log_start_offset


def _said_by(copy: CopiedLog) -> dict[int, KnownProducer]:
    """The producer state that the batches of a log imply, by producer id."""
    epochs: dict[int, int] = {}
    batches: dict[int, deque[Last]] = {}
    for batch, said in copy.sequenced():
        if epochs.get(said.producer_id) != said.epoch:
            epochs[said.producer_id] = said.epoch
            batches[said.producer_id] = deque(maxlen=REMEMBERED)
        batches[said.producer_id].append(Last(said.last_sequence, batch.next - 1, said.delta))
    return {producer_id: KnownProducer(epoch, tuple(batches[producer_id])) for producer_id, epoch in epochs.items()}
