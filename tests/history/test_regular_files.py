"""Files that another program may have created: regular ones are read, and no other kind blocks the reader."""

import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from history.regular_files import NotAFileError, read_bytes, read_text, replace_text, sha256_of


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as each:
        each.bind(str(path))


def a_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def a_link_to_a_device_without_an_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = pytest.mark.parametrize(
    ("make", "message"),
    [
        (a_pipe, "a named pipe"),
        (a_socket, "a socket"),
        (a_link_to_a_pipe, "a named pipe"),
        (a_link_to_a_device_without_an_end, "a character device"),
        (Path.mkdir, "a directory"),
    ],
)


@KINDS
@pytest.mark.parametrize("read", [read_bytes, read_text, sha256_of])
def test_any_other_file_is_refused_immediately(
    tmp_path: Path, make: Callable[[Path], None], message: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "it"
    make(path)
    with pytest.raises(NotAFileError, match=message) as refused:
        read(path)
    assert refused.value.filename == str(path)


def test_a_file_is_read_also_by_way_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("é", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == "é".encode()
    assert read_text(tmp_path / "file") == "é"


def test_a_missing_file_raises_the_same_error_as_open(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing")


@pytest.mark.parametrize("make", [a_pipe, a_socket, a_link_to_a_pipe, a_link_to_a_device_without_an_end])
def test_a_draft_replaces_any_file_of_its_name(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "file.tmp")
    replace_text(tmp_path / "file", "said")
    assert (tmp_path / "file").read_text() == "said"
    assert not os.path.lexists(tmp_path / "file.tmp")


def test_a_draft_that_is_a_link_leaves_its_target_unchanged(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("theirs")
    (tmp_path / "file.tmp").symlink_to("elsewhere")
    replace_text(tmp_path / "file", "said")
    assert (tmp_path / "elsewhere").read_text() == "theirs"


def test_a_draft_replaces_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_text(tmp_path / "file", "said")


def test_a_file_that_cannot_be_written_keeps_its_content_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    replace_text(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_text(path, "new" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "old")]
