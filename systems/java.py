"""Finds Java on this machine: JAVA_HOME, PATH, and the directories where systems install it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from systems.errors import InputError

# Where Debian, Fedora, SDK archives and macOS install Java; each directory contains bin/java.
USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S = 30.0


@dataclass(frozen=True)
class Java:
    """A Java that runs; `version` is its feature release: 8, 11, 17."""

    program: Path
    version: int

    @property
    def home(self) -> Path:
        """The directory of this Java without symbolic links: `<home>/bin/java`."""
        return self.program.resolve().parents[1]

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that it needs to run: its home, and the configuration that the home links to (Debian keeps
        it in /etc)."""
        etc = Path("/etc")
        targets = {link.resolve() for link in self.home.rglob("*") if link.is_symlink() and link.exists()}
        linked = {each if each.is_dir() else each.parent for each in targets}
        configuration = {each for each in linked if etc in each.parents}  # not /etc itself: nodes have their own
        outermost = (each for each in configuration if not configuration.intersection(each.parents))
        return self.home, *sorted(outermost)


def find_java(
    at_least: int, environment: Mapping[str, str] | None = None, usual_homes: Sequence[str] = USUAL_HOMES
) -> Java:
    """The first Java in JAVA_HOME, PATH and the usual directories that has at least this version.

    Raises `InputError` with the Javas that were found and the remedy."""
    too_old: list[str] = []
    for program in _candidates(os.environ if environment is None else environment, usual_homes):
        version = java_version(program)
        if version is None:
            too_old.append(f"{program} (does not say its version)")
        elif version < at_least:
            too_old.append(f"{program} (Java {version})")
        else:
            return Java(program, version)
    found = f"only {', '.join(too_old)}" if too_old else "none in JAVA_HOME, PATH and the usual directories"
    raise InputError(
        f"Java {at_least} or later is needed, but there is {found}; install one, on Debian for example with "
        "./brownout install-packages default-jre-headless, or set JAVA_HOME to its directory"
    )


def java_version(program: Path) -> int | None:
    """The feature release; None when the program is not a working Java."""
    try:
        done = subprocess.run(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def _candidates(environment: Mapping[str, str], usual_homes: Sequence[str]) -> Iterator[Path]:
    """Programs called java, each file once, under the first path at which it is found."""
    homes = [environment["JAVA_HOME"]] if environment.get("JAVA_HOME") else []
    named = [Path(home) / "bin" / "java" for home in homes]
    named += [Path(each) / "java" for each in environment.get("PATH", "").split(":") if each.startswith("/")]
    for pattern in usual_homes:
        named += sorted(Path("/").glob(pattern.lstrip("/") + "/bin/java"), reverse=True)
    seen: set[Path] = set()
    for program in named:
        real = program.resolve()
        if real not in seen and os.access(program, os.X_OK) and program.is_file():
            seen.add(real)
            yield program
