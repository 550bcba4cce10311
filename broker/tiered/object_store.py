"""Object stores of brokers: the interface, and what implements it: a directory and S3. The simulation has its own.

The interface defines what survives: an object is durable, and readable as a whole, once `put` has returned. If `put`
raises, or is cancelled, or its process dies, the object may exist, be missing, or be incomplete: its name must not be
used for anything else. Names are never put twice.

The directory is of this machine, and the brokers of a cluster share it. An object is written to a file of another name,
synced and renamed. So a name without `UNFINISHED` at its end always is a whole object. File operations run in threads,
because the directory may be on a slow network file system. Invariant: when `put` returns, the object's bytes, its name,
and the names of all directories above it are on disk. The name costs one sync of its directory. The directories above
are synced only if their names have changed since this process last synced them: another broker may have created a
directory, or removed it and created it again, and may have died before it was durable. A directory's modification time
shows that.

S3, or a service with S3's interface, is used through `obstore`. A put of several chunks is a multipart upload: the
object appears when it is completed, and an interrupted one leaves no object. Error messages have no credentials: their
values are replaced before a message leaves this module.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.properties import parse_properties


class StoreError(Exception):
    """An operation of the store failed. The message has no credentials. It may succeed later. `kind`: what failed, in a
    few words that are the same for every object."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind or message


MISSING: Final = "the object does not exist"
"""The kind of `ObjectMissingError`."""


class ObjectMissingError(StoreError):
    """The store does not have the object."""


class StoredObject(NamedTuple):
    """An object in a listing. `size` in bytes."""

    name: str
    size: int


class ObjectStore(Protocol):
    """A flat set of immutable objects. Names have `/` between their parts. All methods raise `StoreError`."""

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        """Store an object: the concatenation of the chunks. Durable on return."""
        ...

    async def get(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; shorter at the end of the object. Raises `ObjectMissingError`."""
        ...

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        """The objects whose names start with `prefix`, by name. It may lack objects that were put, and contain objects
        that were deleted, a short time ago."""
        ...

    async def delete(self, name: str) -> None:
        """Remove an object; no error when it does not exist."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


async def chunks_of(data: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Chunks in memory, as `ObjectStore.put` takes them."""
    for chunk in data:
        yield chunk


# ---- A directory.

UNFINISHED: Final = ".unfinished"
"""Suffix of the files of objects that are being written, or whose writer died."""

SETTLED_S: Final = 1.0
"""The age from which a directory's modification time is trusted: two changes within the resolution of a file system's
clock have the same time."""

T = TypeVar("T")


class DirectoryStore:
    """Objects are files below `root`, with their names as relative paths. The directory must exist: a missing mount
    must not look like an empty store."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._synced: dict[Path, int] = {}
        """The modification time (ns) of each directory above those of objects, when its names were synced."""

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        path = self._path(name)
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}{UNFINISHED}")
        file = await _in_thread(self._create, unfinished)
        try:
            try:
                async for chunk in chunks:
                    await _in_thread(file.write, chunk)
                await _in_thread(_sync, file)
            finally:
                file.close()
            await _in_thread(self._finish, unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise

    async def get(self, name: str, start: int, length: int) -> bytes:
        return await _in_thread(_read, self._path(name), start, length)

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        return await _in_thread(self._listed, prefix)

    async def delete(self, name: str) -> None:
        await _in_thread(self._delete, self._path(name))

    async def close(self) -> None:
        """There is nothing to release."""

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if not all(parts) or {".", ".."} & set(parts):
            raise ValueError(f"{name!r} is not the name of an object")
        return self._root.joinpath(*parts)

    def _create(self, path: Path) -> BinaryIO:
        self._require_root()
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb", buffering=0)

    def _finish(self, unfinished: Path, path: Path) -> None:
        os.rename(unfinished, path)
        _sync_directory(path.parent)
        for directory in path.parent.parents if path.parent != self._root else ():
            self._sync_changed_names(directory)
            if directory == self._root:
                break

    def _sync_changed_names(self, directory: Path) -> None:
        changed_ns = directory.stat().st_mtime_ns
        if self._synced.get(directory) == changed_ns:
            return
        _sync_directory(directory)
        if time.time_ns() - changed_ns > SETTLED_S * 1e9:
            self._synced[directory] = changed_ns

    def _listed(self, prefix: str) -> Sequence[StoredObject]:
        self._require_root()
        objects = []
        start = self._root / prefix.rpartition("/")[0]
        for directory, _, files in os.walk(start, onerror=_raise):
            for file in files:
                path = Path(directory) / file
                name = path.relative_to(self._root).as_posix()
                if name.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        objects.append(StoredObject(name, path.stat().st_size))
        return sorted(objects)

    def _delete(self, path: Path) -> None:
        self._require_root()
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another object is in it, or another broker removes it too
            for directory in path.parents:
                if directory == self._root:
                    break
                directory.rmdir()

    def _require_root(self) -> None:
        if not self._root.is_dir():
            raise FileNotFoundError(2, "the directory does not exist", str(self._root))


async def _in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Run a file operation in a thread. Raises `StoreError`."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{error.filename or 'the store'}: {reason}", kind=reason) from error


def _sync(file: BinaryIO) -> None:
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, start: int, length: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)
    except FileNotFoundError:
        raise ObjectMissingError(f"{path}: {MISSING}", kind=MISSING) from None


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


# ---- S3.

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
        objects: list[StoredObject] = []
        # The service lists whole path segments only: the rest of the prefix is compared here.
        with self._errors():
            async for page in self._api.list(self._client, prefix.rpartition("/")[0] or None):
                objects += [StoredObject(stored["path"], stored["size"]) for stored in page]
        return sorted(stored for stored in objects if stored.name.startswith(prefix))

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


# ---- The store that a configuration names.


def store_of(config: BrokerConfig) -> ObjectStore:
    """The store of `rsm.config.url`. It need not be reachable now. Raises `StartupError` for an unusable setting."""
    scheme, separator, place = config.rsm_config_url.partition("://")
    if separator and scheme == "file" and place.startswith("/"):
        return DirectoryStore(place)
    if separator and scheme == "s3" and place.partition("/")[0]:
        return _s3(config, *place.split("/", 1))
    raise StartupError(
        f"{config.source}: rsm.config.url: {config.rsm_config_url!r} is neither file:///directory nor s3://bucket/prefix"
    )


def _s3(config: BrokerConfig, bucket: str, prefix: str = "") -> ObjectStore:
    if importlib.util.find_spec("obstore") is None:
        raise StartupError(
            f"{config.source}: rsm.config.url: S3 needs the package obstore; install the extra [s3], or use a directory"
        )
    path = config.rsm_config_credentials_file
    return S3Store(
        bucket,
        prefix.strip("/"),
        endpoint=config.rsm_config_endpoint,
        region=config.rsm_config_region,
        credentials=None if path is None else read_credentials(path, config.source),
    )
