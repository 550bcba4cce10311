"""Which versions of everything a run was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
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


def commit() -> str:
    """The commit of the project's tree; `unknown` when it is not a git checkout."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    return head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
