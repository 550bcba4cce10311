"""The project's files and directories for generated files.

There are two forms: a checkout, which can be run directly, and an installed package, whose wheel has the same rooms in
`brownout/home/` and a build record. The package's directory may be read-only.
"""

import os
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
"""The directory of the rooms, playbooks and campaigns: the checkout, or `brownout/home` of the installed package."""
PROJECT_ARCHIVE = "brownout-project"
"""The directory in which workers of Spark Connect find the project."""
SPARK_FILES = "brownout-spark-"
"""The start of the names of directories in which Spark has its temporary files."""

_RECORD = "installed.json"


def is_installed(project: Path = PROJECT_ROOT) -> bool:
    """Whether this is an installed package, not a checkout."""
    return (project / _RECORD).exists()


def build_record(project: Path = PROJECT_ROOT) -> dict[str, Any]:
    """The package's build record: `version`, and `commit`, None for a build outside of git.

    Raises `FileNotFoundError` in a checkout."""
    import json  # late, so that small programs that only need paths start faster

    record: dict[str, Any] = json.loads((project / _RECORD).read_text(encoding="utf-8"))
    return record


def cache_directory(project: Path = PROJECT_ROOT) -> Path:
    """The directory for images, archives, logs and kept nodes: `.cache` of a checkout that this user may write, else
    the user's own cache."""
    kept = project / ".cache"
    if not is_installed(project) and os.access(kept if kept.exists() else project, os.W_OK):
        return kept
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that relative paths must be ignored.
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "brownout"


def default_store() -> Path:
    """The directory of runs without `--store`: `store/` of the current directory."""
    return Path.cwd() / "store"
