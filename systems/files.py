"""The files of a version on this machine: fetched once, checked by their hashes, kept in a cache.

    <cache>/<system>/<version>/          every file of the lock, whole, and each file's hash and time (`_STAMP`)
    <cache>/<system>/by-hand/            where users put files on a machine without a network
    <cache>/<system>/.draft-<version>    a fetch in progress; renamed when every file has its hash

Invariant: a version's directory either holds all files of a lock, each with its hash, or does not exist. Later damage
(a failing disk, a changed lock) is detected when the directory is used.
"""

import errno
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import systems.maven as maven
from history.regular_files import read_text, sha256_of
from installation.counted import counted
from installation.files import cache_directory
from installation.programs import one_at_a_time
from systems.errors import InputError
from systems.lock_file import Lock, LockedFile

Progress = Callable[[str], None]

CACHE = cache_directory() / "systems"

_STAMP = "verified.json"
_SCRATCH = ".maven"


class FileCache:
    """The files of all versions, under `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, lock: Lock) -> Path:
        """Where the files of a version are once they have been fetched."""
        return self._root / lock.system / lock.version

    def by_hand(self, lock: Lock) -> Path:
        """Where users may put files; `fetch` takes them from there."""
        return self._root / lock.system / "by-hand"

    def use(self, lock: Lock) -> Path:
        """The directory with all files of a version. Raises `InputError` when a file is missing or does not match the
        lock. A file whose size and time have not changed since it was hashed is not hashed again."""
        directory = self.directory(lock)
        remedy = f"run: brownout system fetch {lock.system} {lock.version}"
        if not directory.is_dir():
            raise InputError(f"the files of {lock.system} {lock.version} are not on this machine; {remedy}")
        if trouble := _trouble(directory, lock):
            raise InputError(f"{trouble}; {remedy}")
        return directory

    def is_fetched(self, lock: Lock) -> bool:
        """Whether `use` would return the directory."""
        directory = self.directory(lock)
        return directory.is_dir() and not _trouble(directory, lock)

    def fetch(self, lock: Lock, on_progress: Progress, get_maven: Callable[[], None]) -> Path:
        """The directory with all files of a version, fetched unless it exists.

        Files in `by_hand` are taken from there. For the others, `get_maven` is called (it makes sure that Maven is
        installed), then Maven. Concurrent fetches wait for each other; a failed or interrupted fetch keeps no file.
        Raises `InputError` for a file that does not match the lock, and when Maven cannot fetch a file."""
        home = self.directory(lock).parent
        try:
            self.by_hand(lock).mkdir(parents=True, exist_ok=True)
            with one_at_a_time(home / ".lock", lambda: on_progress("another fetch is under way; waiting for it")):
                for leftover in home.glob(".draft-*"):
                    shutil.rmtree(leftover)
                if not self.is_fetched(lock):
                    self._fetch(lock, home / f".draft-{lock.version}", on_progress, get_maven)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise InputError(f"{error.filename or home}: {error.strerror}; fetched files are kept there") from error
        return self.directory(lock)

    def _fetch(self, lock: Lock, draft: Path, on_progress: Progress, get_maven: Callable[[], None]) -> None:
        draft.mkdir()
        try:
            missing_files = [file for file in lock.files if not self._take_held(lock, file, draft)]
            if missing_files:
                self._download(lock, missing_files, draft, on_progress, get_maven)
            on_progress(f"hashes of the lock match: {counted(len(lock.files), 'file')}")
            _write_stamp(draft, lock)
            _replace(draft, self.directory(lock))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _take_held(self, lock: Lock, file: LockedFile, draft: Path) -> bool:
        """Copy a file that is on this machine: from an earlier fetch with damaged files, or from `by_hand`."""
        earlier = self.directory(lock) / file.name
        if earlier.is_file() and sha256_of(earlier) == file.sha256:
            shutil.copyfile(earlier, draft / file.name)
            return True
        put = self.by_hand(lock) / file.name
        if not put.is_file():
            return False
        _check(put, file, "replace it with the right file, or remove it so that Maven fetches it")
        shutil.copyfile(put, draft / file.name)
        return True

    def _download(
        self,
        lock: Lock,
        missing_files: Sequence[LockedFile],
        draft: Path,
        on_progress: Progress,
        get_maven: Callable[[], None],
    ) -> None:
        try:
            get_maven()
            size = sum(file.size for file in missing_files)
            on_progress(f"asking Maven for {counted(len(missing_files), 'file')}, {size / 1e6:.0f} MB")
            paths = maven.download([file.coordinate for file in missing_files], draft / _SCRATCH, on_progress)
        except (maven.MavenError, InputError) as error:
            raise InputError(self._how_by_hand(lock, missing_files, str(error))) from error
        for file in missing_files:
            cache = f"~/.m2/repository/{file.coordinate.group.replace('.', '/')}/{file.coordinate.artifact}"
            _check(
                paths[file.coordinate],
                file,
                f"remove {cache} (Maven's cache; its settings may name another directory) and fetch again; if the "
                "error remains, do not use the file: Maven's repository has another file than the one that was locked",
            )
            paths[file.coordinate].rename(draft / file.name)
        shutil.rmtree(draft / _SCRATCH)

    def _how_by_hand(self, lock: Lock, missing_files: Sequence[LockedFile], reason: str) -> str:
        listed = "\n".join(f"  {file.name}  {file.coordinate}  sha256 {file.sha256}" for file in missing_files)
        return (
            f"Maven could not bring the files of {lock.system} {lock.version}: {reason}\n"
            "With a network, run the same command again. Without one, put these files into\n"
            f"  {self.by_hand(lock)}\nand run it again; they are checked by their hashes:\n{listed}"
        )


def _trouble(directory: Path, lock: Lock) -> str:
    """What is wrong with the first file that does not match the lock; empty if all files match."""
    stamp = _read_stamp(directory)
    for file in lock.files:
        path = directory / file.name
        try:
            status = path.stat()
        except OSError:
            return f"{path}: is missing"
        if status.st_size != file.size:
            return f"{path}: has {status.st_size} bytes instead of {file.size}"
        if stamp.get(file.name) != [file.sha256, status.st_mtime_ns] and (digest := sha256_of(path)) != file.sha256:
            return f"{path}: has the SHA-256 hash {digest} instead of {file.sha256}"
    return ""


def _check(path: Path, file: LockedFile, remedy: str) -> None:
    """Raises `InputError` when a file does not match the lock."""
    digest = sha256_of(path)
    if digest != file.sha256 or path.stat().st_size != file.size:
        raise InputError(
            f"{path}: is not the {file.name} of the lock: its SHA-256 hash is {digest} ({path.stat().st_size} bytes),"
            f" wanted {file.sha256} ({file.size} bytes); {remedy}"
        )


def _write_stamp(directory: Path, lock: Lock) -> None:
    """Write each file's hash and its modification time (nanoseconds)."""
    stamp = {file.name: [file.sha256, (directory / file.name).stat().st_mtime_ns] for file in lock.files}
    (directory / _STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")


def _read_stamp(directory: Path) -> dict[str, Any]:
    """Empty when the stamp is missing or unreadable: then every file is hashed."""
    try:
        content = json.loads(read_text(directory / _STAMP))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _replace(draft: Path, place: Path) -> None:
    if place.exists():
        old = place.with_name(f".draft-old-{place.name}")
        place.rename(old)
        draft.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    else:
        draft.rename(place)
