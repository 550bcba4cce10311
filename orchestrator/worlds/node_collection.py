"""Collects a node's files for the analysis, into the run's directory.

<destination>/data/...: the files that the system's description names, with their paths below its data directory, and
the
    directories that would contain them, also empty ones: an empty directory shows an empty partition
<destination>/earlier/...: the same, at a time while the service ran
<destination>/events.jsonl, service.log, and the service's configuration files

No collected name starts with a dot: `.x` becomes `dot.x`. Uploads of CI artifacts skip hidden files, and a run with
lost evidence is unknown. `playbooks/library/collected.py` names files by the same rule.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from systems.service import shown_as

_RECORDS = ("events.jsonl", "service.log")


DATA = "data"
EARLIER = "earlier"


def copy_data(source: Path, patterns: Sequence[str], destination: Path, name: str = DATA) -> None:
    """Copy the current files of a service; replaces an earlier collection at the destination.

    Links are left out, and what is below linked directories: from the tester, a link leads to the tester's files.

    The outermost files come first: a checkpoint then holds for the copy of a log, which is made later, also while the
    service runs.

    A service that never started has no directory: then nothing is copied, and the caller must report that if it
    matters. Raises `OSError`.

    The copy gets its name once it is complete: half a replica would be analyzed as one that lost the other half."""
    target, draft = destination / name, destination / f"{name}.partial"
    for old in (target, draft):
        shutil.rmtree(old, ignore_errors=True)
    draft.mkdir(parents=True)
    for parent in {str(Path(pattern).parent) for pattern in patterns} - {"."}:
        for directory in source.glob(parent):
            if directory.is_dir() and not _is_linked(directory, source):
                (draft / shown_as(directory.relative_to(source))).mkdir(parents=True, exist_ok=True)
    paths = {path for pattern in patterns for path in source.glob(pattern)}
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        if not _is_linked(path, source) and path.is_file():
            copy = draft / shown_as(path.relative_to(source))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    draft.rename(target)


def _is_linked(path: Path, source: Path) -> bool:
    """Whether a path below `source` is a link, or leads through one."""
    parts = path.relative_to(source).parts
    return any(source.joinpath(*parts[:count]).is_symlink() for count in range(1, len(parts) + 1))


def has_data(destination: Path) -> bool:
    """Whether a collection contains any of a service's data."""
    data = destination / "data"
    return data.is_dir() and any(data.iterdir())


def copy_records(record_dir: Path, destination: Path) -> None:
    """Copy a node's records that are not in its `record_dir` already."""
    destination.mkdir(parents=True, exist_ok=True)
    if destination.exists() and destination.samefile(record_dir):
        return
    for name in _RECORDS:
        if (record_dir / name).exists():
            shutil.copyfile(record_dir / name, destination / name)


def keep_configuration(record_dir: Path, etc_dir: str, files: Mapping[str, str]) -> None:
    """Copy a service's configuration to the node's records, with its paths below the node's configuration directory.
    `files`: texts by their path on the node."""
    for path, text in files.items():
        place = PurePosixPath(path)
        copy = record_dir / shown_as(place.relative_to(etc_dir) if place.is_relative_to(etc_dir) else Path(place.name))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
