"""The remains of killed commands are removed, and resources in use are not."""

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from installation.files import SPARK_FILES
from nodeimage.image import UNFINISHED, images_directory
from orchestrator.nodes import state
from orchestrator.nodes.leftovers import remove_leftovers


@pytest.fixture(autouse=True)
def _own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "DEFAULT_ROOT", tmp_path / "kept")


def old(path: Path) -> Path:
    path.mkdir(parents=True)
    os.utime(path, (0, 0))
    return path


def clean(tmp_path: Path) -> list[str]:
    return remove_leftovers(tmp_path / "store", tmp_path / "project")


def test_an_empty_machine_has_no_leftovers(tmp_path: Path) -> None:
    assert [each for each in clean(tmp_path) if str(tmp_path) in each] == []


@pytest.mark.parametrize(("place", "prefix"), [("store/.labs", ""), ("tmp", SPARK_FILES)])
def test_directories_of_killed_runs_are_removed_unless_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, prefix: str
) -> None:
    parent = tmp_path / place
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    left, worked_in, started_with, locked = (
        old(parent / f"{prefix}{name}") for name in ("left", "cwd", "argument", "locked")
    )
    (young := parent / f"{prefix}young").mkdir()
    lock = os.open(locked, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    sleepers = [
        subprocess.Popen(["sleep", "60"], cwd=worked_in),
        subprocess.Popen(["sh", "-c", "sleep 60; exit", str(started_with / "disk.qcow2")]),
    ]
    try:
        assert str(left) in clean(tmp_path)
        assert sorted(parent.iterdir()) == sorted([worked_in, started_with, locked, young])
    finally:
        os.close(lock)
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    clean(tmp_path)
    assert sorted(parent.iterdir()) == [young]


def test_only_temporary_files_of_spark_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    other = old(tmp_path / "tmp" / "of-another-program")
    assert str(other) not in clean(tmp_path)
    assert other.exists()


def test_a_process_in_the_middle_of_an_exec_is_found(tmp_path: Path) -> None:
    """For a moment of every exec the kernel shows no arguments at all."""
    used = old(tmp_path / "store" / ".labs" / "used")
    again = tmp_path / "again"
    again.write_text('#!/bin/sh\nexec "$0" "$@"\n')
    again.chmod(0o755)
    with subprocess.Popen([again, used / "disk.qcow2"]) as process:
        try:
            for _ in range(60):
                clean(tmp_path)
            assert used.exists()
        finally:
            process.kill()


def test_builds_that_were_killed_are_removed_unless_one_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # the images of a user are in the home directory
    images = images_directory(tmp_path / "project")
    unfinished, whole = images / f"{UNFINISHED}1", images / "2"
    for path in (unfinished, whole):
        path.mkdir(parents=True)
    with (images / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clean(tmp_path)
        assert unfinished.exists()
    assert str(unfinished) in clean(tmp_path)
    assert [path.name for path in images.iterdir() if path.is_dir()] == ["2"]


def test_nodes_of_a_killed_holder_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "kept"
    for name in ("run", "lab"):
        (root / name).mkdir(parents=True)
    (root / "plan.json").touch()
    lock = os.open(root, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    clean(tmp_path)
    assert len(list(root.iterdir())) == 3
    os.close(lock)
    assert "nodes whose process was killed" in clean(tmp_path)
    assert list(root.iterdir()) == []
