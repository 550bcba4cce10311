"""Systems that consist of the jars of a locked version and run on Java; local nodes use this machine's Java."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import systems.class_archive as class_archive
from history.regular_files import read_text
from systems.catalog import lock_path
from systems.description import Description
from systems.errors import InputError
from systems.files import CACHE, FileCache
from systems.lock_file import Lock
from systems.node_requirements import MachineRoot
from systems.service import Place
from systems.system import Deployed, System

# ---- Finds Java on this machine: JAVA_HOME, PATH, and the directories where systems install it.

# Where Debian, Fedora, SDK archives and macOS install Java; each directory contains bin/java.
USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S = 30.0


@dataclass(frozen=True)
class Java:
    """A Java that runs; `version` is its feature release: 8, 11, 17."""

    program: Path
    version: int

    @property
    def home(self) -> Path:
        """The directory of this Java without symbolic links: `<home>/bin/java`."""
        return self.program.resolve().parents[1]

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that it needs to run: its home, and the configuration that the home links to (Debian keeps
        it in /etc)."""
        etc = Path("/etc")
        targets = {link.resolve() for link in self.home.rglob("*") if link.is_symlink() and link.exists()}
        linked = {path if path.is_dir() else path.parent for path in targets}
        configuration = {path for path in linked if etc in path.parents}  # not /etc itself: nodes have their own
        outermost = (path for path in configuration if not configuration.intersection(path.parents))
        return self.home, *sorted(outermost)


def find_java(
    at_least: int, environment: Mapping[str, str] | None = None, usual_homes: Sequence[str] = USUAL_HOMES
) -> Java:
    """The first Java in JAVA_HOME, PATH and the usual directories that has at least this version.

    Raises `InputError` with the Javas that were found and the remedy."""
    too_old: list[str] = []
    for program in _candidates(os.environ if environment is None else environment, usual_homes):
        version = java_version(program)
        if version is None:
            too_old.append(f"{program} (does not say its version)")
        elif version < at_least:
            too_old.append(f"{program} (Java {version})")
        else:
            return Java(program, version)
    offer = f"only {', '.join(too_old)}" if too_old else "none in JAVA_HOME, PATH and the usual directories"
    raise InputError(
        f"Java {at_least} or later is needed, but there is {offer}; install one, on Debian for example with "
        "./brownout install-packages default-jre-headless, or set JAVA_HOME to its directory"
    )


