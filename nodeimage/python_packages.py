"""The broker's third-party packages as an archive, for any supported Python version and machine."""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nodeimage.archives as archives
from installation.files import cache_directory
from nodeimage.errors import ImageError
from nodeimage.programs import run

# The broker's imports beyond the standard library; their dependencies are added.
DEPENDENCIES = ("cramjam", "crc32c", "msgspec", "uvloop")
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
# Wheels for glibc 2.17 (manylinux2014) to 2.36 (bookworm) run on the nodes.
_GLIBC_MINORS = range(36, 16, -1)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==")
_VIA = re.compile(r"^\s+#(?: via)?\s+(?!via$)([A-Za-z0-9._-]+)$")


@dataclass(frozen=True)
class PythonPackages:
    """`archive`: a .tar.gz to unpack into a directory of PYTHONPATH; `key` changes with the pins it is made from."""

    key: str
    archive: Path


def pinned(lock: str, packages: tuple[str, ...] = DEPENDENCIES) -> str:
    """The part of a requirements.lock that pins these packages and their dependencies, with hashes, without comments.

    Raises `ImageError` when a package is not pinned."""
    blocks: dict[str, list[str]] = {}
    needed_by: dict[str, set[str]] = {}
    name = ""
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            name = pin[1]
            blocks[name], needed_by[name] = [], set()
        if not name or not line.strip():
            continue
        if not line.lstrip().startswith("#"):
            blocks[name].append(line.rstrip())
        elif via := _VIA.match(line):
            needed_by[name].add(via[1])
    missing = sorted(set(packages) - set(blocks))
    if missing:
        raise ImageError(f"requirements.lock does not pin {', '.join(missing)}; make it again (docs/development.md)")
    chosen = set(packages)
    while additions := {name for name, users in needed_by.items() if users & chosen} - chosen:
        chosen |= additions
    return "".join("\n".join(blocks[name]) + "\n" for name in sorted(chosen))


def site_key(project: Path, python: str = "3.11", machine: str = "x86_64") -> str:
    """The key of the archive that `site_archive` would return. Raises `ImageError`."""
    return _key(_requirements(project), python, machine)


def site_archive(
    project: Path,
    python: str = "3.11",
    machine: str = "x86_64",
    on_progress: Callable[[str], None] = lambda _: None,
) -> PythonPackages:
    """The archive of the broker's pinned dependencies, made by pip unless the cache has it under its key.

    pip checks every file against the hashes of requirements.lock. Raises `ImageError`."""
    if python not in PYTHONS or machine not in MACHINES:
        raise ImageError(
            f"the broker's packages exist for Python {', '.join(PYTHONS)} on {', '.join(MACHINES)}, "
            f"not for Python {python} on {machine}"
        )
    requirements = _requirements(project)
    key = _key(requirements, python, machine)
    archive = cache_directory(project) / "sites" / f"{key}.tar.gz"
    if archive.exists():
        return PythonPackages(key, archive)
    on_progress(f"fetching the broker's packages for Python {python} on {machine}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".site-", dir=archive.parent))
    try:
        _install(requirements, python, machine, scratch)
        site = scratch / "site"
        shutil.rmtree(site / "bin", ignore_errors=True)
        archives.write({str(path.relative_to(site)): path for path in site.rglob("*") if path.is_file()}, archive)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return PythonPackages(key, archive)


def _requirements(project: Path) -> str:
    path = project / "requirements.lock"
    try:
        return pinned(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from error


def _key(requirements: str, python: str, machine: str) -> str:
    return archives.content_key({}, salt=f"site 1\0{python}\0{machine}\0{requirements}")


def _install(requirements: str, python: str, machine: str, scratch: Path) -> None:
    requirements_file = scratch / "requirements.txt"
    requirements_file.write_text(requirements, encoding="utf-8")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-compile"]
    command += ["--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform={platform}" for platform in platforms]
    command += [f"--target={scratch / 'site'}", "-r", str(requirements_file)]
    try:
        run(command, environment={"PYTHONPATH": ""})
    except ImageError as error:
        raise ImageError(
            f"the broker's packages for Python {python} on {machine} could not be fetched: {error}\n"
            "check the network (and pip's configuration), then run the same command again"
        ) from None
