"""`brownout` and `python -m brownout`: makes the rooms importable, in this process and in its children."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

_HOME = str(Path(__file__).resolve().parent / "home")


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing was started: Ctrl-C during imports ends without a traceback
    if os.pathsep in _HOME:
        print(
            f"brownout: {_HOME} has a colon in its name, which PYTHONPATH cannot have; install elsewhere",
            file=sys.stderr,
        )
        sys.exit(64)
    sys.path.insert(0, _HOME)
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_HOME}{os.pathsep}{given}" if given else _HOME
    from installation import standard_streams

    standard_streams.prepare()
    from orchestrator.command.line import main as command_line
    from orchestrator.exit import leave

    leave(command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
