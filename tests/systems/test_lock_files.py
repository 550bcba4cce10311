"""Lock files and the catalog of systems: valid files, and the errors of invalid ones."""

import hashlib
from pathlib import Path

import pytest

from systems import catalog, lock_file
from systems.errors import InputError
from systems.lock_file import Coordinate, Lock, LockedFile
from systems.maven import resolve
from tests.systems.fake_maven import FakeMaven, maven

__all__ = ["maven"]

HASH = "0123456789abcdef" * 4
OUR_OWN = """\
name = "our-own"
workloads = ["log"]
[roles.server]
command = ["server"]
ports = { client = 1234 }
"""
GOOD = f"org.example:log:1.0 {HASH} 12\n"


def read(tmp_path: Path, text: str) -> Lock:
    path = tmp_path / "1.0.lock"
    path.write_text(text)
    return Lock.read(path, "some-log", "1.0")


def test_a_written_lock_file_reads_back(tmp_path: Path) -> None:
    files = [
        LockedFile(Coordinate("org.example", "log", "1.0"), HASH, 12),
        LockedFile(Coordinate("org.example", "log", "1.0", "linux"), HASH, 30),
    ]
    path = tmp_path / "versions" / "1.0.lock"
    lock_file.write(path, reversed(files), "Made so\nand so")
    assert path.read_text().startswith("# Made so\n# and so\norg.example:log:1.0 0123")
    lock = Lock.read(path, "some-log", "1.0")
    assert list(lock.files) == files
    assert [file.name for file in lock.files] == ["log-1.0.jar", "log-1.0-linux.jar"]
    assert lock.size == 42


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# nothing\n\n", "lists no file"),
        ("# one\norg.example:log:1.0 12\n", r":2: .* is not of the form `coordinate sha256 size`"),
        (f"org.example:log {HASH} 12\n", r":1: 'org.example:log' is not a coordinate"),
        (f"org.example:../log:1.0 {HASH} 12\n", r":1: 'org.example:../log:1.0' is not a coordinate"),
        (f"org.example:log:1.0 {HASH[1:]} 12\n", r":1: .* is not a SHA-256 hash"),
        (f"org.example:log:1.0 {HASH} -12\n", r":1: the size '-12' is not a number of bytes"),
        (f"{GOOD}org.other:log:1.0 {HASH} 12\n", r":2: log-1.0.jar is listed twice"),
    ],
)
def test_a_lock_that_is_not_understood_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "1.0.lock") in str(caught.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for version in ("0.10.2.2", "0.9.0.1", "0.11.0.3"):
        lock_file.write(
            tmp_path / "some_log" / "versions" / f"{version}.lock",
            [LockedFile(Coordinate("org.example", "log", version), HASH, 12)],
            "Made for a test",
        )
    (tmp_path / "our-own").mkdir()
    (tmp_path / "our-own" / "system.toml").write_text(OUR_OWN)
    (tmp_path / "no_system").mkdir()
    return tmp_path


def test_systems_and_versions_are_found(root: Path) -> None:
    assert [each.name for each in catalog.all_systems(root)] == ["our-own", "some-log"]
    found = catalog.find_system("some-log", root)
    assert found.versions == ("0.9.0.1", "0.10.2.2", "0.11.0.3")
    assert found.lock("0.11.0.3").files[0].coordinate.version == "0.11.0.3"


def test_unknown_systems_and_versions_are_reported_with_the_nearest_name(root: Path) -> None:
    with pytest.raises(InputError, match=r"unknown system 'some-lag'; did you mean 'some-log'\?"):
        catalog.find_system("some-lag", root)
    with pytest.raises(InputError, match=r"some-log has no version '0.11.0.2'; did you mean '0.11.0.3'\?"):
        catalog.find_system("some-log", root).lock("0.11.0.2")
    with pytest.raises(InputError, match="our-own has no versions whose files are fetched"):
        catalog.find_system("our-own", root).lock("1")


@pytest.mark.parametrize(("name", "version"), [("../x", "1"), ("Some", "1"), ("some", "../1"), ("some", "")])
def test_a_lock_is_written_only_under_a_plain_name(root: Path, name: str, version: str) -> None:
    with pytest.raises(InputError, match="cannot be a"):
        catalog.new_lock_path(name, version, root)
    assert catalog.new_lock_path("some-new", "1.0", root) == root / "some_new" / "versions" / "1.0.lock"


def test_a_lock_has_exactly_the_needed_files(maven: FakeMaven) -> None:
    asked = Coordinate.parse("org.example:log:1.0")
    maven.put(str(asked), b"a log")
    maven.put("org.example:needed:2.0", b"needed by it")
    maven.depend_on("org.example:needed:2.0")
    files = resolve([asked], [], lambda _: None)
    assert [file.name for file in files] == ["log-1.0.jar", "needed-2.0.jar"]
    assert (files[1].sha256, files[1].size) == (hashlib.sha256(b"needed by it").hexdigest(), 12)
    assert [file.name for file in resolve([asked], ["need*"], lambda _: None)] == ["log-1.0.jar"]
    with pytest.raises(InputError, match="--without nothing: no artifact has such a name"):
        resolve([asked], ["nothing"], lambda _: None)


def test_the_locks_of_this_project_can_be_read() -> None:
    found = {each.name: each for each in catalog.all_systems()}
    assert {"apache-kafka", "apache-kafka-zk"} <= set(found)
    for each in found.values():
        for version in each.versions:
            names = [file.coordinate for file in each.lock(version).files]
            assert {c.version for c in names if c.artifact == "kafka-clients"} <= {version}
