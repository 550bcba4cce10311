"""The served APIs, and the headers around them."""

import importlib
import random
import struct
from pathlib import Path
from types import ModuleType

import pytest
from kafka.protocol.api_header import RequestHeader as KafkaRequestHeader

from broker.protocol.api import (
    APIS,
    ApiKey,
    RequestHeader,
    advertised_api_keys,
    api_of,
    decode_request_header,
    decode_response_header,
    discover,
    encode_request,
    encode_request_header,
    encode_response,
    find_api,
)
from broker.protocol.codec import DecodeError, EncodeError, decode_exactly
from broker.protocol.messages.cluster_apis import ApiVersionsRequest, ApiVersionsResponse
from broker.protocol.messages.fetch import FetchRequest, FetchResponse
from broker.protocol.messages.quorum_apis import VoteRequest
from broker.protocol.schema import DeclarationError, v


def test_every_served_version_is_declared_on_both_sides() -> None:
    for api in APIS.values():
        for version in (api.min_version, api.max_version):
            assert version in api.request.VERSIONS, api.key
            assert version in api.response.VERSIONS, api.key
        assert api.request.FLEXIBLE == api.response.FLEXIBLE, api.key
        assert not api.serves(api.max_version + 1)
        assert api_of(api.request()) is api
        assert find_api(int(api.key)) is api
    assert find_api(71) is None


ADVERTISED = (
    *((0, 0, 12), (1, 4, 17), (2, 1, 11), (3, 0, 13), (8, 2, 9), (9, 1, 9), (10, 0, 6), (11, 0, 9), (12, 0, 4)),
    *((13, 0, 5), (14, 0, 5), (15, 0, 6), (16, 0, 5), (17, 0, 1), (18, 0, 4), (19, 2, 7), (20, 1, 6), (21, 0, 2)),
    *((22, 0, 5), (23, 2, 4), (29, 1, 3), (30, 1, 3), (31, 1, 3), (32, 1, 4), (33, 0, 2), (35, 1, 4), (36, 0, 2)),
    *((37, 0, 3), (42, 0, 2), (43, 0, 2), (44, 0, 1), (45, 0, 1), (46, 0, 0), (47, 0, 0), (48, 0, 1), (50, 0, 0)),
    *((51, 0, 0), (55, 0, 2), (60, 0, 2), (68, 0, 1), (74, 0, 1)),
)
"""Key, lowest and highest version of each API that clients may use."""


def test_the_bytes_of_the_api_versions_answer() -> None:
    answer = encode_response(APIS[ApiKey.API_VERSIONS], ApiVersionsResponse(api_keys=advertised_api_keys()), 0, 42)
    entries = b"".join(struct.pack(">hhh", *entry) for entry in ADVERTISED)
    body = struct.pack(">ihi", 42, 0, len(ADVERTISED)) + entries
    assert bytes(answer) == struct.pack(">i", len(body)) + body


MODULE = """
from broker.protocol.schema import Message, ServedApi, v


class {name}Request(Message):
    API = ServedApi({key}, v("0-1"), advertised=v("none"))


class {name}Response(Message):
    pass
"""


def package_of(directory: Path, monkeypatch: pytest.MonkeyPatch, **keys: int) -> ModuleType:
    """A package with one module for each API name and its key."""
    package = directory / f"messages_{'_'.join(keys).lower()}"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, key in keys.items():
        (package / f"{name.lower()}.py").write_text(MODULE.format(name=name, key=key))
    monkeypatch.syspath_prepend(str(directory))
    return importlib.import_module(package.name)


def test_an_api_is_served_when_its_module_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = discover(package_of(tmp_path, monkeypatch, ListTransactions=66, EndTxn=26))
    assert list(table) == [ApiKey.END_TXN, ApiKey.LIST_TRANSACTIONS]
    api = table[ApiKey.END_TXN]
    assert (api.request.__name__, api.response.__name__) == ("EndTxnRequest", "EndTxnResponse")
    assert (api.min_version, api.max_version, api.advertised) == (0, 1, False)


def test_a_key_that_two_requests_declare_or_that_kafka_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeclarationError, match=r"(One|Two)Request and (One|Two)Request declare key 26"):
        discover(package_of(tmp_path, monkeypatch, One=26, Two=26))
    with pytest.raises(DeclarationError, match="ThreeRequest: 900 is not an API key of Kafka"):
        discover(package_of(tmp_path, monkeypatch, Three=900))


def test_a_response_has_the_versions_of_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = package_of(tmp_path, monkeypatch, EndTxn=26)
    response = discover(package)[ApiKey.END_TXN].response
    assert (v("0-1"), v("none")) == (response.VERSIONS, response.FLEXIBLE)
    imports, request, answer = MODULE.format(name="Late", key=27).strip().split("\n\n\n")
    (Path(package.__path__[0]) / "late.py").write_text("\n\n\n".join((imports, answer, request)))
    with pytest.raises(DeclarationError, match="LateResponse is declared before LateRequest"):
        discover(package)


