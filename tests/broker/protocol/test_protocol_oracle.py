"""The client APIs against kafka-python's copies of Apache Kafka's schemas: declarations, and bytes."""

import random
import re
import types
import uuid
from typing import Any, get_origin

import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas import load_json

from broker.protocol.api import APIS
from broker.protocol.codec import encoded
from broker.protocol.schema import (
    ArrayOf,
    Field,
    Fixed,
    Identifier,
    Message,
    Sized,
    StructOf,
    Versions,
    Wire,
    fields_of,
    v,
)
from tests.broker.protocol.samples import sample, versions_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NOT_IN_ORACLE = {
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "AlterPartition",
    "GetReplicaLogInfo",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "Envelope",
    "FetchSnapshot",
    "AllocateProducerIds",
    "ConsumerGroupHeartbeat",
}
MESSAGES = [
    cls
    for api in APIS.values()
    for cls in (api.request, api.response)
    if re.sub("(Request|Response)$", "", cls.__name__) not in NOT_IN_ORACLE
]
WIRES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_declarations_agree_with_the_schemas(cls: type[Message]) -> None:
    schema = load_json(cls.__name__)
    api = next(api for api in APIS.values() if cls in (api.request, api.response))
    assert int(api.key) == schema["apiKey"]
    valid = v(schema["validVersions"])
    assert cls.VERSIONS.low >= valid.low
    assert cls.VERSIONS.high <= valid.high
    assert v(schema["flexibleVersions"]).low == cls.FLEXIBLE.low
    _compare_structures(cls, schema["fields"], list(versions_of(cls)))


def _compare_structures(cls: type[Message], schema: list[dict[str, Any]], versions: list[int]) -> None:
    used = [field for field in schema if any(n in v(field.get("versions", "0+")) for n in versions)]
    assert [field.name for field in fields_of(cls)] == [snake(field["name"]) for field in used], cls
    for field, wanted in zip(fields_of(cls), used, strict=True):
        _compare_fields(cls, field, wanted, versions)


def _compare_fields(cls: type[Message], field: Field, wanted: dict[str, Any], versions: list[int]) -> None:
    where = f"{cls.__name__}.{field.name}"
    present = [n for n in versions if n in field.versions]
    assert present == [n for n in versions if n in v(wanted.get("versions", "0+"))], where
    assert field.tag == (int(wanted["tag"]) if "tag" in wanted else None), where
    if field.tag is not None:
        assert present == [n for n in versions if n in v(wanted["taggedVersions"])], where
    if not isinstance(field.wire, StructOf):
        nullable: Versions = v(wanted.get("nullableVersions", "none"))
        assert [n for n in present if n in field.nullable] == [n for n in present if n in nullable], where
    _compare_wires(where, field, wanted, present)
    _compare_defaults(where, field, wanted)


def _compare_wires(where: str, field: Field, wanted: dict[str, Any], versions: list[int]) -> None:
    wire, name = field.wire, wanted["type"]
    if name.startswith("[]"):
        assert isinstance(wire, ArrayOf), where
        wire, name = wire.element, name[2:]
    if isinstance(wire, StructOf):
        # A structure whose name recurs carries the message's name in addition; a generic one has a name of its own.
        assert get_origin(wire.cls) or wire.cls.__name__.endswith(
            (name, name.replace("Data", "Result"), name.removesuffix("s"))
        ), where
        _compare_structures(wire.cls, wanted["fields"], versions)
    elif isinstance(wire, Fixed):
        assert wire.code == WIRES[name], where
    else:
        assert wire == (Identifier() if name == "uuid" else Sized(name)), where


def _compare_defaults(where: str, field: Field, wanted: dict[str, Any]) -> None:
    text = str(wanted.get("default", ""))
    if text == "null" or isinstance(field.wire, StructOf):
        assert field.default is None, where
    elif isinstance(field.wire, Fixed):
        number = {"true": 1, "false": 0, "": 0}[text.lower()] if text.lower() in ("true", "false", "") else int(text, 0)
        assert field.default == number, where
    elif field.wire == Sized("string"):
        assert field.default == text, where


@pytest.fixture(autouse=True)
def oracles_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new class registers itself, in place of the client's class and only while it exists: later users of the client
    in this process would find no class."""
    registry = dict(ResponseClassRegistry._response_class_registry)
    monkeypatch.setattr(ResponseClassRegistry, "_response_class_registry", registry)


def _oracle(name: str) -> Any:
    """The oracle's class for one schema, without the changes that its own client makes to some of them."""
    return types.new_class(name, (ApiMessage,))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_bytes_agree_with_another_implementation(cls: type[Message]) -> None:
    rng = random.Random(11)
    oracle = _oracle(cls.__name__)
    for version in versions_of(cls):
        for message in [cls(), *(sample(cls, version, rng) for _ in range(6))]:
            data = encoded(message, version)
            theirs = oracle.decode(data, version=version)
            theirs._header = None  # its decoder leaves the slot unset, its encoder reads it
            _compare_values(StructOf(cls), message, theirs, version)
            assert theirs.encode(version=version) == data, f"{cls.__name__} v{version}"


def _compare_values(wire: Wire, ours: Any, theirs: Any, version: int) -> None:
    if isinstance(wire, StructOf) and ours is not None:
        for field in fields_of(wire.cls):
            if version in field.versions:
                value = getattr(ours, field.name)
                if field.tag is None or value != (field.default if field.default is not list else []):
                    _compare_values(field.wire, value, getattr(theirs, field.name), version)
    elif isinstance(wire, ArrayOf) and ours is not None:
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            _compare_values(wire.element, left, right, version)
    else:
        if isinstance(theirs, uuid.UUID):
            theirs = theirs.bytes
        elif isinstance(theirs, memoryview):
            theirs = bytes(theirs)
        assert ours == theirs


def test_messages_missing_in_the_oracle_are_listed() -> None:
    for name in NOT_IN_ORACLE:
        with pytest.raises(FileNotFoundError):
            load_json(f"{name}Request")
