"""Arrow, in which clients record what they did, without pandas, which none of ours uses."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec


def without_pandas() -> None:
    """Have Arrow do without pandas, which it otherwise imports with the first array that it makes, to see whether that
    is one of pandas': that takes as long as all else before a client's first operation, and comes under load. Who
    imports pandas later gets it, and so does Arrow once it is asked for what only pandas has; until then it does not
    know pandas' values, such as NaN for null. For one thread."""
    import pyarrow as pa

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """Finds modules for the import system, and says of pandas that there is none."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not looked for", name=name)
        return None
