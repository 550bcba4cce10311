"""Makes archives of the classes that a Java program loads (`-XX:ArchiveClassesAtExit`) by running the program once.

An archive is valid for one Java and for jars at one path. For other machines their own Java makes it, in a directory
that holds the machine's files (`root`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from systems.local_ports import LocalPorts
from systems.service import Deployment, Service

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


@dataclass(frozen=True)
class Alone:
    """The only node of a cluster on this machine's loopback, a `systems.Place`."""

    ports: Mapping[str, int]
    data_dir: str
    etc_dir: str
    var_dir: str
    files_dir: str
    name: str = "n1"
    id: int = 1
    address: str = _ADDRESS
    shared_dir: str = ""
    python: str = sys.executable
    python_path: str = ""
    is_local: bool = True


def make(deployment: Deployment, archive: Path, *, root: ProgramRoot = ProgramRoot(), files_dir: str = "") -> None:
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
        node = Alone(
            ports={name: ports.take() for name in deployment.ports(1)},
            data_dir=f"{inside}/data",
            etc_dir=f"{inside}/etc",
            var_dir=f"{inside}/var",
            files_dir=files_dir or deployment.files_dir,
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
            done = subprocess.run(
                root.command(command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, **service.environment},
                timeout=service.prepare_deadline_s,
                check=False,
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
