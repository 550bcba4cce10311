"""The object store in a directory."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.tiered.object_store import DirectoryStore, StoreError, chunks_of
from tests.broker.tiered.stores import keeps_the_contract, leaves_no_object_of_a_failed_put


def test_the_store_meets_the_contract_of_stores(tmp_path: Path) -> None:
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


class Durability:
    """The order of the operations that make an object durable; paths are relative to the store."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.seen: list[str] = []
        monkeypatch.setattr(os, "fsync", partial(self._fsync, os.fsync))
        monkeypatch.setattr(os, "rename", partial(self._rename, os.rename))
        monkeypatch.setattr(os, "mkdir", partial(self._mkdir, os.mkdir))

    def take(self) -> list[str]:
        """What was done since the last call."""
        seen, self.seen = self.seen, []
        return seen

    def _fsync(self, sync: Callable[[int], None], fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        self.seen.append(f"sync {self._name(path) if path.is_dir() else 'file'}")
        sync(fd)

    def _rename(self, rename: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        self.seen.append(f"rename {self._name(target)}")
        rename(source, target)

    def _mkdir(self, mkdir: Callable[..., None], path: Path, mode: int = 0o777) -> None:
        mkdir(path, mode)
        self.seen.append(f"create {self._name(Path(path))}")

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def settle(root: Path) -> None:
    """All directories were changed a while ago."""
    for directory in (root, *(each for each in root.rglob("*") if each.is_dir())):
        earlier = time.time() - 60 - directory.stat().st_ino % 50
        os.utime(directory, (earlier, earlier))


def put(store: DirectoryStore, *names: str) -> None:
    async def story() -> None:
        for name in names:
            await store.put(name, chunks_of([b"x"]))

    asyncio.run(story())


def test_an_object_is_durable_with_its_name_and_all_new_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durability = Durability(tmp_path, monkeypatch)
    put(DirectoryStore(str(tmp_path)), "c/t/0/one.log")
    assert durability.take() == [
        *("create c", "create c/t", "create c/t/0"),
        *("sync file", "rename c/t/0/one.log", "sync c/t/0"),
        *("sync c/t", "sync c", "sync ."),
    ]


def test_a_further_object_costs_a_sync_of_its_file_and_one_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(str(tmp_path))
    put(store, "c/t/0/one.log")
    settle(tmp_path)
    put(store, "c/t/0/two.log")
    durability = Durability(tmp_path, monkeypatch)
    put(store, "c/t/0/three.log")
    assert durability.take() == ["sync file", "rename c/t/0/three.log", "sync c/t/0"]


def test_a_directory_that_another_broker_created_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c/t/0").mkdir(parents=True)
    settle(tmp_path)
    durability = Durability(tmp_path, monkeypatch)
    put(DirectoryStore(str(tmp_path)), "c/t/0/one.log")
    assert durability.take()[2:] == ["sync c/t/0", "sync c/t", "sync c", "sync ."]


def test_a_directory_that_was_removed_and_created_again_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(str(tmp_path))
    put(store, "c/t/0/one.log")
    settle(tmp_path)
    put(store, "c/t/0/two.log")
    shutil.rmtree(tmp_path / "c/t/0")
    (tmp_path / "c/t/0").mkdir()
    durability = Durability(tmp_path, monkeypatch)
    put(store, "c/t/0/three.log")
    assert durability.take()[2:] == ["sync c/t/0", "sync c/t"]
