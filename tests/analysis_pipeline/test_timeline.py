"""The data of the timeline and of the heat map of partitions, and its text in the page."""

import base64
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from analysis.page.run_facts import RunFacts
from analysis.page.timeline_parts import (
    MOST_OPERATIONS,
    OPEN,
    UNKNOWN,
    OperationNames,
    leader_turns,
    operation_columns,
    partition_strip,
    script_text,
    timeline_of,
)
from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.stored_verdict import standing_of
from history.journal.timeline import RunClock
from history.record.operations import Operations
from history.record.schemas import INF, OPERATIONS
from history.record.shapes import LOG, REGISTER
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun

CLOCK = RunClock(0, 0)


def column(packed: str, form: str) -> list[int]:
    return [int(each) for each in np.frombuffer(base64.b64decode(packed), form)]


def log_rows(count: int, *, client: str = "p", ret: int | None = None) -> pa.Table:
    """Appends, one per millisecond."""
    filler = {"process": 0, "session": 1, "f": 0, "partition": 3, "type": 0, "hi": -1, "lo": -1, "acks": -1}
    return pa.table(
        {
            **{name: np.full(count, value) for name, value in filler.items()},
            "client": [client] * count,
            "topic": ["log"] * count,
            "inv": np.arange(count) * 1_000_000,
            "ret": np.full(count, ret) if ret is not None else np.arange(count) * 1_000_000 + 500_000,
            "offset": np.arange(count),
            "value": np.arange(count),
            "offsets": [[]] * count,
            "values": [[]] * count,
            "phase": ["main"] * count,
            "error": [""] * count,
        },
    ).select(OPERATIONS.names).cast(OPERATIONS)  # fmt: skip


@dataclass(frozen=True)
class InParts(Operations):
    """Operations in parts of this number of rows."""

    part_rows: int

    def parts(self, *columns: str) -> Iterator[pa.Table]:
        rows = self.rows.select(columns)
        yield from (rows.slice(start, self.part_rows) for start in range(0, rows.num_rows, self.part_rows))


def columns_of(rows: pa.Table, end_s: float, *, size: int = 1 << 17) -> dict[str, Any]:
    recorded = [InParts(LOG, rows, size), Operations(REGISTER, REGISTER.columns.empty_table())]
    return operation_columns(recorded, OperationNames.of(recorded), CLOCK, end_s)


def test_operations_are_columns_of_ticks() -> None:
    timeline = columns_of(log_rows(3), 1.0)
    assert (timeline["clients"], timeline["places"], timeline["count"], timeline["window_s"]) == (
        ["p"],
        ["log-3"],
        3,
        0.0,
    )
    assert column(timeline["columns"]["start"], "<u4") == [0, 100, 200]
    assert column(timeline["columns"]["length"], "<u4") == [50, 50, 50]
    assert column(timeline["columns"]["number"], "<i4") == [0, 1, 2]


def test_an_operation_that_never_returned_is_open() -> None:
    timeline = columns_of(log_rows(1, ret=INF), 1.0)
    assert column(timeline["columns"]["length"], "<u4") == [OPEN]


def test_more_operations_than_can_be_shown_become_counts_and_the_number_stays() -> None:
    count = MOST_OPERATIONS + 1
    timeline = columns_of(log_rows(count), count / 1000)
    assert timeline["count"] == count
    assert timeline["window_s"] == pytest.approx(count / 1e6)
    numbers = column(timeline["columns"]["number"], "<i4")
    assert sum(numbers) == count
    assert len(numbers) <= 1_001


