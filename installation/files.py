"""Where the project's own files are, and where it keeps what it can make again.

There are two forms: a checkout, which is also run from, and an installed package, whose wheel has the same rooms in
`brownout/home/` together with a record of what it was built from. The package may lie where nobody can write.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
"""The directory of the rooms, playbooks and campaigns: the checkout, or `brownout/home` of the installed package."""

_RECORD = "installed.json"


def is_installed(project: Path = PROJECT_ROOT) -> bool:
    """Whether this is an installed package and no checkout."""
    return (project / _RECORD).exists()


def build_record(project: Path = PROJECT_ROOT) -> dict[str, Any]:
    """What the package was built from: `version`, and `commit`, which is None when it was built outside of git.

    Raises `FileNotFoundError` in a checkout."""
    import json  # small programs that only ask where things are start without it

    record: dict[str, Any] = json.loads((project / _RECORD).read_text(encoding="utf-8"))
    return record


def cache_directory(project: Path = PROJECT_ROOT) -> Path:
    """Where images, archives, logs and kept nodes are written: `.cache` of a checkout that this user may write, else
    the own cache of the user."""
    kept = project / ".cache"
    if not is_installed(project) and os.access(kept if kept.exists() else project, os.W_OK):
        return kept
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of these variables has relative paths ignored.
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "brownout"


def default_store() -> Path:
    """Where runs are kept unless `--store` says otherwise: `store/` of the directory the command was started in."""
    return Path.cwd() / "store"
