"""Counts by parts agree with the whole history: in memory, and in row groups of a few rows."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from analysis import pipeline
from analysis.evidence import load
from analysis.evidence.event_times import out_of_life
from analysis.evidence.load import MeasuredLoad, goes_on, load_of
from analysis.pipeline import lost_before_faults, statistics
from analysis.plots import data
from analysis.plots.curves import latency, rate
from analysis.plots.data import view_of
from history.journal.timeline import INVOKED
from history.reader import History
from history.record import operation_tables, operations
from history.record.operation_tables import IndexedGroup, TablesError, read_parts
from history.record.operations import Operations
from history.record.schemas import (
    ACKS_ALL,
    APPEND,
    END,
    FAIL,
    INF,
    INFO,
    OK,
    OPERATIONS,
    READ,
)
from history.record.shapes import LOG, Shape
from history.seconds import SecondCounts
from installation.counted import counted
from tests.analysis.log_histories import random_history, stored, table

Row = Mapping[str, Any]
Histories = tuple[list[Row], Sequence[History], random.Random]


UNIT = 123_456_789
"""A step of a random history in nanoseconds."""


def random_operations(rng: random.Random) -> pa.Table:
    rows = table(*(random_history(rng) for _ in range(4))).to_pylist()
    changed = [
        row
        | {"phase": rng.choice(["main", "main", "final"]), "inv": row["inv"] * UNIT}
        | {"ret": INF if row["ret"] == INF else row["ret"] * UNIT}
        for row in rows
    ]
    return pa.Table.from_pylist(rng.sample(changed, len(changed)), OPERATIONS)


def history_of(recorded: pa.Table | Path, load_end: int, fault: int) -> History:
    logs = Operations(LOG, recorded)
    return History(
        recorded=(logs,),
        seconds=SecondCounts.union(SecondCounts.of(part, LOG) for part in logs.parts(*OPERATIONS.names)).table(),
        journal=[
            {"event": "client", "client": "client-1", "t": load_end // 3},
            {"event": "client_ended", "client": "client-1", "t": load_end},
            {"event": "phase", "name": "quiesce", "t": load_end},
            {"event": "phase", "name": "final", "t": load_end},
            {"event": "fault_invoked", "id": "1", "t": fault},
        ],
    )


@pytest.fixture(params=range(5))
def histories(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Histories:
    """The rows, and their history in memory and in tables."""
    rng = random.Random(request.param)
    rows = random_operations(rng)
    latest = max(rows["inv"].to_pylist())
    moments = rng.randrange(latest), rng.randrange(latest)
    monkeypatch.setattr(operations, "PART_ROWS", 7)
    monkeypatch.setattr(operation_tables, "PART_ROWS", 7)
    found = [history_of(each, *moments) for each in (rows, stored(tmp_path, rows, 5))]
    return rows.to_pylist(), found, rng


def test_parts_are_the_whole_history(histories: Histories) -> None:
    rows, found, _ = histories
    for history in found:
        parts = list(history.logs.parts("value", "inv", "topic"))
        assert all(part.num_rows <= 7 and part.column_names == ["value", "inv", "topic"] for part in parts)
        shown = [row for part in parts for row in part.to_pylist()]
        wanted = [{name: row[name] for name in ("value", "inv", "topic")} for row in rows]
        assert sorted(map(str, shown)) == sorted(map(str, wanted))
        assert history.size == len(rows)
        assert history.logs.keys == {(row["topic"], row["partition"]) for row in rows}


def test_a_history_without_operations_has_no_parts(tmp_path: Path) -> None:
    for recorded in (OPERATIONS.empty_table(), stored(tmp_path, OPERATIONS.empty_table())):
        history = history_of(recorded, 1, 1)
        assert (list(history.parts("f")), history.size, history.logs.keys) == ([], 0, set())
        assert load_of(history) == MeasuredLoad(0, 0, 0)
        assert not goes_on(history, 0)
        assert lost_before_faults(history) == 0


def test_a_file_that_was_damaged_after_its_index_was_read_is_an_error(tmp_path: Path) -> None:
    tables = stored(tmp_path, random_operations(random.Random(1)), 50)
    history = history_of(tables, 1, 1)
    assert history.size
    for path in tables.glob("operations/*/*/*.parquet"):
        content = path.read_bytes()
        path.write_bytes(content[:4] + b"\xff" * 400 + content[404:])
    with pytest.raises(TablesError, match="is damaged"):
        list(history.logs.parts("f", "inv", "value"))


def test_the_load_agrees_with_the_rows(histories: Histories) -> None:
    rows, found, _ = histories
    ended = found[0].phases[0].start
    answered = [row for row in rows if row["type"] == OK]
    under_load = [row for row in answered if row["phase"] == "main" and row["inv"] < ended]

    def appends(some: list[Row], weak: bool) -> int:
        return sum(row["f"] == APPEND and (row["acks"] != ACKS_ALL) == weak for row in some)

    queries = sum(row["f"] == END for row in under_load)
    expected = MeasuredLoad(
        appends(answered, False),
        appends(under_load, False),
        queries,
        appends(answered, True),
        appends(under_load, True),
    )
    assert [load_of(history) for history in found] == [expected, expected]


def test_the_end_of_the_load_agrees_with_the_rows(histories: Histories) -> None:
    rows, found, rng = histories
    ended = found[0].phases[0].start
    some = [row for row in rows if row["phase"] == "main" and row["inv"] < ended]
    counted = [row for row in some if row["f"] != APPEND or row["acks"] == ACKS_ALL]
    for moment in (0, *rng.sample(range(2 * ended + 10), min(8, 2 * ended)), INF):
        expected = any(row["ret"] > moment or row["inv"] >= moment for row in counted)
        assert [goes_on(history, moment) for history in found] == [expected, expected]


def test_losses_before_faults_agree_with_the_rows(histories: Histories) -> None:
    rows, found, _ = histories
    first = found[0].faults[0].at(INVOKED, -1)
    shown = {
        (row["partition"], value)
        for row in rows
        if (row["f"], row["type"], row["phase"]) == (READ, OK, "final")
        for value in row["values"]
    }
    kept = [row for row in rows if (row["f"], row["type"], row["acks"]) == (APPEND, OK, ACKS_ALL)]
    expected = sum(row["ret"] < first and (row["partition"], row["value"]) not in shown for row in kept)
    assert [lost_before_faults(history) for history in found] == [expected, expected]


def test_operations_outside_of_lives_agree_with_the_rows(histories: Histories) -> None:
    rows, found, _ = histories
    began, ended = found[0].journal[0]["t"], found[0].journal[1]["t"]
    mine = [row for row in rows if row["client"] == "client-1"]
    strangers = sum(row["ret"] < began or row["inv"] > ended for row in mine)
    early = sum(row["phase"] == "final" and row["ret"] < ended for row in rows)
    expected = []
    if strangers:
        what = "before its start or after its end, by their times"
        expected.append(f"client client-1 has {counted(strangers, 'operation')} {what}")
    if early:
        expected.append(f"{counted(early, 'operation')} of the final reads ended before these started, by their times")
    for history in found:
        run: Any = SimpleNamespace(history=history)
        assert list(out_of_life(run)) == expected


def test_the_load_is_not_counted_from_the_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large history is never in memory at once."""
    history = history_of(stored(tmp_path, random_operations(random.Random(2)), 5), 10, 10)
    monkeypatch.setattr(Operations, "rows", property(lambda _: pytest.fail("the whole history was read")))
    load.load_of(history)
    lost_before_faults(history)
    goes_on(history, 5)
    statistics(history, view_of(history, {}))


