"""One client process: `python -m workloads producer|consumer|reader SETTINGS-AS-JSON PARENT-PID`."""

from __future__ import annotations

import signal
import sys

from workloads.control import Control, die_with_parent
from workloads.settings import ClientSettings


def main(arguments: list[str]) -> int:
    role, settings_json, parent = arguments
    die_with_parent(int(parent))
    # Ctrl-C reaches the whole process group; when this client ends is the run loop's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = ClientSettings.from_json(settings_json)
    control = Control()
    try:
        if role == "producer":
            from workloads.producer import main as client
        elif role == "consumer":
            from workloads.consumer import main as client
        else:
            from workloads.consumer import main_reader as client
        client(settings, control)
    except Exception as error:
        control.tell("trouble", text=f"{type(error).__name__}: {error}", fatal=True)
        raise
    control.tell("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