@pytest.mark.parametrize("count", [500, MOST_OPERATIONS + 500])
def test_the_size_of_the_parts_does_not_matter(count: int) -> None:
    rows = pa.concat_tables([log_rows(count // 2, client=name) for name in "ab"]).unify_dictionaries()
    assert columns_of(rows, count / 2000, size=77_777) == columns_of(rows, count / 2000, size=count)


def role(wall_s: float, what: str, epoch: int, *, partition: int = 0, isr: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    event = {"event": "partition_role", "wall": round(wall_s * 1e9), "topic": "log", "partition": partition}
    return {**event, "role": what, "leader_epoch": epoch, "isr": list(isr)}


def numbered(*events: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return list(enumerate(events, 1))


def test_a_turn_of_a_leader_ends_with_the_next_one_or_with_its_process() -> None:
    events = {
        "n1": numbered(role(1, "leader", 0), role(5, "follower", 2)),
        "n2": numbered(role(2, "leader", 1), {"event": "broker_started", "wall": 4 * 10**9}, role(4.5, "leader", 2)),
    }
    assert leader_turns(RunFacts(CLOCK, events), 9.0) == [
        ("log-0", 1.0, 2.0, "n1", 0),
        ("log-0", 2.0, 4.0, "n2", 1),
        ("log-0", 4.5, 9.0, "n2", 2),
    ]
    killed = leader_turns(RunFacts(CLOCK, events, ends=((3, "n2"),)), 9.0)
    assert killed[1] == ("log-0", 2.0, 3.0, "n2", 1), "a process that is killed records no event"


@pytest.mark.parametrize("count", [64, 1_000])
def test_the_heat_map_has_a_row_for_each_partition(count: int) -> None:
    events = {"n1": numbered(*(role(1, "leader", 0, partition=number) for number in range(count)))}
    strip = partition_strip(events, leader_turns(RunFacts(CLOCK, events), 8.0), CLOCK, 8.0)
    assert len(strip["names"]) == count
    assert strip["windows"] * count <= 150_000
    assert strip["windows"] >= 100
    leader = np.array(column(strip["leader"], "u1")).reshape(count, -1)
    assert leader[0][0] == UNKNOWN
    assert (leader[:, -1] == 0).all()


def test_the_heat_map_shows_the_in_sync_set_and_the_lag_of_the_leader() -> None:
    progress = {"event": "replica_progress", "wall": 6 * 10**9, "topic": "log", "partition": 0}
    change = {"event": "isr_changed", "wall": 4 * 10**9, "topic": "log", "partition": 0, "isr": [1]}
    events = {"n1": numbered(role(1, "leader", 0), change, {**progress, "log_end_offset": 10, "high_watermark": 3})}
    strip = partition_strip(events, leader_turns(RunFacts(CLOCK, events), 8.0), CLOCK, 8.0)
    in_sync, lag = column(strip["in_sync"], "u1"), column(strip["lag"], "u1")
    assert (in_sync[0], in_sync[60], in_sync[-1]) == (UNKNOWN, 2, 1)
    assert (lag[0], lag[-1]) == (UNKNOWN, 30)


def test_topics_of_the_system_are_last_and_rows_beyond_the_bound_are_counted() -> None:
    own = {**role(1, "leader", 0), "topic": "__offsets"}
    events = {"n1": numbered(own, *(role(1, "leader", 0, partition=number) for number in range(2_000)))}
    strip = partition_strip(events, [], CLOCK, 8.0)
    assert strip["left_out"] == 1
    assert strip["names"][0] == "log-0"
    assert "__offsets-0" not in strip["names"]


def test_partitions_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run").write()
    own = {**role(1, "leader", 0), "topic": "__offsets"}
    events = {"n1": numbered(own, *(role(1, "leader", 0, partition=number) for number in (10, 2, 1)))}
    assert [*timeline_of(run, [], RunFacts(CLOCK, events))["turns"]] == ["log-1", "log-2", "log-10", "__offsets-0"]


HOSTILE = "</script><script>alert(1)</script>\x00\x1b\u2028<!--"


def test_no_name_ends_the_script_element() -> None:
    text = script_text({"name": HOSTILE})
    assert not re.search("[<>&\x00-\x1f\x7f-\uffff]", text)
    assert json.loads(text) == {"name": HOSTILE}


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="timeline-data">(.*?)</script>', page, re.DOTALL)
    assert found
    timeline: dict[str, Any] = json.loads(found[1])
    return timeline


def test_the_page_of_a_run_has_its_timeline(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    analyze(run, engine="in-process", plots=False)
    timeline = data_of(render_run(run).read_text())
    assert timeline["ops"]["clients"] == ["producer-0", "reader-0"]
    assert timeline["ops"]["count"] == 42
    assert [(each["name"], each["end"] > each["start"]) for each in timeline["faults"]] == [("kill n2", True)]
    assert {each["role"] for each in timeline["states"] if each["node"] == "n2"} == {"up", "down"}
    assert timeline["nodes"] == ["n1", "n2", "n3"]


def test_the_keys_of_registers_are_places(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run").write()
    analyze(run, engine="in-process", plots=False)
    assert data_of(render_run(run).read_text())["ops"]["places"] == ["k0", "k1", "k2"]


def test_a_hostile_key_is_data(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run", keys=("</script><script>alert(1)</script>",)).write()
    analyze(run, engine="in-process", plots=False)
    page = render_run(run).read_text()
    assert "<script>alert(1)" not in page
    assert data_of(page)["ops"]["places"] == ["</script><script>alert(1)</script>"]


def test_a_run_without_operations_has_an_empty_timeline(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run", keys=()).write()
    timeline = timeline_of(run, [], RunFacts())
    assert timeline["ops"]["count"] == 0


@pytest.mark.parametrize("stored", [StoredRun, StoredRegisters])
def test_the_page_reads_the_tables_and_shows_the_clients_operations(stored: Any, tmp_path: Path) -> None:
    run = stored(tmp_path / "run").write()
    analyze(run, engine="in-process", plots=False)
    recorded = timeline_of(run, [], RunFacts())
    shutil.rmtree(run / "history" / "operations")
    assert timeline_of(run, [], RunFacts(), is_analyzed=True) == recorded
    assert recorded["ops"]["count"] > 0


@pytest.mark.parametrize("table", ["index.parquet", "seconds.parquet", "operations", "registers"])
@pytest.mark.parametrize("stored", [StoredRun, StoredRegisters])
def test_without_a_whole_table_the_page_reads_the_clients_records(stored: Any, table: str, tmp_path: Path) -> None:
    run = stored(tmp_path / "run").write()
    analyze(run, engine="in-process", plots=False)
    whole = timeline_of(run, [], RunFacts(), is_analyzed=True)
    for path in [run / "tables" / table, *(run / "tables" / table).rglob("*.parquet")]:
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-9])
    assert timeline_of(run, [], RunFacts(), is_analyzed=True) == whole


def test_the_page_of_files_that_changed_since_the_analysis_shows_the_files(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    analyze(run, engine="in-process", plots=False)
    (run / "history" / "operations" / "reader-0-1.arrows").unlink()
    assert data_of(render_run(run, standing_of(run)).read_text())["ops"]["clients"] == ["producer-0"]
