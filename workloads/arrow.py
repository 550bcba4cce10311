"""Keeps Arrow from importing pandas, which no client of ours uses; clients record their operations with Arrow."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec


def without_pandas() -> None:
    """Prevent Arrow from importing pandas.

    Arrow imports pandas with the first array, to check whether a value is a pandas object. The import takes as long as
    all other work before a client's first operation, and would happen under load. Code that imports pandas later gets
    it, and so does Arrow for functions that need pandas. Until then Arrow does not recognize pandas' values, such as
    NaN for null. For one thread."""
    import pyarrow as pa

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """An import finder that reports pandas as missing."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("the import of pandas is switched off", name=name)
        return None