def java_version(program: Path) -> int | None:
    """The feature release; None when the program is not a working Java."""
    try:
        done = subprocess.run(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def _candidates(environment: Mapping[str, str], usual_homes: Sequence[str]) -> Iterator[Path]:
    """Programs called java, each file once, under the first path at which it is found."""
    homes = [environment["JAVA_HOME"]] if environment.get("JAVA_HOME") else []
    named = [Path(home) / "bin" / "java" for home in homes]
    named += [Path(path) / "java" for path in environment.get("PATH", "").split(":") if path.startswith("/")]
    for pattern in usual_homes:
        named += sorted(Path("/").glob(pattern.lstrip("/") + "/bin/java"), reverse=True)
    real_paths: set[Path] = set()
    for program in named:
        real = program.resolve()
        if real not in real_paths and os.access(program, os.X_OK) and program.is_file():
            real_paths.add(real)
            yield program


ARCHIVE = "classes.jsa"
"""The class archive's name among the files of machines of their own."""


class JavaSystem(System):
    """Templates can use `java` (the program), `class_path` (its jars) and `class_archive` (the archive of the classes
    that the version loads at its start). With `-XX:SharedArchiveFile` and the same class path, Java starts in half the
    time. The archive may be missing: Java ignores that.

    `least_java`: the oldest feature release that runs the system; `archived_role`: the role whose start is archived,
    if any.
    """

    least_java = 17
    archived_role: str | None = None

    def __init__(
        self,
        description: Description,
        version: str | None = None,
        *,
        cache: Path = CACHE,
        find: Callable[[int], Java] = find_java,
    ) -> None:
        super().__init__(description, version)
        self._cache = FileCache(cache)
        self._find = find

    @cached_property
    def lock(self) -> Lock:
        """Raises `InputError` when the lock is missing or invalid."""
        return Lock.read(lock_path(self.description.directory, self.version), self.name, self.version)

    @cached_property
    def java(self) -> Java:
        """Raises `InputError` when this machine has no Java that is new enough."""
        return self._find(self.least_java)

    @property
    def files_dir(self) -> str:
        return str(self._cache.directory(self.lock))

    def files(self) -> dict[str, Path]:
        """The jars only: a class archive in the same directory belongs to this machine's Java."""
        return {file.name: Path(self.files_dir) / file.name for file in self.lock.files}

    @property
    def class_path(self) -> tuple[str, ...]:
        """The names of the jars, always in the same order: a class archive is valid for one class path."""
        return tuple(sorted(file.name for file in self.lock.files))

    @property
    def class_archive(self) -> Path:
        """The archive's name contains a digest of Java, jars and options, because it is valid for these only. It is in
        the directory of the jars and is removed when they are fetched again."""
        program = self.java.program.resolve()
        return self._archive("classes", str(program), str(program.stat().st_mtime_ns))

    def make_files(self, root: MachineRoot, on_progress: Callable[[str], None]) -> Mapping[str, Path]:
        """The class archive of the machines' Java, kept in the cache like the archive of this machine's Java."""
        archive = self._archive("image-classes", root.key)
        if self.archived_role is None:
            return {}
        if not archive.exists():
            on_progress(f"archiving the classes of {self.name} {self.version} for the machines' Java, once")
            deployed = Deployed(self, (self.archived_role,), cluster_id="class-archive")
            try:
                with root.open() as path:
                    class_archive.make(
                        deployed, archive, root=class_archive.ProgramRoot(path), files_dir=root.files_dir
                    )
            except (class_archive.ArchiveError, OSError) as error:
                on_progress(f"without a class archive, nodes start slower: {error}")
                return {}
        return {ARCHIVE: archive}

    def _archive(self, kind: str, *java: str) -> Path:
        roles = self.description.roles.values()
        options = [option for role in roles for option in role.command]
        templates = [read_text(self.description.directory / name) for role in roles for name in role.files.values()]
        digest = hashlib.sha256("\0".join([*java, *options, *templates]).encode()).hexdigest()
        return Path(self.files_dir) / f"{kind}-{digest[:16]}.jsa"

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        """Check that jars and Java exist. A class archive is optional: without it nodes start slower."""
        if ":" in self.files_dir:
            raise InputError(
                f"{self.description.title}: its files are in {self.files_dir}, and a class path of Java cannot have a "
                "colon in a name; move the project, or set XDG_CACHE_HOME for an installed package"
            )
        try:
            self._cache.use(self.lock)
            java = self.java
        except InputError as error:
            raise InputError(f"{self.description.title} {self.version}: {error}") from error
        if self.archived_role is None or self.class_archive.exists():
            return
        on_progress(f"archiving the classes of {self.name} {self.version} for Java {java.version}, once")
        deployed = Deployed(self, (self.archived_role,), cluster_id="class-archive")
        try:
            class_archive.make(deployed, self.class_archive)
        except (class_archive.ArchiveError, OSError) as error:
            on_progress(f"without a class archive, nodes start slower: {error}")

    def shown(self) -> tuple[str, ...]:
        return (*super().shown(), *map(str, self.java.directories))

    def variables(self, node: Place, cluster_id: str) -> dict[str, Any]:
        del cluster_id
        class_path = ":".join(f"{node.files_dir}/{name}" for name in self.class_path)
        if not node.is_local:
            return {"java": "java", "class_path": class_path, "class_archive": f"{node.files_dir}/{ARCHIVE}"}
        program = str(self.java.program.resolve())
        return {"java": program, "class_path": class_path, "class_archive": str(self.class_archive)}
