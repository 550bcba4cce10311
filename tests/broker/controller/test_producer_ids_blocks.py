"""Blocks of producer ids: each is assigned once, also across controllers."""

import pytest

from broker.controller.image import MetadataImage, MetadataImageError
from broker.errors import ErrorCode, ProtocolError
from broker.producers.producer_ids import BLOCK_SIZE
from broker.protocol.messages.metadata_records import ProducerIdsRecord, encode_record
from broker.protocol.messages.producer_apis import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.broker.controller.world import World


def block(world: World, broker: int, epoch: int) -> AllocateProducerIdsResponse:
    return world.decide(world.rules.allocate_producer_ids(world.image, AllocateProducerIdsRequest(broker, epoch)))


@pytest.mark.conforms("K98-1")
def test_each_block_is_given_once() -> None:
    world = World()
    epochs = [world.register(broker) for broker in (1, 2)]
    blocks = [block(world, broker, epochs[broker - 1]) for broker in (1, 2, 1)]
    assert [(it.producer_id_start, it.producer_id_len) for it in blocks] == [
        (n * BLOCK_SIZE, BLOCK_SIZE) for n in range(3)
    ]
    assert world.image.next_producer_id == 3 * BLOCK_SIZE


def test_an_ended_process_gets_no_block() -> None:
    world = World()
    epoch = world.register(1)
    for broker, wrong, code in (
        (1, epoch + 1, ErrorCode.STALE_BROKER_EPOCH),
        (7, 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        with pytest.raises(ProtocolError) as refused:
            block(world, broker, wrong)
        assert refused.value.code is code
    assert world.image.next_producer_id == 0


def test_ids_never_fall() -> None:
    image = MetadataImage()
    image.apply(ProducerIdsRecord(1, 0, 2 * BLOCK_SIZE), 0)
    with pytest.raises(MetadataImageError):
        image.apply(ProducerIdsRecord(1, 0, BLOCK_SIZE), 1)


def test_the_record_is_kafkas() -> None:
    """ProducerIdsRecord.json: type 15, version 0."""
    assert encode_record(ProducerIdsRecord(1, 2, 1000)) == bytes.fromhex(
        "01 0f 00 00000001 0000000000000002 00000000000003e8 00"
    )