def test_the_statistics_read_the_tables_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass opens every file, which takes most of the time when there are many small ones."""
    history = history_of(stored(tmp_path, random_operations(random.Random(2)), 5), 10, 10)
    view = view_of(history, {})
    passes: list[Sequence[str]] = []

    def counted(
        shape: Shape, tables: Path, groups: Iterable[IndexedGroup], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        passes.append(columns)
        return read_parts(shape, tables, groups, columns)

    monkeypatch.setattr(operations, "read_parts", counted)
    statistics(history, view)
    assert len(passes) == 1


def in_seconds(history: History, rows: list[Row]) -> list[tuple[float, float, Row]]:
    """Invocation, return (INF: none) and row of the changes, in seconds since the start of the run."""
    origin = view_of(history, {}).clock.origin_ns
    return [
        ((row["inv"] - origin) / 1e9, (row["ret"] - origin) / 1e9 if row["ret"] < INF else INF, row)
        for row in rows
        if row["f"] == APPEND
    ]


def test_a_thinned_run_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MOST_OPERATIONS", 10)
    view = view_of(history_of(random_operations(random.Random(3)), 10, 10), {})
    assert view.operations.stride > 1
    assert latency(view).startswith(b"\x89PNG")
    assert rate(view).startswith(b"\x89PNG")


def test_plots_keep_no_part_of_a_history_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = []

    class WatchedHistory(History):
        def parts(self, *columns: str) -> Iterator[pa.Table]:
            for part in super().parts(*columns):
                allocated.append(pa.total_allocated_bytes())
                yield part

    rows = pa.concat_tables([OPERATIONS.empty_table(), *[random_operations(random.Random(4))] * 200])
    rows = rows.unify_dictionaries().combine_chunks()
    monkeypatch.setattr(data, "MOST_OPERATIONS", 10)
    view_of(WatchedHistory(recorded=(Operations(LOG, stored(tmp_path, rows, 40)),), journal=[]), {})
    assert len(allocated) > 100
    assert max(allocated) - allocated[0] < 8 * rows.num_rows


@pytest.mark.parametrize("most_kept", [1 << 22, 3], ids=["times in memory", "a pass for each figure"])
def test_the_statistics_agree_with_the_rows(
    histories: Histories, monkeypatch: pytest.MonkeyPatch, most_kept: int
) -> None:
    monkeypatch.setattr(pipeline, "MOST_KEPT", most_kept)
    rows, found, _ = histories
    appends = [row for row in rows if row["f"] == APPEND]
    expected = {
        "operations": len(rows),
        "appends": len(appends),
        "failed": sum(row["type"] == FAIL for row in appends),
        "indeterminate": sum(row["type"] == INFO for row in appends),
        "records_read": sum(len(row["values"]) for row in rows if row["f"] == READ),
        "reads": 0,
    }
    timed = in_seconds(found[0], rows)
    took = [(ret - inv) * 1e3 for inv, ret, row in timed if row["type"] == OK]
    expected |= {
        f"latency_{name}_ms": round(float(np.quantile(took, share)), 3)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
    }
    first, last = min(inv for inv, _, _ in timed), max(inv for inv, _, _ in timed)
    acknowledged = sorted(ret for _, ret, row in timed if row["type"] == OK and first <= ret <= last)
    expected["longest_outage_s"] = round(float(np.diff([first, *acknowledged, last]).max()), 3)
    for history in found:
        stats = statistics(history, view_of(history, {}))
        assert {name: stats[name] for name in expected} == expected


def test_plots_of_a_thinned_run_have_the_rates_and_recoveries_of_all_operations(
    histories: Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, found, _ = histories
    timed = in_seconds(found[0], rows)
    whole = view_of(found[0], {})
    monkeypatch.setattr(data, "MOST_OPERATIONS", len(rows) // 3)
    for history in found:
        view = view_of(history, {})
        assert view.operations.stride == 3
        assert len(view.operations.f) == -(-len(rows) // 3)
        assert (view.end, view.clock, view.bands) == (whole.end, whole.clock, whole.bands)
        for moment in (time for band in view.bands for time in (band.start_s, band.end_s)):
            served = [ret for inv, ret, row in timed if inv >= moment and row["type"] == OK]
            assert view.first_served.get(moment) == min(served, default=None)
        origin = view.clock.origin_ns
        at = [max((row["inv"] if row["ret"] == INF else row["ret"]) - origin, 0) // 10**9 for row in rows]
        expected = Counter((row["f"], row["type"], second) for row, second in zip(rows, at, strict=True))
        rates = {(row["f"], row["type"], row["second"]): row["operations"] for row in view.rates.to_pylist()}
        assert rates == expected
