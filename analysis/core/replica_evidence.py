"""What replicas of a partition are compared with: what clients read and sent, and the circumstances of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.core.explain import Key, name_of
from analysis.core.rows import I64, Bools
from analysis.replicafiles.log import NO_EPOCH, ReplicaLog
from history.record.values import DERIVED

Record = dict[str, Any]


@dataclass(frozen=True)
class ClientOrder:
    """What clients were shown of one partition: ascending `offset`, the `value` there, and whether by an
    acknowledgement (`acknowledged`) or only by a read."""

    offset: I64
    value: I64
    acknowledged: Bools

    def take(self, which: Bools) -> "ClientOrder":
        """Some of the offsets."""
        return ClientOrder(self.offset[which], self.value[which], self.acknowledged[which])

    def joined(self, other: "ClientOrder") -> "ClientOrder":
        """What is known of the offsets of both."""
        return ClientOrder(
            np.concatenate((self.offset, other.offset)),
            np.concatenate((self.value, other.value)),
            np.concatenate((self.acknowledged, other.acknowledged)),
        )


@dataclass(frozen=True)
class Appends:
    """What clients sent to one partition: the values `sent`, the `refused` ones among them, and the `loose` ones, which
    (or copies of which) no acknowledgement by all replicas binds to an offset. `end`: the answer of the final reads'
    last end query, -1 without one. `answered`: the loose values that a leader acknowledged with an offset. `again`: the
    values that client libraries may have sent more than once."""

    sent: I64
    refused: I64
    loose: I64
    end: int = -1
    answered: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    again: I64 = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Circumstances:
    """The state of the cluster when the files were collected.

    `quiet`: the cluster was healed and idle; `stopped`: its nodes had then stopped cleanly, so the disks hold their
    final state. `deleted_to`: it may have deleted records of lower offsets, INF without a bound; `compacts`: and
    records that later ones of their keys replace; `forgets_producers`: and idempotent producers that still have
    records. `from_zero`: leaders refuse a first sequence other than 0 of a producer that is new to the log. `records`:
    one of `history.RECORD_FORMS`, empty if unknown; `record_bytes`: the size of every record's value, 0 if unknown.
    `all_sent`: all that clients sent is
    recorded.
    """

    quiet: bool = False
    stopped: bool = False
    deleted_to: int = 0
    compacts: bool = False
    forgets_producers: bool = False
    from_zero: bool = False
    records: str = DERIVED
    record_bytes: int = 0
    all_sent: bool = True


@dataclass(frozen=True)
class ReplicaReport:
    """The result for some partitions' replicas.

    `records`: how many were compared. `ends`: by partition, each node's (log end offset, high watermark, last epoch).
    `undecided`: what could not be decided, as sentences. `without_epochs`: the logs on which D2-D4 were not checked
    because they hold records without leader epochs, by name and message format. `earlier`: how many of the replicas
    were also compared with an earlier dump.
    """

    anomalies: tuple[Anomaly, ...] = ()
    undecided: tuple[str, ...] = ()
    records: int = 0
    ends: Mapping[Key, Mapping[str, tuple[int, int, int]]] = field(default_factory=dict)
    without_epochs: tuple[tuple[str, int], ...] = ()
    earlier: int = 0

    @property
    def ok(self) -> bool:
        return not self.anomalies

    def merge(self, other: "ReplicaReport") -> "ReplicaReport":
        """The result for the partitions of both reports."""
        return ReplicaReport(
            (*self.anomalies, *other.anomalies),
            (*self.undecided, *other.undecided),
            self.records + other.records,
            {**self.ends, **other.ends},
            (*self.without_epochs, *other.without_epochs),
            self.earlier + other.earlier,
        )


def anomaly_of(name: str, log: ReplicaLog, sentence: str, witness: Sequence[Record | None], count: int = 1) -> Anomaly:
    """An anomaly of a log's partition; missing parts of the witness are left out."""
    return Anomaly(name, log.topic, log.partition, sentence, tuple(row for row in witness if row), count)


def record_name(record: Record) -> str:
    """A record as a sentence names it."""
    return name_of(record["value"]) if record["value"] >= 0 else f"the record {record['digest']}"


def epoch_name(record: Record) -> str:
    return f" of epoch {record['epoch']}" if record["epoch"] != NO_EPOCH else ""


def log_name(log: ReplicaLog) -> str:
    return f"the log of {log.topic}-{log.partition} on {log.node}"


def client_order(log: ReplicaLog, offset: int, value: int) -> Record:
    """What clients were shown, as a row of a witness."""
    place = {"op": "client order", "topic": log.topic, "partition": log.partition}
    return place | {"offset": offset, "value": value}


def log_end(log: ReplicaLog) -> Record:
    """The end of a log, as a row of a witness."""
    place = {"op": "log end", "node": log.node, "topic": log.topic, "partition": log.partition}
    return place | {"start": log.start, "offset": log.end, "high_watermark": log.high_watermark}


def carries_value(log: ReplicaLog) -> Bools:
    """Which of a log's records carry a client's value, for records that could be decoded."""
    return np.asarray((log.value >= 0) & ~log.is_opaque(log.offset))
