"""The end of a command's process."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from installation import standard_streams

_OBSERVERS = "orchestrator.worlds.observer_guard"


def leave(code: int) -> NoReturn:
    """End this process with this code. A user's observer may have made a pool whose workers never come back: Python
    would wait for them, and this does not. Where standard output takes nothing, Python would end with its own code.
    """
    try:
        sys.stdout.flush()
    except OSError:  # it was reported when it was met first
        standard_streams.discard()
    observers = sys.modules.get(_OBSERVERS)  # most commands have none
    if observers is not None and observers.is_any_stuck():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
