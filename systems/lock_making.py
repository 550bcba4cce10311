"""Makes a lock: resolves with Maven all files that some coordinates need at run time."""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Collection
from pathlib import Path

import systems.maven as maven
from history.regular_files import sha256_of
from systems.errors import InputError
from systems.lock_file import Coordinate, LockedFile


def resolve(
    coordinates: Collection[Coordinate], without: Collection[str], on_progress: maven.Progress
) -> list[LockedFile]:
    """The files at the coordinates and all their dependencies, except artifacts that match a pattern of `without`.

    Raises `InputError` when Maven cannot resolve them, and for a pattern that matches no artifact."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = maven.download(coordinates, Path(scratch) / "maven", on_progress, dependencies=True)
        except maven.MavenError as error:
            raise InputError(f"Maven could not resolve {', '.join(map(str, coordinates))}: {error}") from error
        for pattern in without:
            if not fnmatch.filter([each.artifact for each in found], pattern):
                raise InputError(f"--without {pattern}: no artifact has such a name; remove it, or correct it")
        return sorted(
            LockedFile(each, sha256_of(path), path.stat().st_size)
            for each, path in found.items()
            if not any(fnmatch.fnmatch(each.artifact, pattern) for pattern in without)
        )
