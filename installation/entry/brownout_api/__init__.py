"""`brownout_api` of an installed package, under its importable name: the room in `brownout/home` replaces it."""

import importlib.util
import sys
from pathlib import Path

_HOME = Path(__file__).resolve().parents[1] / "brownout" / "home"


def _load_room() -> None:
    """Import the room under this module's name. Its own imports are of other rooms, so the rooms' path comes first, as
    in a run."""
    if str(_HOME) not in sys.path:
        sys.path.insert(0, str(_HOME))
    spec = importlib.util.spec_from_file_location(__name__, _HOME / "brownout_api" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[__name__] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_load_room()
