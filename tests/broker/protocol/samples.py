"""Random messages: every field that a version carries gets a value, or its default, or null where that is allowed."""

import random
from collections.abc import Iterator
from typing import Any, TypeVar

from broker.protocol.api import APIS
from broker.protocol.messages.control_records import ControlRecordKey, LeaderChangeMessage, VotersRecord
from broker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from broker.protocol.messages.metadata_records import RECORD_TYPES
from broker.protocol.schema import ArrayOf, Field, Fixed, Identifier, Message, Sized, StructOf, Wire, live_fields

M = TypeVar("M", bound=Message)

CLIENT_AND_BROKER_MESSAGES = [cls for api in APIS.values() for cls in (api.request, api.response)]
ALL_MESSAGES: list[type[Message]] = [
    *CLIENT_AND_BROKER_MESSAGES,
    *RECORD_TYPES.values(),
    LeaderChangeMessage,
    VotersRecord,
    ControlRecordKey,
    OffsetCommitKey,
    OffsetCommitValue,
    GroupMetadataKey,
    GroupMetadataValue,
]

TEXTS = ["", "t", "topic-with-a-name", "größe", "x" * 200]


def versions_of(cls: type[Message]) -> range:
    return range(cls.VERSIONS.low, cls.VERSIONS.high + 1)


def every_message_and_version() -> Iterator[tuple[type[Message], int]]:
    for cls in ALL_MESSAGES:
        for version in versions_of(cls):
            yield cls, version


def sample(cls: type[M], version: int, rng: random.Random) -> M:
    """A message whose fields outside of the version keep their defaults."""
    plain, tagged = live_fields(cls, version)
    values = {field.name: _field_value(field, version, rng) for field in plain}
    values |= {field.name: _field_value(field, version, rng) for field in tagged if rng.random() < 0.7}
    return cls(**values)


def _field_value(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.nullable and not isinstance(field.wire, StructOf) and rng.random() < 0.25:
        return None
    return _value(field.wire, version, rng)


def _value(wire: Wire, version: int, rng: random.Random) -> Any:
    if isinstance(wire, Fixed):
        if wire.code == "?":
            return rng.random() < 0.5
        if wire.code == "d":
            return rng.choice([0.0, -1.5, 2.0**60, float(rng.randint(-(2**50), 2**50))])
        signed = wire.code.islower()
        low, high = (
            (-(1 << 8 * wire.size - 1), (1 << 8 * wire.size - 1) - 1) if signed else (0, (1 << 8 * wire.size) - 1)
        )
        return rng.choice([0, 1, low, high, rng.randint(low, high)])
    if isinstance(wire, Identifier):
        return rng.randbytes(16)
    if isinstance(wire, StructOf):
        return sample(wire.cls, version, rng)
    if isinstance(wire, ArrayOf):
        return [_value(wire.element, version, rng) for _ in range(rng.choice([0, 1, 2, 3]))]
    if wire == Sized("string"):
        return rng.choice(TEXTS)
    return rng.randbytes(rng.choice([0, 1, 126, 127, 128, 300]))
