"""The state that a log keeps of its idempotent producers, and the batches that it therefore refuses (KIP-98, KIP-360).

Theory of operation. The module has no I/O. A leader calls `check` before an append and `record` after it. Followers and
recovery only call `record`, because every batch in a log was accepted once. So every replica computes the same state
from the same batches.

A producer numbers its records from 0 in each of its epochs; a batch carries the number of its first record. A batch
that continues the numbers is new. One that equals one of the last five is a duplicate and gets its offset again. Any
other would leave a gap or change the order.

The first batch of a producer that is not known. A producer has several requests in flight. At a new partition, or at a
new leader, the first request may be refused and the second one accepted. If the log accepted any first number, the
records of the first request could never be written: their numbers are below the next one (KAFKA-15591, KAFKA-14312,
KAFKA-19880). So the log distinguishes two reasons for not knowing a producer. Either the producer never wrote to this
log: then its first number is 0. Or the log forgot the producer: its entry expired, or the log was copied without the
records and without the snapshot that named the producer. Then any number is accepted (KIP-360).

Invariant: a producer whose id is above `forgotten_to` and that is not known has never written to this log. Ids are
given out in ascending blocks, so the largest forgotten id is enough: most new producers are above it, and for one below
it the log is lenient. A log has forgotten no id that was given out later, so each new role of the replica limits
`forgotten_to` to the ids that the metadata know. Apache Kafka 4.5 refuses a first number other than 0 only in a log
that never had a record.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError

REMEMBERED = 5
"""Number of batches per producer that are recognised as duplicates: the most requests that it has under way."""
MAX_SEQUENCE = (1 << 31) - 1
"""The largest sequence; 0 follows it."""
NO_ID = -1
MAX_ID = (1 << 63) - 1
"""The largest producer id: as `forgotten_to`, any producer may have been forgotten."""


class Sequenced(NamedTuple):
    """The producer fields of a batch header. `delta`: the last record's number minus the first's."""

    producer_id: int
    epoch: int
    sequence: int
    delta: int

    @property
    def last_sequence(self) -> int:
        return after(self.sequence, self.delta)


class Written(NamedTuple):
    """A batch in the log. `timestamp`: the largest of the batch in ms, as set by the producer."""

    last_sequence: int
    last_offset: int
    delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.delta


class ProducerEntry:
    """A producer in its latest epoch. `batches`: the last ones, oldest first, at least one.

    `seen_at`: when it last wrote, in seconds of this process's clock.
    """

    __slots__ = ("batches", "epoch", "next_sequence", "seen_at")

    def __init__(self, epoch: int, seen_at: float) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.seen_at = seen_at
        self.batches: deque[Written] = deque(maxlen=REMEMBERED)

    @property
    def last(self) -> Written:
        return self.batches[-1]


class ProducerState:
    """All producers of one log. `forgotten_to`: the largest producer id that may have been forgotten; `NO_ID`: no
    producer was forgotten, `MAX_ID`: any may have been."""

    def __init__(self, forgotten_to: int = NO_ID) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._forgotten_to = forgotten_to

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Ids and entries of the producers, in the order of their first batches."""
        return iter(self._producers.items())

    @property
    def forgotten_to(self) -> int:
        """An unknown producer with a larger id has never written to this log."""
        return self._forgotten_to

    @property
    def largest_id(self) -> int:
        """The largest producer id that is known or may have been forgotten."""
        return max(self._forgotten_to, *self._producers, NO_ID)

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    # --- before an append

    def check(self, batches: Sequence[Sequenced], *, any_first: bool = False) -> Written | None:
        """Whether the batches may be appended together: None if so. A single duplicate returns where it is in the log.

        `any_first`: the mutant any_first_sequence.

        Epochs and sequences must not be negative. Raises `ProtocolError`: INVALID_PRODUCER_EPOCH for a producer that a
        newer epoch has replaced; OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, also before the first batch of a producer that
        never wrote here; DUPLICATE_SEQUENCE_NUMBER when some of several batches are duplicates, because then there is
        no single offset to answer with.
        """
        if len(batches) == 1 and self._continues(batches[0]):
            return None
        expected: dict[int, tuple[int, int]] = {}  # by producer id: epoch and sequence of the next batch
        for batch in batches:
            position = expected.get(batch.producer_id)
            if position is None:
                if (written := self._written(batch)) is not None:
                    if len(batches) == 1:
                        return written
                    raise ProtocolError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"{batch}: is already in the log")
                position = self._next(batch, any_first=any_first)
            _must_follow(position, batch)
            expected[batch.producer_id] = (batch.epoch, after(batch.last_sequence, 1))
        return None

    def _continues(self, batch: Sequenced) -> bool:
        """Whether the batch continues the last one, as nearly every batch does: the common case, checked first."""
        producer = self._producers.get(batch.producer_id)
        return producer is not None and producer.epoch == batch.epoch and producer.next_sequence == batch.sequence

    def _written(self, batch: Sequenced) -> Written | None:
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.epoch:
            return None
        last = batch.last_sequence
        for written in producer.batches:
            if written.last_sequence == last and written.delta == batch.delta:
                return written
        return None

    def _next(self, batch: Sequenced, *, any_first: bool) -> tuple[int, int] | None:
        """The epoch and sequence that must follow; None: any, because the log may have forgotten the producer."""
        producer = self._producers.get(batch.producer_id)
        if producer is not None:
            return producer.epoch, producer.next_sequence
        return None if any_first or batch.producer_id <= self._forgotten_to else (batch.epoch, 0)

    # --- after an append

    def record(self, batch: Sequenced, first_offset: int, timestamp: int, now: float) -> None:
        """A batch was appended; `now` in seconds. A batch with another epoch restarts the producer's entry."""
        written = Written(batch.last_sequence, first_offset + batch.delta, batch.delta, timestamp)
        self.remember(batch.producer_id, batch.epoch, written, now)

    def remember(self, producer_id: int, epoch: int, written: Written, now: float) -> None:
        """`record`, for a batch that is known to be in the log."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = self._producers[producer_id] = ProducerEntry(epoch, now)
        producer.batches.append(written)
        producer.next_sequence = after(written.last_sequence, 1)
        producer.seen_at = now

    # --- forgetting

    def reaches(self, offset: int) -> bool:
        """Whether any entry refers to an offset at or past `offset`: cutting the log there makes the state invalid."""
        return any(producer.last.last_offset >= offset for producer in self._producers.values())

    def expire(self, idle_since: float) -> int:
        """Forget the producers that have not written since `idle_since`, in seconds. Returns how many these were."""
        idle = [producer_id for producer_id, producer in self._producers.items() if producer.seen_at <= idle_since]
        for producer_id in idle:
            del self._producers[producer_id]
            self.may_have_forgotten(producer_id)
        return len(idle)

    def forgot_none_from(self, producer_id: int) -> None:
        """No id from this one on had been given out when the log forgot producers."""
        self._forgotten_to = min(self._forgotten_to, producer_id - 1)

    def may_have_forgotten(self, producer_id: int = MAX_ID) -> None:
        """Accept any first sequence of unknown producers up to this id."""
        self._forgotten_to = max(self._forgotten_to, producer_id)


def after(sequence: int, count: int) -> int:
    """The sequence `count` after another one."""
    return (sequence + count) & MAX_SEQUENCE


def _must_follow(position: tuple[int, int] | None, batch: Sequenced) -> None:
    if position is None:
        return
    epoch, sequence = position
    if batch.epoch < epoch:
        message = f"{batch}: producer {batch.producer_id} is in epoch {epoch}"
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    if batch.epoch > epoch:
        sequence = 0
    if batch.sequence != sequence:
        message = f"{batch}: the next sequence is {sequence}"
        raise ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
