"""The operations of a witness as the bars of a plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from analysis.page.witness_text import begins_at, ends_at, operation_text
from analysis.plots.view import Band
from analysis.plots.witness import WitnessBar, witness

MOST_BARS: Final = 12


def operations_of(
    anomaly: Anomaly,
    origin: int,
    bands: Sequence[Band],
    text_of: Callable[[Mapping[str, Any]], str] = operation_text,
) -> bytes | None:
    """The plot of a witness that consists of operations, None if none has a time. `origin`: the zero of its axis, in ns
    of the operations' clock; `text_of`: what an operation did, in one line."""
    bars = [bar for row in anomaly.witness[:MOST_BARS] if (bar := _bar(row, origin, text_of)) is not None]
    where = f" in {anomaly.where}" if anomaly.topic else ""
    return witness(anomaly.name + where, bars, bands) if bars else None


def _bar(row: Mapping[str, Any], origin: int, text_of: Callable[[Mapping[str, Any]], str]) -> WitnessBar | None:
    start, end = begins_at(row), ends_at(row)
    if start is None:
        return None
    end_s = None if end is None else (end - origin) / 1e9
    return WitnessBar(f"{row.get('client', '?')}: {text_of(row)}", (start - origin) / 1e9, end_s)
