"""Collecting a node: what the analysis needs, under the run's directory.

<destination>/data/...: the files that the system's description names, as they lie below its data's directory, and the
    directories that they would lie in, also those that have none: that a partition is empty is told by that
<destination>/events.jsonl, service.log, and the service's configuration files
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

_RECORDS = ("events.jsonl", "service.log")


def copy_data(source: Path, patterns: Sequence[str], destination: Path) -> None:
    """Copy a service's files as they are now; what an earlier collection left at the destination is replaced.

    A service that never started has no directory: then nothing is copied, and who knows that it did has to object.
    Raises `OSError`.

    The copy gets its name once it is whole: half a replica would be judged as one that lost the other half."""
    target, draft = destination / "data", destination / "data.partial"
    for old in (target, draft):
        shutil.rmtree(old, ignore_errors=True)
    draft.mkdir(parents=True)
    for parent in {str(Path(pattern).parent) for pattern in patterns} - {"."}:
        for directory in source.glob(parent):
            if directory.is_dir() and not directory.is_symlink():
                (draft / directory.relative_to(source)).mkdir(parents=True, exist_ok=True)
    for path in sorted({path for pattern in patterns for path in source.glob(pattern)}):
        if path.is_file() and not path.is_symlink():
            copy = draft / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    draft.rename(target)


def has_data(destination: Path) -> bool:
    """Whether a collection brought anything of a service's data there."""
    data = destination / "data"
    return data.is_dir() and any(data.iterdir())


def copy_records(record_dir: Path, destination: Path) -> None:
    """Copy what the node wrote beside its data; nothing to do when it wrote it there."""
    destination.mkdir(parents=True, exist_ok=True)
    if destination.exists() and destination.samefile(record_dir):
        return
    for name in _RECORDS:
        if (record_dir / name).exists():
            shutil.copyfile(record_dir / name, destination / name)


def keep_configuration(record_dir: Path, files: Mapping[str, str]) -> None:
    """Leave a copy of a service's configuration with the node's records. `files`: texts by their path on the node."""
    for path, text in files.items():
        (record_dir / Path(path).name).write_text(text, encoding="utf-8")
