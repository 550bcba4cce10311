"""Failures of a store are counted by kind, and printed once per change of the kind."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.tiered.object_store import DirectoryStore, ObjectMissingError, S3Store, StoreError, chunks_of
from broker.tiered.reporting_store import NO_PROGRESS, ReportingStore

FAILURES = {
    "refused": StoreError("bucket/a-1: connection refused after 1.2 ms", kind="Connection refused"),
    "403": StoreError("bucket/a-2: status code: 403 Forbidden", kind="HTTP 403"),
    "503": StoreError("bucket/a-3: status code: 503", kind="HTTP 503"),
}


class Store:
    """Each get ends as `outcome` says: an error's name, "hang", "missing" or "done"."""

    outcome = "done"

    async def get(self, *_: object) -> bytes:
        if self.outcome == "hang":
            await asyncio.get_running_loop().create_future()
        if self.outcome == "missing":
            raise ObjectMissingError("bucket/a-4")
        if self.outcome in FAILURES:
            raise FAILURES[self.outcome]
        return b""


def test_each_change_of_the_kind_is_printed_once() -> None:
    printed: list[str] = []
    events: list[tuple[str, str]] = []
    inner: Any = Store()
    tracer: Any = SimpleNamespace(emit=lambda event, **fields: events.append((event, fields.get("reason", ""))))
    store = ReportingStore(inner, tracer, 0.01, printed.append)

    async def story() -> None:
        for outcome in ("done", "refused", "refused", "403", "503", "503", "hang", "503", "missing", "503", "done"):
            inner.outcome = outcome
            if outcome == "done":
                await store.get("a", 0, 1)
            else:
                with pytest.raises(StoreError):
                    await store.get("a", 0, 1)

    asyncio.run(story())
    told = [line.partition("(get)")[2].partition(";")[0].removeprefix(": ") for line in printed]
    works = [line for line in printed if "works again" in line]
    in_turn = ("refused", "403", "503", "hang", "503", "missing", "503", "done")
    assert told == [str(FAILURES.get(it, f"no progress for {0.01:g} s" if it == "hang" else "")) for it in in_turn]
    assert len(works) == 2, "a store that says that an object is missing works"
    assert [event for event, _ in events].count("remote_storage_failed") == 6
    assert store.failures == {
        ("get", "Connection refused"): 2,
        ("get", "HTTP 403"): 1,
        ("get", "HTTP 503"): 4,
        ("get", NO_PROGRESS): 1,
    }


def test_a_missing_directory_and_a_full_name_have_different_kinds(tmp_path: Path) -> None:
    async def kinds() -> list[str]:
        found = []
        (tmp_path / "file").touch()
        for root, name in ((tmp_path / "nowhere", "a"), (tmp_path, "file/a"), (tmp_path, "x" * 300)):
            with pytest.raises(StoreError) as error:
                await DirectoryStore(str(root)).put(name, chunks_of([b"x"]))
            found.append(error.value.kind)
        return found

    assert asyncio.run(kinds()) == ["the directory does not exist", "File exists", "File name too long"]


def test_a_refused_connection_to_s3_has_a_kind_without_names_and_durations() -> None:
    pytest.importorskip("obstore")
    store = S3Store("bucket", "", endpoint="http://127.0.0.1:9", region="us-east-1", credentials=None)

    async def kind() -> str:
        with pytest.raises(StoreError) as error:
            await store.get("a", 0, 1)
        return error.value.kind

    assert asyncio.run(kind()) == "Connection refused"
