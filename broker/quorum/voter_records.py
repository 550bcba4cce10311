"""The voters in the quorum's log and snapshots: control batches with a VotersRecord (KIP-853)."""

from collections.abc import Iterator, Sequence

from broker.config import Endpoint
from broker.errors import StartupError
from broker.log.log import PartitionLog
from broker.ports import Buffer
from broker.protocol.codec import decode_exactly, encode
from broker.protocol.messages.control_records import (
    VOTERS_TYPE,
    ControlRecordKey,
    KeyedVoter,
    VoterEndpoint,
    VotersRecord,
)
from broker.protocol.records import Record, build_batch, iter_batches, read_records
from broker.protocol.uuids import id_text
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterHistory, VoterSet

READ_BYTES = 1 << 20
VERSION = 0


def voters_batch(voters: VoterSet, endpoints: Sequence[Endpoint], listener: str, timestamp_ms: int) -> bytearray:
    """The control batch that names the voters; the append stamps offset and epoch."""
    addresses = {endpoint.id: [VoterEndpoint(listener, endpoint.host, endpoint.port)] for endpoint in endpoints}
    message = VotersRecord(
        voters=[KeyedVoter(voter, directory, addresses.get(voter, [])) for voter, directory in voters.keys]
    )
    key, value = bytearray(), bytearray()
    encode(ControlRecordKey(version=VERSION, type=VOTERS_TYPE), VERSION, key)
    encode(message, VERSION, value)
    return bytearray(build_batch([Record(0, timestamp_ms, bytes(key), bytes(value))], control=True))


def named_voters(data: Buffer) -> Iterator[tuple[int, VoterSet]]:
    """The voter sets that whole batches name, each with its record's offset. Raises `CorruptBatch`, `DecodeError`."""
    for position, header in iter_batches(data):
        if not header.is_control:
            continue
        for number, record in enumerate(read_records(data, position)):
            key = decode_exactly(ControlRecordKey, VERSION, record.key or b"")
            if key.type == VOTERS_TYPE:
                named = decode_exactly(VotersRecord, VERSION, record.value or b"")
                keys = sorted((voter.voter_id, voter.voter_directory_id) for voter in named.voters)
                yield header.base_offset + number, VoterSet(tuple(keys))


def read_voters(log: PartitionLog, history: VoterHistory) -> None:
    """Add all sets that a log names, from its start to its end. Raises `CorruptBatch` for an unreadable log."""
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, READ_BYTES, log.log_end_offset)
        for offset, voters in named_voters(data):
            if offset >= log.log_start_offset:
                history.appended(offset, voters)
        batches = [header.next_offset for _, header in iter_batches(data)]
        if not batches:
            raise RuntimeError(f"{log.directory}: no batch at offset {at}")
        at = batches[-1]


def check_lone_voter(settings: QuorumSettings, voters: VoterSet) -> None:
    """Raise `StartupError` if the log names another disk of the only voter: no other voter could accept the new
    disk."""
    if settings.voters == (settings.node_id,) and not voters.has(settings.node_id, settings.directory_id):
        was = id_text(voters.directory_of(settings.node_id))
        raise StartupError(
            f"meta.properties: directory.id is {id_text(settings.directory_id)}, and the metadata log here knows its "
            f"only voter by {was}; restore meta.properties, or write directory.id={was} into it if that was this disk"
        )
