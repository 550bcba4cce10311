"""Keeps Arrow from importing pandas, which this program does not use."""

import sys
import threading
from importlib.machinery import ModuleSpec


def without_pandas() -> None:
    """Prevent Arrow from importing pandas.

    Arrow imports pandas with the first array, to check whether a value is a pandas object. The import takes as long as
    all other work before a client's first operation, and would happen under load; in the analysis of a small run it
    takes longer than the checks. Code that imports pandas later gets it, and so does Arrow for functions that need
    pandas. Until then Arrow does not recognize pandas' values, such as NaN for null."""
    import pyarrow as pa

    if "pandas" not in sys.modules:
        finder = _NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(finder)


class _NoPandas:
    """An import finder that reports pandas as missing to the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("the import of pandas is switched off", name=name)
        return None
