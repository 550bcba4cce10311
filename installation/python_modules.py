"""The command and the environment that run a module of this project as a process of its own.

The current directory is a user's. Its files may have the names of rooms or of Python's modules, so Python does not
search it (`-P`).
"""

import os
import sys

from installation.files import PROJECT_ROOT


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs the module in `module_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment of this process, in which Python finds the rooms in any directory."""
    places = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
