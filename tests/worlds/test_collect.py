"""Collection: the files under `data` are complete or absent."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.worlds.node_collection import EARLIER, copy_data, has_data

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


def test_a_partition_without_files_is_kept_as_an_empty_directory(tmp_path: Path) -> None:
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


def test_an_earlier_copy_is_beside_and_copies_checkpoints_before_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A high watermark that was read first holds for every copy of a log that is made after it."""
    log = broker_directory(tmp_path)
    order: list[str] = []
    whole = shutil.copyfile

    def watched(source: Path, target: Path) -> None:
        order.append(source.name)
        whole(source, target)

    monkeypatch.setattr(shutil, "copyfile", watched)
    copy_data(log, COLLECTED, tmp_path / "n1")
    copy_data(log, COLLECTED, tmp_path / "n1", EARLIER)
    assert order == ["meta.properties", "0.log", "0.log"] * 2
    assert (tmp_path / "n1" / "earlier" / "log-1" / "0.log").read_bytes() == b"batches"
    assert (tmp_path / "n1" / "data" / "log-1" / "0.log").exists()


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("*.log",), {"dot.hidden.log", "wal.log"}),
        (("*/*.log",), {"dot.old/x.log", "db/x.log", "db", "dot.old"}),
        (
            ("**/*.log",),
            {"dot.hidden.log", "wal.log", "dot.old", "dot.old/x.log", "db", "db/x.log", "db/2024", "db/2024/x.log"},
        ),
        (("db/**/*.log", "meta"), {"meta", "db", "db/x.log", "db/2024", "db/2024/x.log"}),
        (("no/**/*.log",), set()),
    ],
)
def test_patterns_mean_the_same_on_machines_of_their_own(
    tmp_path: Path, patterns: tuple[str, ...], found: set[str]
) -> None:
    source = tmp_path / "data of [n1]"
    for name in (".hidden.log", "wal.log", "meta", ".old/x.log", "db/x.log", "db/2024/x.log"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "foreign.log").write_text("of another machine")
    (source / "linked").symlink_to(tmp_path / "elsewhere")
    (source / "linked.log").symlink_to(tmp_path / "elsewhere" / "foreign.log")
    (source / "db" / "around.log").symlink_to(source)
    os.mkfifo(source / "db" / "pipe.log")
    copy_data(source, patterns, tmp_path / "copied")
    archive = tmp_path / "archive"
    tree = {"source": str(source), "name": "data", "patterns": list(patterns)}
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {"trees": [tree], "archive": str(archive)}}))
    module = [sys.executable, str(PROJECT_ROOT / "playbooks/library/collected.py"), str(arguments)]
    subprocess.run(module, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "packed", filter="data")
    for root in (tmp_path / "copied" / "data", tmp_path / "packed" / "data"):
        assert {str(path.relative_to(root)) for path in root.rglob("*")} == found, root
