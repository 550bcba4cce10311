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

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import Circumstances, anomaly_of
from analysis.replicafiles.log import I64, ReplicaLog

NUMBERS: Final = 1 << 31
"""A producer's numbers are below this, and start at 0 again after the largest."""
OFFSET, PRODUCER, EPOCH, FIRST, LAST = range(5)


def gaps(log: ReplicaLog, around: Circumstances) -> Iterator[Anomaly]:
    """The batches of a log that do not continue what their producers wrote before."""
    if around.deletes or around.compacts or around.forgets_producers or not len(log.sequences):
        return
    stretch = _stretches(log)
    order = np.lexsort((log.sequences[:, OFFSET], log.sequences[:, EPOCH], log.sequences[:, PRODUCER], stretch))
    batches, stretch = log.sequences[order], stretch[order]
    same = (np.diff(batches[:, [PRODUCER, EPOCH]], axis=0) == 0).all(axis=1) & (np.diff(stretch) == 0)
    continues = np.concatenate(([False], same))
    due = np.where(continues, np.roll((batches[:, LAST] + 1) % NUMBERS, 1), 0)
    from_zero = around.from_zero and max(log.start, log.own_start) == 0
    wrong = np.flatnonzero((batches[:, FIRST] != due) & (continues | (from_zero & (stretch == 0))))
    if not len(wrong):
        return
    at = int(wrong[np.argmin(batches[wrong, OFFSET])])
    before = batches[at - 1] if continues[at] else None
    sentence, witness = _sentence(log, batches[at], before, int(due[at])), _witness(log, before, batches[at])
    yield anomaly_of("sequence-gap-on-replica", log, sentence, witness, len(wrong))


def _stretches(log: ReplicaLog) -> I64:
    """For each batch the number of places before it where the files leave out offsets."""
    edges = np.array(sorted(behind for _, behind in (*log.gaps, *log.absent)), np.int64)
    return np.searchsorted(edges, log.sequences[:, OFFSET], side="right")


def _sentence(log: ReplicaLog, batch: I64, before: I64 | None, due: int) -> str:
    at = f"the log of {log.node} has at offset {int(batch[OFFSET])} a batch of producer {int(batch[PRODUCER])}"
    number = f"{at}, epoch {int(batch[EPOCH])}, whose first sequence number is {int(batch[FIRST])}"
    if before is None:
        return f"{number}; it is the first one of that producer and epoch, and must have 0"
    return f"{number}; after its batch at offset {int(before[OFFSET])}, {due} must follow"


def _witness(log: ReplicaLog, *batches: I64 | None) -> list[dict[str, Any] | None]:
    """The first records of the batches."""
    return [None if batch is None else log.at(int(batch[OFFSET])) for batch in batches]
