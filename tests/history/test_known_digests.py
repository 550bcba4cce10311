"""Unchanged evidence is hashed once, changed evidence always."""

import os
from pathlib import Path

import pytest

from history import known_digests, seal
from history.regular_files import NotAFileError, sha256_of


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, in order. Files count as settled at once."""
    read: list[str] = []

    def counted(path: str) -> str:
        read.append(Path(path).name)
        return sha256_of(path)

    monkeypatch.setattr(known_digests, "sha256_of", counted)
    monkeypatch.setattr(known_digests, "SETTLED_NS", -1)
    return read


def test_an_unchanged_file_is_read_once(tmp_path: Path, hashed: list[str]) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "run.toml").write_text("a")
    (tmp_path / "history" / "journal.jsonl").write_text("b")
    before = seal.digest(tmp_path)
    assert hashed == ["run.toml", "journal.jsonl"]
    assert seal.digest(tmp_path) == before
    assert hashed == ["run.toml", "journal.jsonl"]


@pytest.mark.parametrize("keeps", ["nothing", "the size and the mtime", "the size, the mtime and the name's file"])
def test_a_changed_file_is_read_again(tmp_path: Path, hashed: list[str], keeps: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text("aaaa")
    before, state = seal.digest(tmp_path), path.stat()
    if keeps == "nothing":
        path.write_text("bbbbb")
    elif keeps == "the size and the mtime":
        path.write_text("bbbb")
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    else:
        other = tmp_path / "other"
        other.write_text("bbbb")
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.replace(path)
    assert seal.digest(tmp_path) != before
    assert hashed == ["run.toml", "run.toml"]


def test_a_file_that_changed_just_now_is_read_again(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may give a second change the same ctime."""
    monkeypatch.setattr(known_digests, "SETTLED_NS", 2_000_000_000)
    (tmp_path / "run.toml").write_text("aaaa")
    seal.digest(tmp_path)
    seal.digest(tmp_path)
    assert hashed == ["run.toml", "run.toml"]


def test_a_pipe_in_place_of_a_known_file_is_refused(tmp_path: Path, hashed: list[str]) -> None:
    path = tmp_path / "f"
    path.write_text("a")
    known_digests.digest_of(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(NotAFileError):
        known_digests.digest_of(str(path))
    assert hashed == ["f", "f"]
