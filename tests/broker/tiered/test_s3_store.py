"""The object store in S3, against a real S3 API that moto's server provides on loopback."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="the extra [s3] is not installed")

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.tiered.object_store import ObjectMissingError, S3Store, StoreError, chunks_of, store_of
from tests.broker.controller.world import configuration
from tests.broker.tiered.s3_service import KEY_ID, NEVER, SECRET, require_keys, s3_service
from tests.broker.tiered.stores import keeps_the_contract, leaves_no_object_of_a_failed_put

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a service with an empty bucket."""
    with s3_service() as address:
        yield address


def store(endpoint: str, prefix: str, bucket: str = "bucket") -> S3Store:
    return S3Store(bucket, prefix, endpoint=endpoint, region="us-east-1", credentials=(KEY_ID, SECRET))


def test_the_store_meets_the_contract_of_stores(endpoint: str) -> None:
    asyncio.run(keeps_the_contract(store(endpoint, "some/prefix")))


def test_a_failed_put_leaves_no_object(endpoint: str) -> None:
    asyncio.run(leaves_no_object_of_a_failed_put(store(endpoint, "other")))


@pytest.fixture
def closed(endpoint: str) -> Iterator[str]:
    """A service that knows no key."""
    require_keys(endpoint, after=0)
    yield endpoint
    require_keys(endpoint, after=NEVER)


@pytest.mark.parametrize("operation", ["put", "get", "list", "delete"])
def test_wrong_credentials_are_an_error_without_credentials(closed: str, operation: str) -> None:
    tried = store(closed, "p")
    work = {
        "put": lambda: tried.put("a/b", chunks_of([b"x"])),
        "get": lambda: tried.get("a/b", 0, 1),
        "list": lambda: tried.list("a/"),
        "delete": lambda: tried.delete("a/b"),
    }[operation]
    with pytest.raises(StoreError) as raised:
        asyncio.run(_awaited(work))
    assert not isinstance(raised.value, ObjectMissingError), "the object may exist"
    assert SECRET not in str(raised.value)
    assert KEY_ID not in str(raised.value)


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()


def test_a_missing_bucket_is_an_error(endpoint: str) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket"):
        asyncio.run(store(endpoint, "p", bucket="missing").list("x/"))


def test_an_unreachable_service_is_an_error_without_credentials() -> None:
    with pytest.raises(StoreError) as raised:
        asyncio.run(store(NOWHERE, SECRET).get(f"{KEY_ID}/y", 0, 1))
    assert SECRET not in str(raised.value)
    assert KEY_ID not in str(raised.value)


def config(url: str, credentials: Path | None = None) -> BrokerConfig:
    return replace(
        configuration(remote_log_storage_system_enable=True, rsm_config_url=url),
        rsm_config_credentials_file=None if credentials is None else str(credentials),
    )


@pytest.mark.parametrize("url", ["", "s3://", "s3:///prefix", "file://relative", "ftp://host/x", "/directory"])
def test_an_unusable_url_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(StartupError, match=r"rsm\.config\.url"):
        store_of(config(url))


@pytest.mark.parametrize("key", ["rsm.config.url", "rsm.config.endpoint"])
@pytest.mark.parametrize(
    "address", [f"s3://{KEY_ID}:{SECRET}@bucket", f"http://h/b?key={SECRET}", f"file://{SECRET}@h/x"]
)
def test_credentials_in_an_address_are_refused_without_them(key: str, address: str) -> None:
    properties = {"node.id": "1", "listeners": "n1:9092", "quorum.voters": "1@n1:9092", "log.dir": "log"}
    with pytest.raises(StartupError, match=re.escape(key)) as raised:
        BrokerConfig.from_properties({**properties, "rsm.config.url": "s3://bucket", key: address})
    assert SECRET not in str(raised.value)
    assert KEY_ID not in str(raised.value)


@pytest.mark.parametrize("content", ["", "access.key.id=AKID", f"secret.access.key={SECRET}", SECRET, f"x={SECRET}"])
def test_a_wrong_credentials_file_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(content)
    with pytest.raises(StartupError, match=r"rsm\.config\.credentials\.file") as raised:
        store_of(config("s3://bucket/prefix", path))
    assert SECRET not in str(raised.value)


def test_a_missing_credentials_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="No such file"):
        store_of(config("s3://bucket", tmp_path / "missing"))


def test_a_credentials_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(f"# of the bucket\naccess.key.id={KEY_ID}\nsecret.access.key={SECRET}\n")
    assert isinstance(store_of(config("s3://bucket/a/prefix", path)), S3Store)
