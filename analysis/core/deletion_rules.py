"""The rules of DeleteRecords (KIP-107): what was answered holds, and no more is deleted than was asked for.

- X1 the low watermark of an answer is at least the offset that was asked for;
- X2 a read that was sent after an answer shows no record below the answer's low watermark;
- X3 once the cluster is quiet, no replica's log starts below the low watermark of an answer;
- X4 no answer, and no replica's log, starts above the highest offset that clients asked for;
- X5 if the topic has a retention, a log may start higher: when each record below that offset is older than the
  retention by time, or when the log has as many bytes from there on as the retention by size keeps.

X2 and X3 do not bind a system that may have lost committed records: with these it may lose the start of a log. X5
decides nothing for a topic with both retentions, since each may explain a part. Clocks may differ by `CLOCKS_S`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.core.anomaly import Anomaly
from analysis.core.offset_ranges import Key
from analysis.core.rows import Rows
from analysis.evidence.deletions import Deletion, Deletions
from installation.counted import counted

INF: Final = math.inf
Sent = Mapping[Key, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
"""By partition, offsets of records and when each was sent, in seconds of the run."""
NOTHING_SENT: Final = (np.empty(0, np.int64), np.empty(0))
CLOCKS_S: Final = 0.5
UNDONE: Final = "deletion-undone"
BEYOND: Final = "deletion-beyond-request"


class ReplicaStart(NamedTuple):
    """Where the log of a replica starts. `at_s`: when, in seconds of the run; `size`: bytes from there on, INF if they
    are unknown."""

    node: str
    key: Key
    offset: int
    at_s: float = 0.0
    size: float = INF


class Retention(NamedTuple):
    """A topic keeps records younger than `age_s`, or so many bytes of a log; INF: all of them."""

    age_s: float = INF
    size: float = INF

    def allows(self, start: ReplicaStart, youngest_s: float) -> bool:
        """Whether a log may start there; `youngest_s`: when the youngest record below was sent, in seconds of the
        run."""
        if INF not in self:
            return True
        return start.at_s + CLOCKS_S >= youngest_s + self.age_s if self.size == INF else start.size >= self.size


class ReadAgain(NamedTuple):
    """Reads that show deleted records: the number of `reads`, and of the first one the offset, the low watermark that
    had been answered, and the times, ns."""

    reads: int
    offset: int
    low_watermark: int
    inv: int
    ret: int
    process: int


@dataclass(frozen=True)
class AnsweredStarts:
    """The answers of one partition in the order of their `times`, ns. `starts`: the highest low watermark of each and
    all earlier ones. `from_fetches`: reads of the load count, too, because each is one fetch that was sent after its
    invocation; else only final reads."""

    times: tuple[int, ...]
    starts: tuple[int, ...]
    from_fetches: bool

    @classmethod
    def of(cls, requests: Sequence[Deletion], *, from_fetches: bool) -> "AnsweredStarts":
        answered = [request for request in requests if request.is_answered]
        starts = np.maximum.accumulate(np.array([request.low_watermark for request in answered], np.int64))
        return cls(tuple(request.answered for request in answered), tuple(starts.tolist()), from_fetches)

    def shown_again(self, rows: Rows) -> ReadAgain | None:
        """X2, for some operations of the partition."""
        queries = rows.queries
        compared = np.flatnonzero((queries.count > 0) & (queries.final | self.from_fetches))
        answers = np.searchsorted(np.array(self.times, np.int64), queries.inv[compared])
        start = np.concatenate(([0], np.array(self.starts, np.int64)))[answers]
        offset = queries.item_offset[(np.cumsum(queries.count) - queries.count)[compared]]
        deleted = np.flatnonzero(offset < start)
        if not len(deleted):
            return None
        earliest = deleted[np.argmin(queries.inv[compared[deleted]])]
        row = compared[earliest]
        columns = (offset[earliest], start[earliest], queries.inv[row], queries.ret[row], queries.process[row])
        return ReadAgain(len(deleted), *(int(value) for value in columns))


def wrong_answers(deletions: Deletions, *, bounded: bool) -> Iterator[Anomaly]:
    """X1 and X4, of answers. `bounded`: nothing but requests deletes records."""
    for request in deletions.requests:
        if not request.is_answered:
            continue
        key, highest = (deletions.topic, request.partition), deletions.requested[deletions.topic, request.partition]
        answer = f"{_name(deletions, request)} was answered with the low watermark {request.low_watermark}"
        if request.low_watermark < request.offset:
            yield _anomaly(UNDONE, key, answer, [_row(deletions, request)])
        elif bounded and request.low_watermark > highest:
            sentence = f"{answer}, and no client asked for more than {highest}"
            yield _anomaly(BEYOND, key, sentence, [_row(deletions, request)])


def read_again(deletions: Deletions, reads: Mapping[Key, ReadAgain]) -> Iterator[Anomaly]:
    """X2."""
    for key, read in sorted(reads.items()):
        request = _answer(deletions, key, read.low_watermark)
        answer = f"{_name(deletions, request)} was answered with the low watermark {read.low_watermark}"
        sentence = f"{answer}, and a read that was sent later shows offset {read.offset}"
        row = {"op": "read", "topic": key[0], "partition": key[1], "offset": read.offset}
        row |= {"process": read.process, "inv": read.inv, "ret": read.ret}
        yield _anomaly(UNDONE, key, sentence, [_row(deletions, request), row], read.reads)


def wrong_starts(deletions: Deletions, starts: Sequence[ReplicaStart], *, bounded: bool) -> Iterator[Anomaly]:
    """X3 and X4, of replicas at rest. `bounded`: nothing but requests deletes records."""
    requested, answered = deletions.requested, deletions.answered
    for node, key, offset, *_ in starts:
        row = {"op": "log start", "node": node, "topic": key[0], "partition": key[1], "offset": offset}
        starting = f"the log of {key[0]}-{key[1]} on {node} starts at {offset}"
        if offset < answered.get(key, 0):
            request = _answer(deletions, key, answered[key])
            sentence = f"{starting}, and {_name(deletions, request)} was answered with {answered[key]}"
            yield _anomaly(UNDONE, key, sentence, [_row(deletions, request), row])
        elif bounded and offset > requested.get(key, 0):
            sentence = f"{starting}, and no client asked to delete records from {requested.get(key, 0)} on"
            yield _anomaly(BEYOND, key, sentence, [row])


def expired_early(
    starts: Sequence[ReplicaStart], retention: Retention, requested: Mapping[Key, int], sent: Sent
) -> Iterator[Anomaly]:
    """X5, of replicas at any time. `sent`: the acknowledged records of each partition."""
    for start in starts:
        offsets, times_s = sent.get(start.key, NOTHING_SENT)
        below = times_s[(offsets < start.offset) & (offsets >= requested.get(start.key, 0))]
        if len(below) and not retention.allows(start, float(below.max())):
            row = {"op": "log start", "node": start.node, "topic": start.key[0], "partition": start.key[1]}
            sentence = (
                f"the log of {start.key[0]}-{start.key[1]} on {start.node} starts at {start.offset}, and the retention "
                f"keeps {counted(len(below), 'acknowledged record')} below"
            )
            yield _anomaly(BEYOND, start.key, sentence, [{**row, "offset": start.offset}], len(below))


def _answer(deletions: Deletions, key: Key, low_watermark: int) -> Deletion:
    """The first answer in a partition with this low watermark."""
    return next(
        request
        for request in deletions.requests
        if request.is_answered and (request.partition, request.low_watermark) == (key[1], low_watermark)
    )


def _name(deletions: Deletions, request: Deletion) -> str:
    return f"DeleteRecords of {request.client} in {deletions.topic}-{request.partition} below {request.offset}"


def _row(deletions: Deletions, request: Deletion) -> dict[str, Any]:
    place = {"op": "delete records", "client": request.client, "topic": deletions.topic, "partition": request.partition}
    return place | {"offset": request.offset, "low_watermark": request.low_watermark, "ret": request.answered}


def _anomaly(name: str, key: Key, sentence: str, witness: Sequence[dict[str, Any]], count: int = 1) -> Anomaly:
    return Anomaly(name, *key, sentence, tuple(witness), count)
