"""A temporary directory for runs that are not kept."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.machine.locks import RunLock
from orchestrator.store.directories import LABS, Store


@contextlib.contextmanager
def scratch(store: Store) -> Iterator[Path]:
    """A directory that is removed at the end. If this process is killed, the next run in that store removes it, as it
    does with labs: until then it is locked. Raises `UsageError` when it cannot be made."""
    directory = store.root / LABS / store.new_stamp()
    lock = RunLock(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be made: {error.strerror}; runs are made there: use a writable store"
        ) from error
    lock.take()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock.release()
        for parent in (directory.parent, store.root):
            with contextlib.suppress(OSError):  # the directory may contain something else
                parent.rmdir()
