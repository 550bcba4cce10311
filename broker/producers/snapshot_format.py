"""Encodes producer snapshots in Kafka's format: version, CRC-32C, and the producers.

Kafka's snapshots contain only the last batch of a producer. Here each of the remembered batches has an entry, oldest
first. A reader that keeps one entry per producer, as Kafka does, ends with the last one and loses nothing. This broker
recognises the earlier batches as duplicates, too, after a restart.

The last entry has no batch. Its producer id is the largest one that the log may have forgotten (`forgotten_to`). A
snapshot without such an entry, Kafka's for example, does not say which producers were forgotten: any may have been.
"""

from struct import Struct

from crc32c import crc32c

from broker.producers.producer_state import MAX_ID, ProducerState, Written

VERSION = 1
NO_TRANSACTION = -1  # as coordinator epoch and as first offset
NO_BATCH = -1  # as last sequence and as last offset
_NO_EPOCH = -1

_HEAD = Struct(">hIi")  # version, CRC, number of entries
_CRC_FROM = 6
_COUNT_AT = Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of a
# transaction.
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):  # noqa: N818 - a state of the file, not only an error
    """Bytes that are not a producer snapshot, or a torn one."""


def encode_snapshot(state: ProducerState) -> bytes:
    """The content of the file."""
    entries = [
        _ENTRY.pack(
            producer_id,
            producer.epoch,
            written.last_sequence,
            written.last_offset,
            written.delta,
            written.timestamp,
            NO_TRANSACTION,
            NO_TRANSACTION,
        )
        for producer_id, producer in state
        for written in producer.batches
    ]
    entries.append(
        _ENTRY.pack(state.forgotten_to, _NO_EPOCH, NO_BATCH, NO_BATCH, 0, -1, NO_TRANSACTION, NO_TRANSACTION)
    )
    checked = _COUNT_AT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(checked), len(entries)) + checked[_COUNT_AT.size :]


def decode_snapshot(data: bytes, now: float) -> ProducerState:
    """The producers of a snapshot, which count as seen `now`, in seconds. Raises `CorruptSnapshot`.

    The clock of the process that wrote it is not comparable; the timestamps of batches are the producers'.
    """
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too short")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is unknown; expected {VERSION}")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(data)} bytes for {count} entries")
    if crc32c(data[_CRC_FROM:]) != crc:
        raise CorruptSnapshot("the CRC-32C is wrong")
    batches, forgotten_to = [], MAX_ID
    for producer_id, epoch, sequence, offset, delta, timestamp, _, _ in _ENTRY.iter_unpack(data[_HEAD.size :]):
        # Kafka also writes entries without a batch, from transaction markers; their epochs are not used here.
        if offset >= 0:
            batches.append((producer_id, epoch, Written(sequence, offset, delta, timestamp)))
        elif epoch == _NO_EPOCH:
            forgotten_to = producer_id
    state = ProducerState(forgotten_to)
    for producer_id, epoch, written in batches:
        state.remember(producer_id, epoch, written, now)
    return state
