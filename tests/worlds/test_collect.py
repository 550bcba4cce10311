"""Collecting: what is under `data` is whole, or is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.worlds.collect import copy_data, has_data

COLLECTED = ("*/*.log", "meta.properties")


def broker_directory(root: Path) -> Path:
    log = root / "log"
    for partition in ("log-0", "log-1"):
        (log / partition).mkdir(parents=True)
        (log / partition / "0.log").write_bytes(b"batches")
    (log / "meta.properties").write_text("node.id=1\n")
    return log


def test_half_a_copy_does_not_count_as_a_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker_directory(tmp_path)
    (tmp_path / "n1" / "data").mkdir(parents=True)
    whole = shutil.copyfile

    def full_disk(source: Path, target: Path) -> None:
        if "log-1" in str(source):
            raise OSError(28, "No space left on device")
        whole(source, target)

    monkeypatch.setattr(shutil, "copyfile", full_disk)
    with pytest.raises(OSError, match="No space left"):
        copy_data(log, COLLECTED, tmp_path / "n1")
    assert not (tmp_path / "n1" / "data").exists()

    monkeypatch.undo()
    copy_data(log, COLLECTED, tmp_path / "n1")
    copied = {str(path.relative_to(tmp_path / "n1")) for path in (tmp_path / "n1").rglob("*") if path.is_file()}
    assert copied == {"data/log-0/0.log", "data/log-1/0.log", "data/meta.properties"}


def test_a_partition_without_files_is_kept_as_what_it_is(tmp_path: Path) -> None:
    log = broker_directory(tmp_path)
    (log / "log-2").mkdir()
    copy_data(log, COLLECTED, tmp_path / "n1")
    assert sorted(path.name for path in (tmp_path / "n1" / "data").iterdir() if path.is_dir()) == [
        "log-0",
        "log-1",
        "log-2",
    ]


def test_a_broker_that_never_started_has_no_logs(tmp_path: Path) -> None:
    copy_data(tmp_path / "nowhere", COLLECTED, tmp_path / "n1")
    assert list((tmp_path / "n1" / "data").iterdir()) == []
    assert not has_data(tmp_path / "n1")
    copy_data(broker_directory(tmp_path), COLLECTED, tmp_path / "n1")
    assert has_data(tmp_path / "n1")
