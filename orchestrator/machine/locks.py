"""A lock that admits one run per directory."""

import fcntl
import os
from pathlib import Path

from orchestrator.errors import WorldError


class RunLock:
    """A lock on a run's directory; the kernel releases it when the process ends, for any reason."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def take(self) -> None:
        """Create the directory if missing, and lock it. Raises `WorldError` when another run holds it."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise WorldError(f"{self._directory} cannot be used: {error.strerror}; give another directory") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise WorldError(
                f"{self._directory} is in use by another run; wait for it or give another directory"
            ) from None
        self._descriptor = descriptor

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def release(self) -> None:
        """Release; no error if it is not held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
