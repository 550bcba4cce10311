"""Finds and removes what killed commands leave behind: everything that does not end with their processes."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from installation.files import PROJECT_ROOT, SPARK_FILES
from nodeimage.image import UNFINISHED, images_directory
from orchestrator.machine import cgroups
from orchestrator.nodes.state import KeptNodes
from orchestrator.store.directories import LABS

# A younger directory may be one that its maker is about to use.
_LEAST_AGE_S = 5.0
# How long a process may be in the middle of an exec on a busy machine.
_EXEC_S = 0.25
_POLL_S = 0.002


def remove_leftovers(store: Path, project: Path = PROJECT_ROOT) -> list[str]:
    """Remove everything that no living process needs; returns descriptions for the user. Used files are kept."""
    removed = [f"control group {name}" for name in cgroups.reap_leftovers()]
    removed += _kept_nodes()
    for path in _unfinished_images(images_directory(project)):
        shutil.rmtree(path, ignore_errors=True)
        removed.append(str(path))
    return [*removed, *_remove_unused(store / LABS), *_remove_unused(Path(tempfile.gettempdir()), SPARK_FILES)]


def remove_labs(store: Path) -> list[str]:
    """Remove the directories of killed runs' labs, the urgent part of `remove_leftovers`; returns descriptions."""
    return _remove_unused(store / LABS)


def _remove_unused(parent: Path, prefix: str = "") -> list[str]:
    unused = [path for path in _directories(parent) if path.name.startswith(prefix) and not _in_use(path)]
    for path in unused:
        shutil.rmtree(path, ignore_errors=True)
    return list(map(str, unused))


def _kept_nodes() -> list[str]:
    kept_nodes = KeptNodes()
    if not kept_nodes.is_held():
        kept_nodes.clear()
    return ["nodes whose process was killed"] if kept_nodes.removed else []


def _directories(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def _unfinished_images(directory: Path) -> list[Path]:
    """Unfinished builds, when no build is running: they were killed."""
    unfinished = [path for path in _directories(directory) if path.name.startswith(UNFINISHED)]
    if not unfinished:
        return []
    with contextlib.suppress(OSError), (directory / "lock").open("a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return unfinished
    return []


def _in_use(directory: Path) -> bool:
    """Whether a process holds its lock, works in it, has a file in it open, or was started with a path in it. True of a
    directory that is another user's or no longer there."""
    try:
        if time.time() - directory.stat().st_mtime < _LEAST_AGE_S:
            return True
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return any(os.fsencode(directory) in mention for mention in _mentions())


def _mentions() -> Iterator[bytes]:
    """Every path that a process of this machine uses, and every command line."""
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            yield _command_line(process)
        for link in [process / "cwd", *_links(process / "fd")]:
            with contextlib.suppress(OSError):
                yield os.fsencode(os.readlink(link))


def _command_line(process: Path) -> bytes:
    """A process's arguments; empty for kernel threads and zombies, which have no program either. Raises `OSError`.

    They are also empty in the middle of an exec, between the old program's arguments and the new one's. Therefore a
    process that has a program is queried again before its arguments count as empty."""
    give_up = time.monotonic() + _EXEC_S
    while not (line := (process / "cmdline").read_bytes()):
        os.readlink(process / "exe")
        if time.monotonic() > give_up:
            break
        time.sleep(_POLL_S)
    return line


def _links(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # the process has ended, or is another user's
        return []
