"""Resolves and fetches jars with this machine's Maven and its configured repositories, mirrors and cache."""

import contextlib
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from history.regular_files import sha256_of
from systems.errors import InputError
from systems.lock_file import Coordinate, LockedFile

PROGRAMS = {"mvn": "maven"}

Progress = Callable[[str], None]

# Pinned, because another version may arrange its files differently.
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_DOWNLOADED = re.compile(r"Downloaded from \S+ \S+/(\S+\.jar)\b")
_ERROR = re.compile(r"\[ERROR\]\s+(\S.*)")
_SHOWN_CHARACTERS = 400
_END_S = 10.0


class MavenError(Exception):
    """Maven is missing or did not fetch the files; the message has Maven's own error."""


def download(
    coordinates: Collection[Coordinate], scratch: Path, on_progress: Progress, *, dependencies: bool = False
) -> Mapping[Coordinate, Path]:
    """The jars at these coordinates; with `dependencies`, also everything that they need at run time.

    `scratch` is created and holds the jars and temporary files; the caller removes it. Raises `MavenError`."""
    jars = scratch / "jars"
    jars.mkdir(parents=True)
    (scratch / "pom.xml").write_text(_project(coordinates, dependencies=dependencies), encoding="utf-8")
    options = ["-DincludeScope=runtime", "-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={jars}"]
    _run(["mvn", "-B", "-Dstyle.color=never", "-f", str(scratch / "pom.xml"), _GOAL, *options], scratch, on_progress)
    paths = {_coordinate(path.relative_to(jars)): path for path in sorted(jars.rglob("*.jar"))}
    absent = [str(coordinate) for coordinate in coordinates if coordinate not in paths]
    if absent:
        raise MavenError(f"Maven ended without an error, but did not fetch {', '.join(absent)}")
    return paths


def resolve(coordinates: Collection[Coordinate], without: Collection[str], on_progress: Progress) -> list[LockedFile]:
    """The files at the coordinates and all their dependencies, except artifacts that match a pattern of `without`.

    Raises `InputError` when Maven cannot resolve them, and for a pattern that matches no artifact."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            paths = download(coordinates, Path(scratch) / "maven", on_progress, dependencies=True)
        except MavenError as error:
            raise InputError(f"Maven could not resolve {', '.join(map(str, coordinates))}: {error}") from error
        for pattern in without:
            if not fnmatch.filter([coordinate.artifact for coordinate in paths], pattern):
                raise InputError(f"--without {pattern}: no artifact has such a name; remove it, or correct it")
        return sorted(
            LockedFile(coordinate, sha256_of(path), path.stat().st_size)
            for coordinate, path in paths.items()
            if not any(fnmatch.fnmatch(coordinate.artifact, pattern) for pattern in without)
        )


def _project(coordinates: Collection[Coordinate], *, dependencies: bool) -> str:
    """A Maven project that only depends on the coordinates."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    entries = []
    for coordinate in coordinates:
        fields = {"groupId": coordinate.group, "artifactId": coordinate.artifact, "version": coordinate.version}
        if coordinate.classifier:
            fields["classifier"] = coordinate.classifier
        inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in fields.items())
        entries.append(f"<dependency>{inner}{'' if dependencies else alone}</dependency>")
    identity = "<groupId>brownout</groupId><artifactId>files</artifactId><version>1</version>"
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"{identity}<dependencies>{''.join(entries)}</dependencies></project>\n"
    )


def _coordinate(path: Path) -> Coordinate:
    """The coordinate of a path in a repository: group/with/slashes/artifact/version/artifact-version[-classifier]."""
    *group, artifact, version, _ = path.parts
    return Coordinate(
        ".".join(group), artifact, version, path.stem.removeprefix(f"{artifact}-{version}").removeprefix("-")
    )


def _run(command: list[str], directory: Path, on_progress: Progress) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise MavenError("this machine has no program mvn")
    errors: list[str] = []
    last_line = ""
    # Its own process group: after Ctrl-C this process stops Maven and all processes that Maven started.
    with subprocess.Popen(
        [program, *command[1:]],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        process_group=0,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last_line = line.strip() or last_line
                if match := _DOWNLOADED.search(line):
                    on_progress(f"downloaded {match[1]}")
                elif match := _ERROR.search(line):
                    errors.append(match[1])
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code:
        reason = errors[0] if errors else last_line or "it said nothing"
        raise MavenError(f"Maven ended with exit code {code}: {reason[:_SHOWN_CHARACTERS]}")


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
