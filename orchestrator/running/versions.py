"""Which versions of everything a run was made with."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tomllib
from importlib import metadata

from installation.files import PROJECT_ROOT, build_record, is_installed

CHANGES = "+changes"
_LIBRARIES = ("confluent-kafka", "pyspark", "pyarrow", "uvloop")


def versions() -> dict[str, str]:
    """Brownout's commit (with `+changes` when the tree differs from it), the interpreter, the kernel, the libraries."""
    found = {
        "brownout": commit(),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def release() -> str:
    """The version, as declared in pyproject.toml."""
    if is_installed():
        return str(build_record()["version"])
    declared = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(declared["project"]["version"])


def commit() -> str:
    """The commit of the project's tree, or that the package was built from; `unknown` when that was not in git."""
    if is_installed():  # it may lie in somebody's repository, whose commit is not ours
        return build_record()["commit"] or "unknown"
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    return head + (CHANGES if _git("status", "--porcelain", "--untracked-files=no") else "")


def code() -> str:
    """As `commit`, with a digest of what is changed: trees that say the same are the same."""
    now = commit()
    changes = _git("diff", "--binary", "--no-ext-diff", "HEAD") if now.endswith(CHANGES) else None
    return now if changes is None else f"{now}-{hashlib.sha256(changes.encode()).hexdigest()[:12]}"


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(PROJECT_ROOT), *arguments],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
