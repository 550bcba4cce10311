"""The files of a system under test as an archive, for machines that do not share this machine's filesystem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nodeimage.archives as archives
from installation.files import cache_directory

DIRECTORY = "files"


@dataclass(frozen=True)
class FilesArchive:
    """`archive` is a .tar of the files; `key` changes with their names and contents."""

    key: str
    archive: Path


def files_archive(project: Path, files: Mapping[str, Path]) -> FilesArchive:
    """The archive of these files under the given paths, made unless the project's cache has it under its key. Raises
    `OSError` for a file that cannot be read.

    It is not compressed: jars already are, and unpacking is slow on emulated machines."""
    key = archives.content_key(files, salt="files 1")
    archive = cache_directory(project) / DIRECTORY / f"{key}.tar"
    if not archive.exists():
        archives.write(files, archive, compressed=False)
    return FilesArchive(key, archive)
