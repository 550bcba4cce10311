"""Makes the root filesystem from Debian's packages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

import nodeimage.recipe as recipe
from nodeimage.errors import ImageError
from nodeimage.programs import run

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_INDEX_FIELDS = "$(REPO_URI) $(CODENAME) $(ORIGIN) $(COMPONENT)"
# Lines of mmdebstrap's output, and the progress messages for them.
_PHASES = (
    (re.compile(r"^I: running apt-get update"), "reading Debian's package lists"),
    (re.compile(r"^I: downloading packages with apt"), "downloading the base system"),
    (re.compile(r"^I: installing essential packages"), "installing the base system"),
    (re.compile(r"^I: (downloading|installing) remaining packages"), "installing the kernel, systemd, sshd and Python"),
    (re.compile(r"^I: cleaning"), "cleaning the package lists"),
)
_NETWORK_TROUBLE = re.compile(
    r"Could not resolve|Temporary failure|Unable to connect|Could not connect|Connection (refused|timed out|failed)"
    r"|Network is unreachable|Failed to fetch|Could not handshake"
)
_SPACE_TROUBLE = re.compile(r"No space left on device|Disk quota exceeded")


def install(rootfs: Path, log: Path, on_progress: Callable[[str], None], options: Collection[str] = ()) -> None:
    """Install the recipe's packages, and those of its options, into the new directory `rootfs`.

    Raises `ImageError`."""
    packages = [*recipe.PACKAGES, *(package for option in sorted(options) for package in recipe.OPTIONS[option])]
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--architectures={recipe.DEBIAN_ARCHITECTURE}",
        f"--include={','.join(packages)}",
        '--aptopt=Apt::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        "--dpkgopt=force-unsafe-io",
        # Java's installation puts links into this directory, and fails without it; dpkg unpacks nothing into it.
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--dpkgopt=path-exclude={path}" for path in recipe.EXCLUDED_PATHS),
        *([f"--keyring={_KEYRING}"] if _KEYRING.exists() else []),
        recipe.SUITE,
        str(rootfs),
        *package_sources(),
    ]
    reported: set[str] = set()

    def tell(line: str) -> None:
        for pattern, phase in _PHASES:
            if pattern.search(line) and phase not in reported:
                reported.add(phase)
                on_progress(phase)

    # INITRD: the kernel package must not make an initrd; ours has a hundredth of the size.
    try:
        run(command, contained=True, on_line=tell, environment={"INITRD": "No"}, log=log)
    except ImageError as error:
        raise ImageError(f"{error}\n{_advice(str(error))} (whole log: {log})") from None


def package_sources() -> list[str]:
    """The sources.list lines from which this machine gets the suite's packages; empty: mmdebstrap's default.

    A Debian of the same suite has the nearest mirror configured, or the only one that it can reach."""
    suites = (recipe.SUITE, f"{recipe.SUITE}-updates", f"{recipe.SUITE}-security")
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", _INDEX_FIELDS, "Created-By: Packages"],
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=True,
            stdin=subprocess.DEVNULL,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    sources: dict[str, None] = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[1] in suites and fields[2:] == ["Debian", "main"]:
            sources[f"deb {fields[0]} {fields[1]} main"] = None
    return list(sources) if any(f" {recipe.SUITE} " in source for source in sources) else []


def _advice(output: str) -> str:
    if _SPACE_TROUBLE.search(output):
        return "the disk is full: free 2 GB, then run the same command again"
    if _NETWORK_TROUBLE.search(output):
        return "Debian's mirror cannot be reached: check the network (and apt's proxy), then run the same command again"
    if "Operation not permitted" in output or "Permission denied" in output:
        return "this machine does not let root mount filesystems (a container without CAP_SYS_ADMIN?)"
    return "run the same command again; if it fails the same way, try `apt-get update` first"
