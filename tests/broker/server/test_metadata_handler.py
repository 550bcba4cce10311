"""What Metadata says, and when it says nothing."""

from __future__ import annotations

import asyncio

import pytest

from broker.controller.image import BrokerImage, MetadataImage
from broker.listeners import plaintext
from broker.protocol.messages.metadata import MetadataRequest
from broker.server.connection import NotReady
from broker.server.handlers import metadata_handler
from broker.server.handlers.metadata_handler import MetadataHandler
from broker.server.turns import Turns

VERSION = 12


def two_brokers(*, second_fenced: bool) -> MetadataImage:
    image = MetadataImage()
    image.brokers[1] = BrokerImage(1, 1, b"a" * 16, (plaintext("n1", 9092),), fenced=False)
    image.brokers[2] = BrokerImage(2, 2, b"b" * 16, (plaintext("n2", 9092),), fenced=second_fenced)
    return image


def handler(image: MetadataImage, *, caught_up: bool) -> MetadataHandler:
    events = asyncio.Event(), asyncio.Event()
    events[0].set()
    if caught_up:
        events[1].set()
    return MetadataHandler(lambda: image, "PLAINTEXT", *events, controller_id=lambda: 1, turns=Turns())


def test_fenced_brokers_are_listed_so_that_clients_do_not_take_them_for_gone() -> None:
    async def story() -> list[int]:
        response = await handler(two_brokers(second_fenced=True), caught_up=True).metadata(
            MetadataRequest(), VERSION, None
        )
        return [broker.node_id for broker in response.brokers]

    assert asyncio.run(story()) == [1, 2]


def test_a_broker_that_still_reads_the_metadata_log_tells_nobody_of_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_handler, "SETTLING_TIMEOUT_S", 0.01)

    async def story() -> None:
        with pytest.raises(NotReady, match="has not caught up"):
            await handler(MetadataImage(), caught_up=False).metadata(MetadataRequest(), VERSION, None)

    asyncio.run(story())
