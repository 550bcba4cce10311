"""Ends the process of a command."""

import os
import sys
from typing import NoReturn

from installation import standard_streams

_OBSERVERS = "orchestrator.worlds.observer_guard"


def leave(code: int) -> NoReturn:
    """Exit with this code without waiting for a user's observer: it may have started a pool whose workers hang, and
    Python would wait for them. Also keeps the code when standard output is not writable; Python would replace it.
    """
    try:
        sys.stdout.flush()
    except OSError:  # already reported where it first occurred
        standard_streams.discard()
    observers = sys.modules.get(_OBSERVERS)  # not imported by most commands
    if observers is not None and observers.is_any_stuck():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
