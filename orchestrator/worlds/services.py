"""Whether a service listens, and the end of its log."""

import contextlib
import socket
from pathlib import Path

LAST_WORDS_BYTES = 2_000


def accepts(address: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether a process listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=timeout_s):
        return True
    return False


def end_of_log(path: Path) -> str:
    """The last lines of a file; with the path, the reason if the file is empty or unreadable."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - LAST_WORDS_BYTES))
            return log.read().decode(errors="replace").strip() or f"none ({path} is empty)"
    except OSError as error:
        return f"none ({path}: {error.strerror})"
