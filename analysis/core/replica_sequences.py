"""D10: the batches of an idempotent producer continue in each replica's log.

Theory of operation. A producer numbers its records per partition, from 0 on in each of its epochs; after 2^31-1 it
continues with 0 (KIP-98). A leader accepts a batch only if its first number follows the last one that the leader's log
has of that producer and epoch. So in every log the batches of one producer and epoch continue without a gap and without
a repetition. Records that are missing in between are refused for ever, although their producer sends them again.

The rule claims only what a log proves:
- it does not apply if the service may delete or compact records, or may forget producers that still have records
  (`Circumstances`): then a leader may accept any number;
- offsets that the files leave out end what is known of all producers;
- batches of transactions do not count, and neither do control batches;
- a first number other than 0 is an anomaly only if the system promises to refuse it, and the replica's
  own files have the log from offset 0 on. Apache Kafka accepts any number from a producer that it does not know.
"""

from collections.abc import Iterator

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import Circumstances, anomaly_of
from analysis.replicafiles.log import ReplicaLog, SequenceBreaks
from analysis.replicafiles.sequences import (
    EPOCH,
    FIRST,
    LAST,
    LAST_OFFSET,
    NUMBERS,
    OFFSET,
    PRODUCER,
    breaks_at,
    in_order,
)


def gaps(log: ReplicaLog, circumstances: Circumstances) -> Iterator[Anomaly]:
    """The batches of a log that do not continue what their producers wrote before."""
    sequence_breaks = breaks(log, circumstances)
    if sequence_breaks.total:
        witness = [log.at(offset) for offset in offsets_of(sequence_breaks)]
        yield anomaly_of(
            "sequence-gap-on-replica", log, _sentence(log, sequence_breaks), witness, sequence_breaks.total
        )


def breaks(log: ReplicaLog, circumstances: Circumstances) -> SequenceBreaks:
    """The batches of a log that do not continue; those without a batch `before` do not start at 0."""
    if circumstances.deleted_to or circumstances.compacts or circumstances.forgets_producers or not len(log.sequences):
        return SequenceBreaks()
    batches, stretch, continues, due = in_order(log.sequences, (*log.gaps, *log.absent))
    from_zero = circumstances.from_zero and max(log.start, log.own_start) == 0
    is_break = batches[:, FIRST] != due
    sequence_breaks = log.breaks.joined(breaks_at(batches, np.flatnonzero(is_break & continues)))
    if from_zero:
        for row in batches[is_break & ~continues & (stretch == 0)].tolist():
            sequence_breaks = sequence_breaks.joined(SequenceBreaks(1, (), tuple(row)))
    return sequence_breaks


def offsets_of(sequence_breaks: SequenceBreaks) -> list[int]:
    """The first offsets of the batches that show a break, none without one."""
    previous = [sequence_breaks.before[LAST_OFFSET]] if sequence_breaks.before else []
    return [*previous, sequence_breaks.batch[OFFSET]] if sequence_breaks.total else []


def _sentence(log: ReplicaLog, sequence_breaks: SequenceBreaks) -> str:
    batch, previous = sequence_breaks.batch, sequence_breaks.before
    at = f"the log of {log.node} has at offset {batch[OFFSET]} a batch of producer {batch[PRODUCER]}"
    number = f"{at}, epoch {batch[EPOCH]}, whose first sequence number is {batch[FIRST]}"
    if not previous:
        return f"{number}; it is the first one of that producer and epoch, and must have 0"
    due = (previous[LAST] + 1) % NUMBERS
    return f"{number}; after its batch at offset {previous[LAST_OFFSET]}, {due} must follow"
