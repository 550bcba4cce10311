"""The plot of remote storage: from the starts that replicas report, for logs with records in remote storage."""

from typing import Any

import numpy as np

from analysis.plots import render
from analysis.plots.data import view_of
from analysis.plots.style import figure, png
from history.reader import History

KEY = ("log", 0)
START = {"t": 0, "wall": 100.0, "event": "run_started"}


def starts(seconds: int, start: int, local: int, tiered: int, partition: int = 0) -> dict[str, Any]:
    offsets = {"log_start_offset": start, "local_start_offset": local, "last_tiered_offset": tiered}
    return event("replica_starts", seconds, partition, **offsets)


def progress(seconds: int, end: int) -> dict[str, Any]:
    return event("replica_progress", seconds, 0, log_end_offset=end, high_watermark=end - 1, leader_epoch=0)


def event(name: str, seconds: int, partition: int, **fields: int) -> dict[str, Any]:
    return {"event": name, "wall": (100 + seconds) * 10**9, "topic": "log", "partition": partition, **fields}


def history() -> History:
    journal = [START, {"t": 20 * 10**9, "wall": 120.0, "event": "note", "text": "the end"}]
    return History((), journal)


EVENTS = {
    "n1": [starts(1, 0, 0, -1), progress(1, 10), starts(5, 0, 0, 49), starts(9, 0, 50, 79), progress(9, 100)],
    "n3": [starts(8, 0, 80, 79), {**starts(9, 0, 80, 79), "local_start_offset": "?"}],
}


def test_the_starts_of_each_replica_are_read_from_its_reports() -> None:
    view = view_of(history(), EVENTS)
    one, three = view.starts[KEY]
    assert (one.node, three.node) == ("n1", "n3")
    assert np.allclose(one.time, [1, 5, 9])
    assert one.local_start.tolist() == [0, 0, 50]
    assert one.last_tiered.tolist() == [-1, 49, 79]
    assert len(three.time) == 1, "a report without all offsets is left out"


def test_a_log_without_records_in_remote_storage_has_no_such_plot() -> None:
    assert view_of(history(), {"n1": [starts(1, 0, 0, -1), starts(2, 0, 0, -1, partition=3)]}).starts == {}


def test_the_plot_shows_a_lane_for_each_replica_also_one_without_progress() -> None:
    drawn = render.start_lanes(view_of(history(), EVENTS), *KEY)
    with figure(2, height=1.0) as (empty, _):
        assert len(drawn) > len(png(empty))
    assert drawn.startswith(b"\x89PNG")
