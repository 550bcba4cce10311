"""The rows of a client's stream are from that client."""

import numpy as np
import pyarrow as pa
import pytest

from history.record.announcements import RecordHeader
from history.record.client_reader import RowOrigin
from history.record.values import encode_value

HEADER = RecordHeader(client="c", process=1, session=1, producer=7)


def rows(client: str = "c", process: int = 1) -> pa.Table:
    return pa.table({"client": [client] * 2, "process": np.full(2, process, np.int32)})


@pytest.mark.parametrize(
    ("found", "producers", "defects"),
    [
        (rows(), (7, 7), []),
        (rows(client="other"), (), ["it has operations of another client than c"]),
        (rows(process=2), (), ["it has operations of another process than number 1"]),
        (rows(), (7, 8), ["it has 1 value of another producer"]),
        (rows(), (8, 9), ["it has 2 values of another producer"]),
    ],
)
def test_rows_and_values_of_other_clients_are_defects(
    found: pa.Table, producers: tuple[int, ...], defects: list[str]
) -> None:
    origin = RowOrigin(HEADER)
    origin.take(found, np.array([encode_value(1, producer, 0) for producer in producers], np.int64))
    assert list(origin.defects()) == defects


def test_without_an_announcement_of_the_client_the_origin_is_not_checked() -> None:
    origin = RowOrigin(None)
    origin.take(rows(client="other", process=9), np.array([1], np.int64))
    assert list(origin.defects()) == []
