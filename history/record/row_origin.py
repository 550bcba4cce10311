"""Checks that the rows of a client's stream are from that client: its name, its process and its producer number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from history.record.announcements import RecordHeader
from history.record.values import PRODUCERS
from installation.counted import counted

NO_PRODUCER: Final = -1


class RowOrigin:
    """Counts the rows and the written values of other clients. `header`: the client's own announcement; without one,
    nothing is checked."""

    def __init__(self, header: RecordHeader | None) -> None:
        self._header = header
        self._clients = 0
        self._processes = 0
        self._values = 0

    def take(self, rows: pa.Table, written: npt.NDArray[np.int64]) -> None:
        """Check rows and the values that they write."""
        header = self._header
        if header is None:
            return
        clients = pc.unique(rows["client"].cast(pa.string())).to_pylist() if rows.num_rows else []
        self._clients += len(set(clients) - {header.client})
        self._processes += int((rows["process"].to_numpy() != header.process).sum())
        producer = NO_PRODUCER if header.producer is None else header.producer
        self._values += int(((written >> 32 & (PRODUCERS - 1)) != producer).sum())

    def defects(self) -> Iterator[str]:
        """What was found, as sentences."""
        if self._header is not None and self._clients:
            yield f"it has operations of another client than {self._header.client}"
        if self._header is not None and self._processes:
            yield f"it has operations of another process than number {self._header.process}"
        if self._values:
            yield f"it has {counted(self._values, 'value')} of another producer"
