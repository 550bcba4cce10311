"""Distinct numbers of columns that are sorted, mostly sorted, and not."""

import numpy as np
import pytest

from history.distinct import distinct, has_repeated


@pytest.mark.parametrize("column", [[], [3], [1, 2, 3], [1, 1, 2], [2, 1, 3, 1], [5, 4, 4], [-1, -1], [1, 2, 2, 1]])
def test_the_answer_is_that_of_numpy(column: list[int]) -> None:
    numbers = np.array(column, np.int64)
    assert distinct(numbers).tolist() == np.unique(numbers).tolist()
    assert has_repeated(numbers) == (len(np.unique(numbers)) < len(numbers))
