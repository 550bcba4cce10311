"""The contents of Metadata, and the states without an answer."""

import asyncio

import pytest

from broker.controller.image import BrokerImage, MetadataImage
from broker.listeners import plaintext
from broker.protocol.messages.cluster_apis import DescribeClusterRequest, MetadataRequest
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.server.connection import NotReady
from broker.server.handlers import metadata_handler
from broker.server.handlers.metadata_handler import MetadataHandler
from broker.server.work_budget import Turns
from tests.stories import run_by

VERSION = 12


def two_brokers(*, second_fenced: bool) -> MetadataImage:
    image = MetadataImage()
    image.brokers[1] = BrokerImage(1, 1, b"a" * 16, (plaintext("n1", 9092),), fenced=False)
    image.brokers[2] = BrokerImage(2, 2, b"b" * 16, (plaintext("n2", 9092),), fenced=second_fenced)
    return image


def handler(image: MetadataImage, *, caught_up: bool, controller: int | None = 1, node_id: int = 1) -> MetadataHandler:
    events = asyncio.Event(), asyncio.Event()
    events[0].set()
    if caught_up:
        events[1].set()
    return MetadataHandler(lambda: image, "PLAINTEXT", *events, lambda: controller, Turns(), node_id)


def test_fenced_brokers_are_listed_in_metadata() -> None:
    async def story() -> list[int]:
        response = await handler(two_brokers(second_fenced=True), caught_up=True).metadata(
            MetadataRequest(), VERSION, None
        )
        return [broker.node_id for broker in response.brokers]

    assert asyncio.run(story()) == [1, 2]


@pytest.mark.parametrize(
    ("controller", "node_id", "second_fenced", "expected"),
    [
        (2, 1, False, 2),
        (None, 1, False, 1),  # an election goes on
        (None, 2, False, 2),
        (2, 1, True, 1),  # it leads the quorum, and clients should not go there
        (2, 2, True, 1),
        (3, 1, False, 1),  # a controller that is not a broker
    ],
)
def test_metadata_names_a_broker_that_forwards_as_the_controller(
    controller: int | None, node_id: int, second_fenced: bool, expected: int
) -> None:
    async def story() -> int:
        asked = handler(
            two_brokers(second_fenced=second_fenced), caught_up=True, controller=controller, node_id=node_id
        )
        assert asked.describe_cluster(DescribeClusterRequest(), 0).controller_id == expected
        return (await asked.metadata(MetadataRequest(), VERSION, None)).controller_id

    assert asyncio.run(story()) == expected


def test_without_an_unfenced_broker_metadata_names_no_controller() -> None:
    image = two_brokers(second_fenced=True)
    image.brokers[1] = image.brokers[1].__class__(1, 1, b"a" * 16, (plaintext("n1", 9092),), fenced=True)

    async def story() -> int:
        return (
            await handler(image, caught_up=True, controller=1).metadata(MetadataRequest(), VERSION, None)
        ).controller_id

    assert asyncio.run(story()) == NO_LEADER


@run_by(asyncio.run)
async def test_a_broker_behind_in_the_metadata_log_answers_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_handler, "SETTLING_TIMEOUT_S", 0.01)
    with pytest.raises(NotReady, match="has not caught up"):
        await handler(MetadataImage(), caught_up=False).metadata(MetadataRequest(), VERSION, None)
