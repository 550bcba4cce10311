"""Determines the versions that a run is made with."""

import hashlib
import os
import platform
import subprocess
import tomllib
from importlib import metadata

from installation.files import PROJECT_ROOT, build_record, is_installed
from installation.programs import run_program

CHANGES = "+changes"
UNKNOWN = "unknown"
"""For a tree or a package outside of git: two of them may differ in any way."""
_LIBRARIES = ("confluent-kafka", "pyspark", "pyarrow", "uvloop")


def versions() -> dict[str, str]:
    """By name: Brownout's commit (with `+changes` when the tree differs from it, or has modules that are not in it),
    the interpreter, the kernel, the libraries."""
    versions_of = {
        "brownout": commit(),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    for name in _LIBRARIES:
        try:
            versions_of[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions_of[name] = "missing"
    return versions_of


def release() -> str:
    """The version, as declared in pyproject.toml."""
    if is_installed():
        return str(build_record()["version"])
    declared = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(declared["project"]["version"])


def commit() -> str:
    """The commit of the checkout, or of the tree that the package was built from; `unknown` outside of git."""
    if is_installed():  # it may be inside another git repository
        return build_record()["commit"] or UNKNOWN
    head = _git("rev-parse", "--short=12", "HEAD")
    changed, strange = _git("status", "--porcelain", "--untracked-files=no"), _strange_modules()
    if head is None or changed is None or strange is None:
        return UNKNOWN
    return head + (CHANGES if changed or strange else "")


def code() -> str:
    """As `commit`, followed by a digest of the changes: equal texts mean equal trees. A package that was built from a
    changed tree has no digest: its changes are unknown."""
    version = commit()
    if is_installed() or not version.endswith(CHANGES):
        return version
    changes, strange = _git("diff", "--binary", "--no-ext-diff", "HEAD"), _strange_modules()
    if changes is None or strange is None:
        return version
    digest = hashlib.sha256(changes.encode())
    for name in sorted(strange):
        digest.update(name.encode() + b"\0" + (PROJECT_ROOT / name).read_bytes() + b"\0")
    return f"{version}-{digest.hexdigest()[:12]}"


def _strange_modules() -> list[str] | None:
    """Untracked modules in the project's rooms, which Python would import. Ignored files, and files in other
    directories beside the rooms, are not listed. None if git cannot list them."""
    rooms = _git("ls-tree", "-d", "-z", "--name-only", "HEAD")
    paths = _git("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py", "*.so")
    if rooms is None or paths is None:
        return None
    rooms_known = {".", *rooms.split("\0")}
    importable = (name for name in paths.split("\0") if name and not os.path.basename(name).startswith("."))
    return [name for name in importable if (os.path.dirname(name) or ".").split("/")[0] in rooms_known]


def _git(*arguments: str) -> str | None:
    try:
        result = run_program(["git", "--no-optional-locks", "-C", str(PROJECT_ROOT), *arguments], timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