def test_the_advertised_versions_are_those_that_clients_need() -> None:
    table = {entry.api_key: (entry.min_version, entry.max_version) for entry in advertised_api_keys()}
    assert table[ApiKey.PRODUCE] == (0, 12), "an older librdkafka needs Produce from version 0"
    assert not APIS[ApiKey.PRODUCE].serves(2)
    assert table[ApiKey.FETCH] == (4, 17)
    assert table[ApiKey.METADATA] == (0, 13)
    assert ApiKey.VOTE not in table
    assert ApiKey.BROKER_HEARTBEAT not in table
    assert not {71, 72} & table.keys(), "no telemetry"


@pytest.mark.parametrize("client_id", [None, "", "client", "größe"])
def test_a_request_header_survives_the_round_trip(client_id: str | None) -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            header = RequestHeader(int(api.key), version, -5, client_id)
            out = bytearray(b"xx")
            encode_request_header(header, out)
            assert decode_request_header(out, 2) == (header, len(out))
            flexible = version in api.request.FLEXIBLE
            theirs = KafkaRequestHeader(int(api.key), version, -5, client_id)
            assert theirs.encode(flexible=flexible) == out[2:]


def test_the_header_of_a_version_that_is_not_served_can_be_read() -> None:
    data = struct.pack(">hhih", 18, 77, 9, 1) + b"c" + b"\0rest"
    header, _ = decode_request_header(data)
    assert header == RequestHeader(18, 77, 9, "c")
    header, position = decode_request_header(struct.pack(">hhih", 999, 0, 9, -1) + b"body")
    assert (header.api_key, header.client_id, position) == (999, None, 10)


@pytest.mark.parametrize("field", [b"\7\0", b"\7\3abc"])
def test_a_few_tagged_fields_of_a_header_are_skipped_and_many_refused(field: bytes) -> None:
    """They are decoded before the user and the request are known, so no other bound limits their cost."""
    fixed = struct.pack(">hhih", ApiKey.METADATA, 12, 9, -1)
    few = fixed + b"\3" + 3 * field
    assert decode_request_header(few + b"body") == (RequestHeader(ApiKey.METADATA, 12, 9, None), len(few))
    with pytest.raises(DecodeError, match="101 tagged fields"):
        decode_request_header(fixed + bytes([101]) + 101 * field)


def test_a_damaged_header_raises_only_decode_errors() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        data = struct.pack(">hh", rng.choice([0, 1, 18, 52]), rng.randrange(15)) + rng.randbytes(rng.randrange(24))
        try:
            _, position = decode_request_header(data)
            assert position <= len(data)
        except DecodeError:
            pass
    for data in (b"", struct.pack(">hhih", 0, 9, 0, 5) + b"abc", struct.pack(">hhih", 0, 9, 0, 1) + b"\xff\0"):
        with pytest.raises(DecodeError):
            decode_request_header(data)
    with pytest.raises(DecodeError):
        decode_response_header(APIS[ApiKey.FETCH], 12, b"\0\0\0\1")


def test_the_header_of_an_api_versions_response_is_version_0_for_ever() -> None:
    api = APIS[ApiKey.API_VERSIONS]
    for version in range(5):
        data = encode_response(api, ApiVersionsResponse(api_keys=advertised_api_keys()), version, 42)
        assert struct.unpack_from(">ii", data) == (len(data) - 4, 42)
        correlation_id, position = decode_response_header(api, version, data, 4)
        assert (correlation_id, position) == (42, 8)
        assert decode_exactly(ApiVersionsResponse, version, data, 8).api_keys == advertised_api_keys()


def test_a_whole_request_and_response() -> None:
    data = encode_request(VoteRequest("cluster"), 2, 7, "broker-1")
    assert struct.unpack_from(">i", data) == (len(data) - 4,)
    header, position = decode_request_header(data, 4)
    assert header == RequestHeader(52, 2, 7, "broker-1")
    assert decode_exactly(VoteRequest, 2, data, position).cluster_id == "cluster"

    api = api_of(FetchRequest())
    response = encode_response(api, FetchResponse(session_id=3), 12, 7)
    correlation_id, position = decode_response_header(api, 12, response, 4)
    assert (correlation_id, position) == (7, 9)
    assert decode_exactly(FetchResponse, 12, response, position).session_id == 3


def test_a_header_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(EncodeError, match="API 999 does not exist"):
        encode_request_header(RequestHeader(999, 0, 0, None), bytearray())
    with pytest.raises(EncodeError):
        encode_request(ApiVersionsRequest(), 3, 1, "x" * 40_000)
