"""An object store in S3, or in a service with S3's interface, through `obstore`.

A put of several chunks is a multipart upload: the object appears when it is completed, and an interrupted one leaves no
object. Error messages have no credentials: their values are replaced before a message leaves this module.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from broker.errors import StartupError
from broker.properties import parse_properties
from broker.tiered.object_store import MISSING, ObjectMissingError, StoredObject, StoreError

PART_BYTES: Final = 8 << 20
"""The size of a part of a multipart upload. S3 requires 5 MiB."""
KEYS: Final = ("access.key.id", "secret.access.key")
MESSAGE_LENGTH: Final = 300
NO_ANSWER: Final = ("Connection refused", "Connection reset", "dns error", "timed out", "certificate")
"""Reasons for no answer, as parts of the library's messages."""
_STATUS: Final = re.compile(r"status code: (\d{3})")


class S3Store:
    """The objects below `prefix` of a bucket. Nothing is sent before the first operation."""

    def __init__(
        self, bucket: str, prefix: str, *, endpoint: str, region: str, credentials: tuple[str, str] | None
    ) -> None:
        import obstore
        from obstore.store import S3Store as Client

        self._api: Any = obstore
        self._secrets = credentials or ()
        options: dict[str, Any] = {"region": region, "skip_signature": credentials is None}
        if endpoint:
            options |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        if credentials is not None:
            options |= {"access_key_id": credentials[0], "secret_access_key": credentials[1]}
        if prefix:
            options["prefix"] = prefix
        client_options: Any = {"allow_http": endpoint.startswith("http://")}
        self._client: Any = Client(bucket, client_options=client_options, retry_config={"max_retries": 0}, **options)

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        # The chunks' own errors pass unchanged: obstore would turn them into its own.
        failures: list[BaseException] = []

        async def source() -> AsyncIterator[bytes]:
            try:
                async for chunk in chunks:
                    yield chunk
            except BaseException as error:
                failures.append(error)
                raise

        try:
            with self._errors():
                await self._api.put_async(self._client, name, source(), use_multipart=True, chunk_size=PART_BYTES)
        except StoreError:
            if failures:
                raise failures[0] from None
            raise

    async def get(self, name: str, start: int, length: int) -> bytes:
        with self._errors():
            size = (await self._api.head_async(self._client, name))["size"]
            end = min(start + length, size)
            if start >= end:
                return b""
            return bytes(await self._api.get_range_async(self._client, name, start=start, end=end))

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        found: list[StoredObject] = []
        # The service lists whole path segments only: the rest of the prefix is compared here.
        with self._errors():
            async for page in self._api.list(self._client, prefix.rpartition("/")[0] or None):
                found += [StoredObject(each["path"], each["size"]) for each in page]
        return sorted(each for each in found if each.name.startswith(prefix))

    async def delete(self, name: str) -> None:
        with contextlib.suppress(ObjectMissingError), self._errors():
            await self._api.delete_async(self._client, name)

    async def close(self) -> None:
        """The connections end with the process."""

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the library's errors into `StoreError`, without credentials."""
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissingError(self._shown(error), kind=MISSING) from None
        except (self._api.exceptions.BaseError, OSError, ValueError) as error:
            raise StoreError(self._shown(error), kind=_kind_of(error)) from None

    def _shown(self, error: BaseException) -> str:
        text = " ".join(str(error).split()).partition(": Debug source")[0]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"{text[:MESSAGE_LENGTH]} ({_kind_of(error)})"


def _kind_of(error: BaseException) -> str:
    """What failed, without the object's name and the duration: the status of the answer, or why it is missing."""
    text = str(error)
    status = _STATUS.search(text)
    if status is not None:
        return f"HTTP {status[1]}"
    return next((kind for kind in NO_ANSWER if kind in text), type(error).__name__)


def read_credentials(path: str, source: str) -> tuple[str, str]:
    """Key id and secret key from a file. Raises `StartupError`, whose message has no value of the file."""
    remedy = "it needs the lines access.key.id=... and secret.access.key=..."
    try:
        values = _parsed(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise StartupError(f"{source}: rsm.config.credentials.file: {path}: {reason}; {remedy}") from None
    if sorted(values) != sorted(KEYS) or not all(values.values()):
        raise StartupError(f"{source}: rsm.config.credentials.file: {path}: {remedy}, and no others")
    return values[KEYS[0]], values[KEYS[1]]


def _parsed(text: str, path: str) -> dict[str, str]:
    try:
        return parse_properties(text, path)
    except StartupError:  # its message shows the line
        return {}
