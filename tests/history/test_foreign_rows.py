"""Rows of foreign histories are collected in parts, and the texts of their values are found by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from history.foreign import porcupine, register_rows
from history.foreign.history import NamesOfNumbers

EVENT = "INFO  jepsen.util - {}\t:{}\t:write\t{}\n"
EVENTS = "".join(EVENT.format(number % 3, kind, number) for number in range(9) for kind in ("invoke", "ok"))


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_rows_that_are_collected_in_parts_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    path = tmp_path / "etcd.log"
    path.write_text(EVENTS)
    whole = porcupine.read(path)
    monkeypatch.setattr(register_rows, "OBJECT_ROWS", at_once)
    parts = porcupine.read(path)
    assert parts.operations.to_pylist() == whole.operations.to_pylist()
    assert dict(parts.names) == dict(whole.names) == {number + 1: str(number) for number in range(9)}


def test_numbers_without_a_value_have_no_name() -> None:
    names = NamesOfNumbers(np.array([7, 9]), 10)
    assert dict(names) == {10: "7", 20: "9"}
    assert (len(names), 10 in names, 15 in names, 30 in names, 0 in names, -10 in names) == (2, True, *([False] * 4))
