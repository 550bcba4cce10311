"""Hatchling's build hook: records in each wheel and source archive what it was built from."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# For a source archive, which has no git repository.
_COMMIT_FILE = "installation/commit"


class BuildRecord(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel gets `installed.json`, which marks an installed package; a source archive gets its commit."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  the interface's
        """Add the record to the packed files. A source archive of a tree without git gets none."""
        self._scratch = tempfile.TemporaryDirectory(prefix="brownout-build-")
        record = Path(self._scratch.name) / "record"
        commit = _commit(Path(self.root))
        if self.target_name == "wheel":
            record.write_text(json.dumps({"version": self.metadata.version, "commit": commit}) + "\n", encoding="utf-8")
            build_data["force_include"][str(record)] = "brownout/home/installed.json"
        elif commit is not None and not (Path(self.root) / _COMMIT_FILE).exists():
            record.write_text(commit + "\n", encoding="ascii")
            build_data["force_include"][str(record)] = _COMMIT_FILE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary file, which has been packed."""
        self._scratch.cleanup()


def _commit(root: Path) -> str | None:
    """The commit (with `+changes` when tracked files differ from it); None if neither git nor an archive has it."""
    kept = root / _COMMIT_FILE
    if kept.exists():
        return kept.read_text(encoding="ascii").strip()
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():  # an unpacked archive inside another repository
        return None
    head = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return head and head + ("+changes" if changed else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
