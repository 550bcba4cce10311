"""Collecting a node: what the analysis needs, under the run's directory.

<destination>/data/<topic>-<partition>/*.log, leader-epoch-checkpoint, quorum-state
<destination>/data/replication-offset-checkpoint, recovery-point-offset-checkpoint, meta.properties
<destination>/events.jsonl, service.log, server.properties
"""

from __future__ import annotations

import shutil
from pathlib import Path

_RECORDS = ("events.jsonl", "service.log", "server.properties")
_OF_PARTITION = ("leader-epoch-checkpoint", "quorum-state", "partition.metadata")
_OF_BROKER = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "meta.properties",
    "quorum-state",
    ".kafka_cleanshutdown",
)


def copy_logs(log_dir: Path, destination: Path) -> None:
    """Copy a broker's log directory as it is now; what an earlier collection left at the destination is replaced.

    A broker that never started has no directory: then nothing is copied. Raises `OSError`.

    The copy gets its name once it is whole: half a replica would be judged as one that lost the other half."""
    target, draft = destination / "data", destination / "data.partial"
    for old in (target, draft):
        shutil.rmtree(old, ignore_errors=True)
    draft.mkdir(parents=True)
    for entry in sorted(log_dir.iterdir()) if log_dir.is_dir() else []:
        if entry.is_dir():
            _copy_partition(entry, draft / entry.name)
        elif entry.name in _OF_BROKER:
            shutil.copyfile(entry, draft / entry.name)
    draft.rename(target)


def copy_records(record_dir: Path, destination: Path) -> None:
    """Copy what the node wrote beside its logs; nothing to do when it wrote them there."""
    destination.mkdir(parents=True, exist_ok=True)
    if destination.exists() and destination.samefile(record_dir):
        return
    for name in _RECORDS:
        if (record_dir / name).exists():
            shutil.copyfile(record_dir / name, destination / name)


def _copy_partition(source: Path, target: Path) -> None:
    wanted = [path for path in source.iterdir() if path.suffix == ".log" or path.name in _OF_PARTITION]
    if wanted:
        target.mkdir()
        for path in wanted:
            shutil.copyfile(path, target / path.name)
