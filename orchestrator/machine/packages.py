"""Programs of the machine that come in system packages: found, or installed through the project's front door."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.machine.programs import PROJECT_ROOT, find_program

FRONT_DOOR = PROJECT_ROOT / "brownout"
_ADVICE = "on other systems than Debian and its kin: what these packages hold, by the system's own package manager"


def missing(programs: Mapping[str, str]) -> list[str]:
    """The packages whose program is not there, each once. `programs`: a program's name, or a file's absolute path
    where a package has no program of its own, to the Debian package that it comes in."""
    return list(dict.fromkeys(package for program, package in programs.items() if not _is_there(program)))


def ensure(programs: Mapping[str, str], purpose: str) -> None:
    """Install what is missing. Needs a network: call it before a sandbox is entered.

    Raises `UsageError`, with the command to run by hand, where this process may not or cannot install packages;
    `purpose` begins its message, such as "building the nodes' image"."""
    packages = missing(programs)
    if not packages:
        return
    command = [str(FRONT_DOOR), "install-packages", *packages]
    by_hand = f"run: sudo {shlex.join(command)}\n({_ADVICE})"
    needs = f"{purpose} needs packages that are not installed: {', '.join(packages)}"
    if os.environ.get("BROWNOUT_SETUP") == "skip" or os.geteuid() != 0:
        raise UsageError(f"{needs}; {by_hand}")
    try:
        code = _run(command)
    except OSError as error:
        raise UsageError(f"{needs}, and {FRONT_DOOR} cannot be run: {error.strerror}") from error
    if code:
        raise UsageError(f"{needs}, and could not be installed (see above, and .cache/apt.log); {by_hand}")
    still = missing(programs)
    if still:
        raise UsageError(f"{needs}; they were installed, but do not bring what was expected of {', '.join(still)}")


def _run(command: list[str]) -> int:
    """Its exit code; what it says goes where we say things. On Ctrl-C it ends by itself, and is waited for."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def _is_there(program: str) -> bool:
    return Path(program).exists() if "/" in program else find_program(program) is not None
