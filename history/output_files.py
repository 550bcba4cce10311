"""Lists the files with what the services and the clients of a run printed, with their size and digest at its end.

No rule relates such text to other evidence, so an emptied or exchanged file contradicts nothing but this list. The
journal has it as its last event before the run's end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from history.regular_files import size_and_digest

PATTERNS: Final = ("nodes/*/service.log", "clients/*.log")


def output_files(run_dir: Path) -> dict[str, dict[str, Any]]:
    """The files by their paths below the run's directory, each with its size in `bytes` and its `sha256`. Raises
    OSError."""
    paths = sorted(path for pattern in PATTERNS for path in run_dir.glob(pattern))
    return {path.relative_to(run_dir).as_posix(): size_and_digest(path) for path in paths}
