"""The object store in a directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.tiered.directory_store import DirectoryStore
from broker.tiered.object_store import StoreError, chunks_of
from tests.broker.tiered.stores import keeps_the_contract, leaves_no_object_of_a_failed_put


def test_it_keeps_the_contract_of_stores(tmp_path: Path) -> None:
    asyncio.run(keeps_the_contract(DirectoryStore(str(tmp_path))))


def test_a_failed_put_leaves_no_object(tmp_path: Path) -> None:
    asyncio.run(leaves_no_object_of_a_failed_put(DirectoryStore(str(tmp_path))))


@pytest.mark.parametrize("operation", ["put", "list", "delete"])
def test_a_missing_directory_is_an_error_and_not_an_empty_store(tmp_path: Path, operation: str) -> None:
    store = DirectoryStore(str(tmp_path / "not-mounted"))

    async def story() -> None:
        if operation == "put":
            await store.put("a/b", chunks_of([b"x"]))
        elif operation == "list":
            await store.list("a/")
        else:
            await store.delete("a/b")

    with pytest.raises(StoreError, match="not-mounted"):
        asyncio.run(story())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../outside", "a//b", "/a", "a/./b", ""])
def test_a_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of an object"):
        asyncio.run(DirectoryStore(str(tmp_path)).get(name, 0, 1))


def test_deleting_the_last_object_removes_its_directories(tmp_path: Path) -> None:
    async def story() -> None:
        store = DirectoryStore(str(tmp_path))
        await store.put("c/t/0/one.log", chunks_of([b"x"]))
        await store.delete("c/t/0/one.log")

    asyncio.run(story())
    assert list(tmp_path.iterdir()) == []
