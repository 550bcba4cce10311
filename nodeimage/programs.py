"""Runs other programs so that they end with this process, and reports their output when they fail."""

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodeimage.errors import ImageError

_LAST_LINES = 12
_ADMINISTRATION = ("/usr/local/sbin", "/usr/sbin", "/sbin")
# Separate mount and process namespaces: killing the first process kills all others, and no mount is left behind.
_CONTAINED = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL")
_CONTAINED_PROC = "--mount-proc"


def run(
    command: Sequence[str | Path],
    *,
    contained: bool = False,
    on_line: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> None:
    """Run a program to its end; each line of its output goes to `on_line`, all of them to `log`.

    If `contained`, the program and all its processes end with this process, for any reason. Raises `ImageError` with
    the program's last lines.
    """
    arguments = [*map(str, command)]
    path = search_path()
    if shutil.which(arguments[0], path=path) is None:
        raise ImageError(f"{arguments[0]} is not installed")
    if contained:
        arguments = [*_CONTAINED, _CONTAINED_PROC, *arguments]
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    with (
        open(log or os.devnull, "a", encoding="utf-8") as output,
        subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "LC_ALL": "C.UTF-8", "PATH": path, **(environment or {})},
            # Only this process handles Ctrl-C: it ends the program below, once, and in order.
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.write(line)
                last_lines.append(line.rstrip())
                if on_line is not None:
                    on_line(line.rstrip())
            process.wait()
        except BaseException:
            process.kill()
            # The pipe is closed when the last of the program's processes ends.
            process.stdout.read()
            raise
    if process.returncode:
        message = "\n  ".join(last_lines) or "(it said nothing)"
        raise ImageError(f"{Path(str(command[0])).name} failed (exit {process.returncode}):\n  {message}")


def search_path() -> str:
    """PATH with the directories of administration programs, which some users' PATH lacks."""
    directories = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    return ":".join(dict.fromkeys([*directories, *_ADMINISTRATION]))
