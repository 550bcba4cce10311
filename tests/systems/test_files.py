"""Files of systems: fetched once by Maven, checked by their hashes, and never half there."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from systems.errors import InputError
from systems.files import FileCache
from systems.lock_file import Coordinate, Lock, LockedFile
from tests.systems.fake_maven import FakeMaven, maven

__all__ = ["maven"]

KAFKA, CLIENTS = "org.example:kafka_2.13:4.1.1", "org.example.deep:clients:4.1.1:all"
CONTENTS = {KAFKA: b"the broker", CLIENTS: b"its clients"}


def locked(coordinate: str, content: bytes) -> LockedFile:
    return LockedFile(Coordinate.parse(coordinate), hashlib.sha256(content).hexdigest(), len(content))


LOCK = Lock("some-log", "4.1.1", tuple(locked(*each) for each in CONTENTS.items()))
NAMES = ["clients-4.1.1-all.jar", "kafka_2.13-4.1.1.jar"]


def no_matter() -> None:
    """Maven is there."""


def never() -> None:
    raise AssertionError("Maven is not needed")


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache")


@pytest.fixture
def stocked(maven: FakeMaven) -> FakeMaven:
    for coordinate, content in CONTENTS.items():
        maven.put(coordinate, content)
    return maven


def quiet(_: str) -> None:
    """No progress."""


def drafts(cache: FileCache) -> list[str]:
    home = cache.directory(LOCK).parent
    return [path.name for path in home.iterdir() if path.name not in (".lock", "by-hand", LOCK.version)]


def test_a_fetch_brings_every_file_under_its_name(cache: FileCache, stocked: FakeMaven) -> None:
    said: list[str] = []
    directory = cache.fetch(LOCK, said.append, no_matter)
    assert sorted(path.name for path in directory.glob("*.jar")) == NAMES
    assert (directory / "kafka_2.13-4.1.1.jar").read_bytes() == b"the broker"
    assert stocked.asked == [KAFKA, CLIENTS]
    assert said[0].startswith("asking Maven for 2 files")
    assert "downloaded kafka_2.13-4.1.1.jar" in said
    assert cache.use(LOCK) == directory == cache.directory(LOCK)
    assert drafts(cache) == []


def test_a_second_fetch_uses_the_cached_files(cache: FileCache, stocked: FakeMaven) -> None:
    first = cache.fetch(LOCK, quiet, no_matter)
    assert cache.fetch(LOCK, quiet, never) == first
    assert stocked.asked == [KAFKA, CLIENTS]


def test_a_wrong_file_is_named_with_both_hashes_and_removed(cache: FileCache, stocked: FakeMaven) -> None:
    stocked.put(CLIENTS, b"not theirs!")
    with pytest.raises(InputError) as caught:
        cache.fetch(LOCK, quiet, no_matter)
    message = str(caught.value)
    assert "is not the clients-4.1.1-all.jar of the lock" in message
    assert f"its SHA-256 hash is {hashlib.sha256(b'not theirs!').hexdigest()} (11 bytes)" in message
    assert f"wanted {LOCK.files[1].sha256} (11 bytes)" in message
    assert "remove ~/.m2/repository/org/example/deep/clients" in message
    assert not cache.directory(LOCK).exists()
    assert drafts(cache) == []


def test_without_a_network_the_error_lists_the_files_and_their_place(cache: FileCache, stocked: FakeMaven) -> None:
    stocked.fail("Could not transfer artifact: Unknown host")
    with pytest.raises(InputError) as caught:
        cache.fetch(LOCK, quiet, no_matter)
    message = str(caught.value)
    assert "exit code 1: Could not transfer artifact: Unknown host" in message
    assert str(cache.by_hand(LOCK)) in message
    for file in LOCK.files:
        assert f"  {file.name}  {file.coordinate}  sha256 {file.sha256}" in message
    assert cache.by_hand(LOCK).is_dir()
    assert drafts(cache) == []


def test_without_an_installable_maven_the_error_states_it(cache: FileCache) -> None:
    def refuse() -> None:
        raise InputError("fetching jars needs packages that are not installed: maven")

    with pytest.raises(InputError, match=r"(?s)not installed: maven\n.*put these files into") as caught:
        cache.fetch(LOCK, quiet, refuse)
    assert NAMES[0] in str(caught.value)


def test_without_a_maven_program_the_error_states_it(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="this machine has no program mvn"):
        cache.fetch(LOCK, quiet, no_matter)


def test_files_put_by_hand_need_no_maven(cache: FileCache) -> None:
    cache.by_hand(LOCK).mkdir(parents=True)
    for file, content in zip(LOCK.files, CONTENTS.values(), strict=True):
        (cache.by_hand(LOCK) / file.name).write_bytes(content)
    assert sorted(path.name for path in cache.fetch(LOCK, quiet, never).glob("*.jar")) == NAMES
    assert sorted(path.name for path in cache.by_hand(LOCK).iterdir()) == NAMES


def test_maven_fetches_only_files_that_the_user_did_not_provide(cache: FileCache, stocked: FakeMaven) -> None:
    cache.by_hand(LOCK).mkdir(parents=True)
    (cache.by_hand(LOCK) / NAMES[1]).write_bytes(CONTENTS[KAFKA])
    cache.fetch(LOCK, quiet, no_matter)
    assert stocked.asked == [CLIENTS]


def test_a_wrong_file_put_by_hand_is_refused(cache: FileCache, stocked: FakeMaven) -> None:
    cache.by_hand(LOCK).mkdir(parents=True)
    (cache.by_hand(LOCK) / NAMES[1]).write_bytes(b"another")
    with pytest.raises(InputError, match=r"by-hand/kafka_2.13-4.1.1.jar: is not .* replace it with the right file"):
        cache.fetch(LOCK, quiet, no_matter)
    assert not cache.directory(LOCK).exists()
    assert stocked.asked == []


def test_unfetched_files_are_not_used(cache: FileCache) -> None:
    with pytest.raises(
        InputError, match=r"some-log 4.1.1 are not on this machine; run: brownout system fetch some-log"
    ):
        cache.use(LOCK)
    assert not cache.is_fetched(LOCK)


@pytest.mark.parametrize(
    ("damage", "trouble"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b"short"), "has 5 bytes instead of 10"),
        (lambda path: path.write_bytes(b"THE BROKER"), "has the SHA-256 hash"),
    ],
)
def test_damage_is_found_at_use_and_repaired_by_a_fetch(
    cache: FileCache, stocked: FakeMaven, damage: object, trouble: str
) -> None:
    path = cache.fetch(LOCK, quiet, no_matter) / NAMES[1]
    fetched_ns = path.stat().st_mtime_ns
    assert callable(damage)
    damage(path)
    if path.exists():  # a clock's tick later, however coarse the filesystem's clock is
        os.utime(path, ns=(fetched_ns + 10**9, fetched_ns + 10**9))
    with pytest.raises(InputError, match=rf"kafka_2.13-4.1.1.jar: {trouble}.*; run: brownout system fetch some-log"):
        cache.use(LOCK)
    cache.fetch(LOCK, quiet, no_matter)
    assert (cache.use(LOCK) / NAMES[1]).read_bytes() == b"the broker"
    assert stocked.asked == [KAFKA, CLIENTS, KAFKA], "what was not damaged is not fetched again"


@pytest.mark.usefixtures("stocked")
def test_a_changed_lock_with_the_same_size_and_time_is_found(cache: FileCache) -> None:
    cache.fetch(LOCK, quiet, no_matter)
    changed = Lock(LOCK.system, LOCK.version, (locked(KAFKA, b"THE BROKER"), LOCK.files[1]))
    with pytest.raises(InputError, match="has the SHA-256 hash"):
        cache.use(changed)
    assert cache.use(LOCK)


@pytest.mark.usefixtures("stocked")
def test_a_copied_cache_is_hashed_and_used(cache: FileCache) -> None:
    directory = cache.fetch(LOCK, quiet, no_matter)
    for path in directory.glob("*.jar"):
        os.utime(path, ns=(0, 0))
    assert cache.use(LOCK) == directory


def test_an_interrupted_fetch_ends_maven_and_leaves_no_file(cache: FileCache, stocked: FakeMaven) -> None:
    stocked.hang()

    def interrupt(said: str) -> None:
        if said == f"downloaded {NAMES[0]}":
            with open(stocked.shelf / "hangs") as fifo:  # until it has brought everything and hangs
                assert fifo.readline() == "all is brought\n"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.fetch(LOCK, interrupt, no_matter)
    with pytest.raises(ProcessLookupError):
        os.kill(int((stocked.shelf / "pid").read_text()), 0)
    assert not cache.directory(LOCK).exists()
    assert drafts(cache) == []


@pytest.mark.usefixtures("stocked")
def test_files_of_a_killed_fetch_are_removed(cache: FileCache) -> None:
    leftover = cache.directory(LOCK).parent / ".draft-4.1.1" / "jars"
    leftover.mkdir(parents=True)
    cache.fetch(LOCK, quiet, no_matter)
    assert drafts(cache) == []


def test_a_second_fetch_at_the_same_time_waits_for_the_first(cache: FileCache, stocked: FakeMaven) -> None:
    waits = threading.Event()
    second = threading.Thread(
        target=cache.fetch,
        args=(LOCK, lambda said: waits.set() if "waiting for it" in said else None, never),
    )

    def start_second() -> None:
        second.start()
        assert waits.wait(30)

    directory = cache.fetch(LOCK, quiet, start_second)
    second.join(30)
    assert not second.is_alive()
    assert cache.use(LOCK) == directory
    assert stocked.asked == [KAFKA, CLIENTS]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InputError, match=r"cache.*Not a directory; fetched files are kept there"):
        FileCache(tmp_path / "cache").fetch(LOCK, quiet, never)
