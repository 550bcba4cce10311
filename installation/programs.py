"""Runs other programs to their end, and makes several instances of this one wait for each other."""

import fcntl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def run_program(argv: Sequence[str | Path], *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that needs no terminal. Its outputs are text, in which bytes that are not UTF-8 are escaped; its
    input is empty without `input`. `options`: others of `subprocess.run`, whose errors are raised."""
    if options.get("input") is None:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(
        argv, capture_output=True, encoding="utf-8", errors="backslashreplace", check=check, **options
    )


@contextmanager
def one_at_a_time(lock: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a file lock; the kernel releases it when the process ends for any reason. `on_wait`: called before a wait
    for another process."""
    with open(lock, "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
