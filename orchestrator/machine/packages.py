"""Finds programs of the machine, or installs their system packages with the script `installation/system-packages`."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from installation.commands import command_anywhere
from installation.files import PROJECT_ROOT, cache_directory
from installation.programs import run_program
from orchestrator.errors import UsageError
from orchestrator.machine.programs import find_program

SCRIPT = PROJECT_ROOT / "installation" / "system-packages"
# Called through bash, because not every installer keeps the executable bit.
_RUN_SCRIPT = ("bash", str(SCRIPT))
_ADVICE = (
    "on systems other than Debian and its derivatives: install the same software with the system's package manager"
)


def missing(programs: Mapping[str, str]) -> list[str]:
    """The distinct packages whose program is missing. `programs`: a program's name, or the absolute path of a file for
    a package without a program, to its Debian package."""
    return list(dict.fromkeys(package for program, package in programs.items() if not _is_there(program)))


def ensure(programs: Mapping[str, str], purpose: str) -> None:
    """Install missing packages. Needs a network: call it before a sandbox is entered.

    Raises `UsageError`, with the command to run by hand, if this process cannot install packages. `purpose` is the
    start of its message, such as "building the nodes' image"."""
    packages = missing(programs)
    if not packages:
        return
    by_hand = f"run: sudo {command_anywhere('install-packages', *packages)}\n({_ADVICE})"
    needs = f"{purpose} needs packages that are not installed: {', '.join(packages)}"
    if os.environ.get("BROWNOUT_SETUP") == "skip" or os.geteuid() != 0:
        raise UsageError(f"{needs}; {by_hand}")
    if install(packages):
        raise UsageError(f"{needs}, and could not be installed (see above, and {cache_directory()}/apt.log); {by_hand}")
    still = missing(programs)
    if still:
        raise UsageError(f"{needs}; they were installed, but do not contain {', '.join(still)}")


def install(packages: Sequence[str]) -> int:
    """Install Debian packages, with output on the terminal. Returns 0, 64 if this is not possible here, or 70.

    On Ctrl-C it waits until apt-get has ended. Raises `UsageError` when the script cannot be run."""
    settings = {"BROWNOUT_CACHE": str(cache_directory()), "BROWNOUT_COMMAND": command_anywhere()}
    try:
        process = subprocess.Popen(
            [*_RUN_SCRIPT, "install", *packages], stdin=subprocess.DEVNULL, env={**os.environ, **settings}
        )
    except OSError as error:
        raise UsageError(f"{_RUN_SCRIPT[0]} cannot be run: {error.strerror}; install it") from error
    with process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def missing_for_campaigns() -> list[str]:
    """The missing Debian packages of those that campaigns in the namespaces world need; empty without bash."""
    try:
        done = run_program([*_RUN_SCRIPT, "missing"], check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.split()


def how_to_install(packages: Sequence[str]) -> str:
    """One line: how to install missing packages on this machine."""
    if find_program("apt-get") is not None:
        return f"install them: {'' if os.geteuid() == 0 else 'sudo '}apt-get install {' '.join(packages)}"
    return "install the same software with this system's package manager"


def _is_there(program: str) -> bool:
    return Path(program).exists() if "/" in program else find_program(program) is not None
