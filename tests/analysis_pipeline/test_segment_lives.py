"""The segments of tiered partitions over time, for a run's page."""

import base64
from pathlib import Path
from typing import Any

import pytest

from analysis.page import run_page as tested_system
from analysis.page.run_facts import MOST_SEGMENTS, segments_of
from analysis.page.timeline_parts import NO_LEADER, UNKNOWN, partition_strip
from broker.tiered.segments import SegmentState
from history.journal.timeline import RunClock

CLOCK = RunClock(0, 1_000_000_000)
Spans = list[tuple[str, float, float]]


def event(at_s: float, name: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    return 1, {"event": name, "wall": 1_000_000_000 + round(at_s * 1e9), "topic": "log", "partition": 0, **fields}


def segment(at_s: float, state: str, base: int = 0, end: int = 9) -> tuple[int, dict[str, Any]]:
    return event(at_s, "remote_segment", id=f"s{base}", state=state, base_offset=base, end_offset=end)


def starts(at_s: float, local: int) -> tuple[int, dict[str, Any]]:
    return event(at_s, "replica_starts", log_start_offset=0, local_start_offset=local)


OF_THE_BROKER = [segment(1, SegmentState.COPY_STARTED.value), segment(2, SegmentState.COPY_FINISHED.value)]
UPLOADED = [segment(1, "COPY_SEGMENT_STARTED"), segment(2, "COPY_SEGMENT_FINISHED")]


@pytest.mark.parametrize(
    ("events", "spans"),
    [
        ({"n1": UPLOADED[:1]}, [("local", 1, 10)]),
        ({"n1": OF_THE_BROKER}, [("local", 1, 2), ("both", 2, 10)]),
        ({"n1": [*OF_THE_BROKER, segment(7, SegmentState.DELETE_STARTED.value)]},
         [("local", 1, 2), ("both", 2, 7), ("deleted", 7, 10)]),
        ({"n1": UPLOADED}, [("local", 1, 2), ("both", 2, 10)]),
        ({"n1": [*UPLOADED, starts(4, 10)]}, [("local", 1, 2), ("both", 2, 4), ("remote", 4, 10)]),
        ({"n1": [*UPLOADED, starts(4, 10)], "n2": [starts(3, 0)]}, [("local", 1, 2), ("both", 2, 10)]),
        ({"n1": [*UPLOADED, starts(4, 10)], "n2": [starts(3, 0), starts(6, 10)]},
         [("local", 1, 2), ("both", 2, 6), ("remote", 6, 10)]),
        ({"n1": [*UPLOADED, segment(7, "DELETE_SEGMENT_STARTED"), segment(8, "DELETE_SEGMENT_FINISHED")]},
         [("local", 1, 2), ("both", 2, 7), ("deleted", 7, 10)]),
        ({"n1": UPLOADED, "n2": [segment(2.5, "COPY_SEGMENT_FINISHED")]}, [("local", 1, 2), ("both", 2, 10)]),
    ],
)  # fmt: skip
def test_a_segment_passes_from_local_files_to_remote_storage(events: dict[str, Any], spans: Spans) -> None:
    (partition,) = segments_of(events, CLOCK)
    assert partition.name == "log-0"
    assert [life.spans(10) for life in partition.segments] == [spans]


def test_a_run_without_remote_storage_has_no_segments() -> None:
    assert segments_of({"n1": [starts(1, 0)]}, CLOCK) == ()


def test_segments_past_the_limit_are_counted() -> None:
    rows = [segment(1, "COPY_SEGMENT_STARTED", base, base) for base in range(MOST_SEGMENTS + 3)]
    (partition,) = segments_of({"n1": rows}, CLOCK)
    assert (len(partition.segments), partition.left_out) == (MOST_SEGMENTS, 3)


def test_a_partition_that_does_not_exist_yet_has_another_cell_than_one_without_a_leader() -> None:
    rows = [event(5, "partition_role", role="follower", leader=-1, isr=[1])]
    strip = partition_strip({"n1": rows}, [("log-0", 8.0, 10.0, "n1", 0)], CLOCK, 10.0)
    cells = base64.b64decode(strip["leader"])
    assert [cells[0], cells[len(cells) * 6 // 10], cells[-1]] == [UNKNOWN, NO_LEADER, 0]


def test_the_page_has_clients_and_the_keys_that_differ_between_cells(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'cell = "mutated"\n[plan]\nclients = ["p-1", "c-1"]\n[workload]\nkind = "log"\nbatch_records = 7\n'
    )
    (tmp_path / "campaign.toml").write_text(
        '[[cell]]\nname = "mutated"\nmutants = ["m"]\n[cell.broker]\n"a.b" = "1"\n[[cell]]\nname = "fixed"\n'
    )
    shown = tested_system.tested(tmp_path)
    assert {("batch records", "7"), ("clients", "2 (p-1, c-1)")} <= set(shown.load)
    assert shown.cells == (
        ("mutants", '["m"]', "fixed: as the campaign"), ("broker.a.b", '"1"', "fixed: as the campaign"),
    )  # fmt: skip
