"""`brownout` and `python -m brownout`: make the rooms importable, here and in the processes started from here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_HOME = str(Path(__file__).resolve().parent / "home")


def main() -> int:
    """Run the command line; its exit code."""
    sys.path.insert(0, _HOME)
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_HOME}{os.pathsep}{given}" if given else _HOME
    from orchestrator.command.line import main as command_line

    return command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
