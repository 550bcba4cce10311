"""Collecting a node: what the analysis needs, under the run's directory.

<destination>/data/...: the files that the system's description names, as they lie below its data's directory, and the
    directories that they would lie in, also those that have none: that a partition is empty is told by that
<destination>/earlier/...: the same, as they were while the service ran
<destination>/events.jsonl, service.log, and the service's configuration files

No collected name begins with a dot: `.x` becomes `dot.x`. Uploads of artifacts leave hidden files out, and a run whose
evidence is lost on the way is unknown. `playbooks/library/collected.py` names files by the same rule.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from systems.service import shown_as

_RECORDS = ("events.jsonl", "service.log")


DATA = "data"
EARLIER = "earlier"


def copy_data(source: Path, patterns: Sequence[str], destination: Path, name: str = DATA) -> None:
    """Copy a service's files as they are now; what an earlier collection left at the destination is replaced.

    The outermost files come first: what a checkpoint says of a log then holds for the copy of that log, which is made
    later, also while the service runs.

    A service that never started has no directory: then nothing is copied, and who knows that it did has to object.
    Raises `OSError`.

    The copy gets its name once it is whole: half a replica would be judged as one that lost the other half."""
    target, draft = destination / name, destination / f"{name}.partial"
    for old in (target, draft):
        shutil.rmtree(old, ignore_errors=True)
    draft.mkdir(parents=True)
    for parent in {str(Path(pattern).parent) for pattern in patterns} - {"."}:
        for directory in source.glob(parent):
            if directory.is_dir() and not directory.is_symlink():
                (draft / shown_as(directory.relative_to(source))).mkdir(parents=True, exist_ok=True)
    found = {path for pattern in patterns for path in source.glob(pattern)}
    for path in sorted(found, key=lambda path: (len(path.parts), path)):
        if path.is_file() and not path.is_symlink():
            copy = draft / shown_as(path.relative_to(source))
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


def keep_configuration(record_dir: Path, etc_dir: str, files: Mapping[str, str]) -> None:
    """Leave a copy of a service's configuration with the node's records, as it lies below the node's directory for it.
    `files`: texts by their path on the node."""
    for path, text in files.items():
        place = PurePosixPath(path)
        kept = record_dir / shown_as(place.relative_to(etc_dir) if place.is_relative_to(etc_dir) else Path(place.name))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text, encoding="utf-8")
