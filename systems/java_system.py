"""Systems that consist of the jars of a locked version and run on Java; local nodes use this machine's Java.

An archive of the classes that a Java program loads is made by running the program once (`-XX:ArchiveClassesAtExit`). It
is valid for one Java and for jars at one path. For other machines their own Java makes it, in a directory that has the
machine's files (`root`).
"""

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from history.regular_files import read_text
from installation.programs import run_program
from systems.catalog import lock_path
from systems.description import Description
from systems.errors import InputError
from systems.files import CACHE, FileCache
from systems.local_ports import LocalPorts
from systems.lock_file import Lock
from systems.node_requirements import MachineRoot
from systems.service import Deployment, Place, Service
from systems.system import Deployed, System

# ---- Archives of classes.

USED = "-XX:SharedArchiveFile="
_MADE = "-XX:ArchiveClassesAtExit="
_ADDRESS = "127.0.0.1"
_LOOK_S = 0.05
_LONGEST_S = 300
_LAST_WORDS = 300


class ArchiveError(Exception):
    """No archive was made; the message says why."""


@dataclass(frozen=True)
class ProgramRoot:
    """Where programs run: on this machine's filesystem, or (as root) with chroot in a directory."""

    path: Path = Path("/")

    @property
    def is_own(self) -> bool:
        return self.path == Path("/")

    def seen(self, path: str) -> str:
        """The path by which programs inside the root know a file of this machine."""
        return path if self.is_own else f"/{Path(path).relative_to(self.path)}"

    def own(self, path: str) -> Path:
        """The path on this machine of a file that programs inside the root know by `path`."""
        return Path(path) if self.is_own else self.path / path.lstrip("/")

    def command(self, words: Sequence[str]) -> list[str]:
        return list(words) if self.is_own else ["chroot", str(self.path), *words]


def make_class_archive(
    deployment: Deployment, archive: Path, *, root: ProgramRoot = ProgramRoot(), files_dir: str = ""
) -> None:
    """Start a deployment of one node, wait until its port is open, stop it, and move its classes to `archive`.

    The archive appears whole or not at all. `files_dir`: the directory of the version's files in a `root` that is not
    this machine's own. Raises `ArchiveError`, and `OSError` where nothing can be written."""
    draft = archive.with_name(f".draft-{os.getpid()}-{archive.name}")
    with (
        tempfile.TemporaryDirectory(
            prefix="brownout-classes-", dir=None if root.is_own else root.own("/tmp")
        ) as scratch,
        LocalPorts(str(archive)) as ports,
    ):
        inside = root.seen(scratch)
        node = Place(
            name="n1",
            id=1,
            address=_ADDRESS,
            ports={name: ports.take() for name in deployment.ports(1)},
            data_dir=f"{inside}/data",
            etc_dir=f"{inside}/etc",
            var_dir=f"{inside}/var",
            files_dir=files_dir or deployment.files_dir,
            python_path="",
            is_local=root.is_own,
        )
        for directory in (node.data_dir, node.etc_dir, node.var_dir):
            root.own(directory).mkdir()
        service = deployment.service(node, [node])
        try:
            _write(service, root)
            _prepare(service, root)
            written = f"{inside}/classes"
            _run(service, root, written, (node.address, next(iter(node.ports.values()))), Path(scratch) / "log")
            shutil.copyfile(root.own(written), draft)
            kind = archive.name.partition("classes-")[0]
            for earlier in archive.parent.glob(f"{kind}classes-*.jsa"):
                earlier.unlink()  # made by another Java, or with other options
            draft.rename(archive)
        finally:
            draft.unlink(missing_ok=True)


def _write(service: Service, root: ProgramRoot) -> None:
    for path, text in service.files.items():
        root.own(path).parent.mkdir(parents=True, exist_ok=True)
        root.own(path).write_text(text, encoding="utf-8")


def _prepare(service: Service, root: ProgramRoot) -> None:
    for command in service.prepare:
        try:
            done = run_program(
                root.command(command), env={**os.environ, **service.environment}, timeout=service.prepare_deadline_s
            )
        except subprocess.TimeoutExpired as error:
            raise ArchiveError(f"{shlex.join(command)} took longer than {error.timeout:g} s") from error
        if done.returncode:
            raise ArchiveError(f"{shlex.join(command)} failed: {(done.stderr or done.stdout).strip()[-_LAST_WORDS:]}")


def _run(service: Service, root: ProgramRoot, archive: str, address: tuple[str, int], log: Path) -> None:
    command = [_MADE + archive if part.startswith(USED) else part for part in service.command]
    # Its own process group: after Ctrl-C this process stops it; if this process is killed, `timeout` stops it.
    command = ["timeout", f"--kill-after={_LONGEST_S}", str(_LONGEST_S), *root.command(command)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **service.environment},
            process_group=0,
        ) as process,
    ):
        try:
            _await_port(process, address, time.monotonic() + service.start_deadline_s, log)
            process.send_signal(signal.SIGTERM)
            process.wait(service.stop_deadline_s + service.start_deadline_s)  # Java writes the archive as it exits
        except subprocess.TimeoutExpired as error:
            raise ArchiveError(f"the program did not end within {error.timeout:g} s; {_last_words(log)}") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not root.own(archive).is_file():
        raise ArchiveError(f"the program ended without an archive; {_last_words(log)}")


def _await_port(process: subprocess.Popen[bytes], address: tuple[str, int], give_up: float, log: Path) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0):
            return
        if process.poll() is not None:
            raise ArchiveError(f"the program ended with exit code {process.returncode}; {_last_words(log)}")
        if time.monotonic() > give_up:
            raise ArchiveError(f"port {address[1]} of the program did not open; {_last_words(log)}")
        time.sleep(_LOOK_S)


def _last_words(log: Path) -> str:
    output = log.read_text(encoding="utf-8", errors="replace").strip()
    return f"its last output: {output[-_LAST_WORDS:] or 'empty'}"


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
        done = run_program([program, "-version"], timeout=_ANSWER_S)
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
                    make_class_archive(deployed, archive, root=ProgramRoot(path), files_dir=root.files_dir)
            except (ArchiveError, OSError) as error:
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
            make_class_archive(deployed, self.class_archive)
        except (ArchiveError, OSError) as error:
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
