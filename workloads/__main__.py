"""One client process: `python -m workloads KIND ROLE SETTINGS-AS-JSON PARENT-PID`."""

import signal
import sys

from history.arrow import without_pandas
from workloads.control import Closed, Control, Trouble, adopt_orphans, die_with_parent
from workloads.kinds import KINDS
from workloads.settings import ClientSettings


def main(arguments: list[str]) -> int:
    kind, role, settings_json, parent = arguments
    die_with_parent(int(parent))
    adopt_orphans()  # this process ends what a user's program leaves behind, in any session
    # Ctrl-C reaches the whole process group, but the run loop decides when this client ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = ClientSettings.from_json(settings_json)
    control = Control()
    if not settings.own.client_class:  # a user's class may use pandas and Arrow together
        without_pandas()
    try:
        KINDS[kind].roles[role].main(settings, control)
    except Exception as error:
        control.tell(Trouble(f"{type(error).__name__}: {error}", fatal=True))
        raise
    control.tell(Closed())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
