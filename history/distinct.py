"""Distinct numbers of a column that is mostly sorted already, as recorded columns are: each client counts upwards.

`numpy.unique` puts all numbers into a hash table, or sorts them without regard for what is sorted.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]


def distinct(column: Column) -> Column:
    """The distinct numbers, ascending."""
    if not len(column):
        return column
    runs = column[np.concatenate(([True], column[1:] != column[:-1]))]
    return runs if (runs[1:] > runs[:-1]).all() else np.unique(runs)


def has_repeated(column: Column) -> bool:
    """Whether a number is there twice."""
    if (column[1:] > column[:-1]).all():
        return False
    ordered = np.sort(column, kind="stable")  # fast for what is mostly sorted
    return bool((ordered[1:] == ordered[:-1]).any())
