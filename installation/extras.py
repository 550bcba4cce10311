"""The optional parts of Brownout (extras), as declared in `pyproject.toml`.

A checkout has all of them. An installed package has the requested ones: `pip install 'brownout[spark]'`. Modules of an
extra are imported late, after a check with `is_there` or `missing`.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Final

from installation.commands import command, joined
from installation.files import is_installed

SPARK: Final = "spark"
VMS: Final = "vms"
OF_JAVA: Final = "py4j"
"""The module of Spark that a client of a Connect server (`pyspark-client`) does without."""
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    SPARK: ("pyspark", "pandas", OF_JAVA),
    VMS: ("ansible", "ansible_runner", "ansible_mitogen", "pip"),
    "s3": ("obstore",),
    "test": ("pytest", "xdist", "hypothesis", "hatchling"),
    "dev": ("mypy", "ruff"),
}
"""The modules that show that an extra is installed."""


def missing(extra: str) -> list[str]:
    """The missing modules of the extra."""
    return [name for name in MODULES[extra] if importlib.util.find_spec(name) is None]


def is_there(extra: str) -> bool:
    return not missing(extra)


def how_to_install(extra: str) -> str:
    """A command that adds the extra to this installation."""
    if not is_installed():
        return f"rm -r .venv; {command('doctor')}"
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
    python = [] if pip[0] == sys.executable else ["--python", sys.executable]
    return joined([*pip, "install", *python, f"brownout[{extra}]{_origin()}"])


def what_is_missing(extra: str, purpose: str) -> str:
    """An error message: `purpose`, its first words such as `the engine spark`, needs the missing extra."""
    return f"{purpose} needs the extra [{extra}], which is not installed; install it: {how_to_install(extra)}"


def _origin() -> str:
    """Where this package was installed from, in pip's notation; empty if that was an index."""
    try:
        recorded = metadata.distribution("brownout").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    return f" @ {json.loads(recorded)['url']}" if recorded else ""
