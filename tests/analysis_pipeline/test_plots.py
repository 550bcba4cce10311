"""The plots of a run: availability by workload, the order of replicas, and text that does not overlap."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Annotation

from analysis.evidence.run_directory import events_by_node
from analysis.pipeline import analyze
from analysis.plots.curves import availability, served_share
from analysis.plots.data import OPERATIONS, OUTCOMES, PlotData, PlottedOperations, view_of
from analysis.plots.drawing_process import DrawingProcess
from analysis.plots.render import MOST_LANES, ShortenedAxis, WitnessBar, by_relevance, with_plots, witness
from analysis.plots.style import figure, label_bands, png
from history.errors import HistoryError
from history.journal.timeline import FaultSpan
from history.reader import read_run
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun

Row = tuple[float, float, str, str, bool]
NONE = float("nan")


def view(*rows: Row, end: float = 4.0, bands: tuple[FaultSpan, ...] = ()) -> PlotData:
    """Operations as (invoked, returned, operation, outcome, mismatched)."""
    invoked, returned, operations, outcomes, mismatched = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    plotted = PlottedOperations(
        np.array(invoked, np.float64),
        np.array(returned, np.float64),
        np.array([OPERATIONS.index(each) for each in operations], np.int64),
        np.array([OUTCOMES.index(each) for each in outcomes], np.int64),
        np.array(mismatched, np.bool_),
    )
    return PlotData(plotted, bands, {}, end=end)


def shares(data: PlotData) -> list[float]:
    """By half seconds."""
    _, share = served_share(data)
    return list(share[: int(data.end * 2)])


def test_a_compare_and_set_that_is_answered_with_a_mismatch_is_served() -> None:
    answered = view((0.1, 0.2, "cas", "fail", True), (0.6, 0.7, "cas", "fail", False), end=1.0)
    assert shares(answered) == [1.0, 0.0]


def test_a_second_of_blocked_clients_without_invocations_counts_as_unavailable() -> None:
    blocked = view(
        (0.1, 0.2, "append", "ok", False), (0.3, 3.1, "append", "ok", False), (3.2, 3.3, "append", "ok", False)
    )
    np.testing.assert_equal(shares(blocked), [1, 0, 0, 0, 0, 0, 1, NONE])


def test_a_pause_of_idle_clients_does_not_count_as_an_outage() -> None:
    idle = view((0.1, 0.2, "write", "ok", False), (3.2, 3.3, "write", "ok", False))
    np.testing.assert_equal(shares(idle), [1, NONE, NONE, NONE, NONE, NONE, 1, NONE])


def test_an_unfinished_operation_does_not_count_as_an_outage_after_the_last_invocation() -> None:
    unfinished = view((0.1, 4.0, "append", "info", False), (1.1, 1.2, "append", "ok", False))
    np.testing.assert_equal(shares(unfinished), [0, 0, 1, NONE, NONE, NONE, NONE, NONE])


@pytest.mark.parametrize(
    ("names", "noun"),
    [(["append", "read"], "appends"), (["write", "cas", "read"], "writes and compare-and-sets"), (["read"], "changes")],
)
def test_labels_name_the_operations_of_the_workload(names: list[str], noun: str) -> None:
    assert view(*((0.1, 0.2, name, "ok", False) for name in names)).operations.noun() == noun


def test_the_plot_of_a_run_without_an_operation_is_drawn() -> None:
    assert availability(view()).startswith(b"\x89PNG")


def test_partitions_with_anomalies_are_first_and_those_of_the_system_last() -> None:
    keys = [("__consumer_offsets", 0), ("__consumer_offsets", 1), ("log", 0), ("log", 1)]
    assert by_relevance(dict.fromkeys(keys), [("log", 1), ("gone", 0)]) == [keys[3], keys[2], keys[0], keys[1]]


def test_partitions_of_the_system_are_drawn_with_an_anomaly_or_without_others() -> None:
    own, others = [("__offsets", number) for number in range(8)], [("log", number) for number in range(8)]
    assert with_plots([*others, *own], []) == others[:MOST_LANES]
    assert with_plots([own[3], *others[:2], *own[:3]], [own[3]]) == [own[3], *others[:2]]
    assert with_plots(own, []) == own[:MOST_LANES]


def many_faults(count: int) -> tuple[FaultSpan, ...]:
    return tuple(
        FaultSpan("partition-leader", ("n1", "n2"), at, at + 0.5, "confirmed", "partition", "star")
        for at in range(count)
    )


def test_the_names_of_fifty_faults_do_not_overlap_and_the_others_are_counted() -> None:
    bands = many_faults(50)
    with figure() as (drawn, (axes,)):
        axes.set_title("a title", pad=46)
        axes.set_xlim(0, 60)
        left_out = label_bands(axes, bands, (0.0, 60.0))
        drawn.draw_without_rendering()
        texts = [each for each in axes.texts if isinstance(each, Annotation)]
        boxes = [each.get_window_extent() for each in (*texts, axes.title)]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert left_out == 50 - (len(texts) - 1)
        assert f"{left_out} more faults" in texts[-1].get_text()


def test_the_axis_of_a_witness_keeps_order_and_gives_short_operations_room() -> None:
    axis = ShortenedAxis([0.345, 0.349, 4.100, 4.101, 200.0])
    assert axis.places == sorted(axis.places)
    widths = np.diff(axis.places)
    assert widths.max() / widths.min() <= 5
    assert axis.place(0.0) < axis.place(0.345) < axis.place(2.0) < axis.place(4.1) < axis.place(300.0)


def test_a_witness_of_one_moment_is_drawn() -> None:
    assert witness("x", [WitnessBar("a", 1.0, 1.0), WitnessBar("b", 1.0, None)], many_faults(20)).startswith(b"\x89PNG")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    "text",
    ["$a_{$", "\0\x1b[31m", "long" * 200, "\u202e$\\mathdefault{x}$"],
    ids=["formula", "control", "long", "tick"],
)
def test_any_text_of_a_client_is_drawn(text: str) -> None:
    plot = witness(text, [WitnessBar(text, 1.0, 1.5), WitnessBar("c", 1.2, None)], many_faults(3))
    assert plot.startswith(b"\x89PNG")


def test_powers_of_ten_beside_an_axis_stay_formulas() -> None:
    with figure() as (drawn, (axes,)):
        axes.set_yscale("log")
        axes.plot([1, 2, 3], [1, 100, 10_000])
        axes.set_ylabel("$cost$")
        png(drawn)
        assert axes.get_yticklabels()
        assert all(label.get_parse_math() for label in axes.get_yticklabels())
        assert not axes.yaxis.label.get_parse_math()


def test_the_plots_of_a_failed_run_state_their_omissions(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    names = "".join(
        json.dumps({"event": "replica_progress", "node": 1, "wall": 1_700_000_001 * 10**9, "topic": "__offsets",
                    "partition": number, "log_end_offset": 0, "high_watermark": 0, "leader_epoch": 0}) + "\n"
        for number in range(8)
    )  # fmt: skip
    events = run / "nodes" / "n1" / "events.jsonl"
    events.write_text(names + events.read_text())
    analyze(run, engine="in-process")
    assert (run / "plots" / "4-replicas-log-0.png").exists()
    (sentence,) = json.loads((run / "plots" / "left_out.json").read_text())
    named = ", ".join(f"__offsets-{number}" for number in range(6))
    assert sentence == f"no plot of the replicas of 8 of 9 partitions: {named} and 2 more"


def test_the_plots_of_registers_are_drawn(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run", stale=True).write()
    analyze(run, engine="in-process")
    assert (run / "plots" / "anomaly-0.png").exists()


def drawn_files(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "plots").iterdir()}


def test_the_plots_that_are_drawn_during_the_checks_are_those_that_are_drawn_after_them(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    verdict = analyze(run, engine="in-process")
    expected = drawn_files(run)
    assert {"1-latency.png", "anomaly-0.png"} < expected.keys()
    data = view_of(read_run(run), events_by_node(run))
    with DrawingProcess() as drawing:
        drawing.start(data)
        drawing.finish(run, data, verdict)
    assert drawn_files(run) == expected


def test_the_analysis_draws_the_plots_when_the_drawing_process_has_ended(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    verdict = analyze(run, engine="in-process", plots=False)
    with DrawingProcess() as drawing:
        drawing.start(view())
        drawing.process.kill()
        drawing.finish(run, view(), verdict)
    assert "1-latency.png" in drawn_files(run)


def test_a_plot_that_cannot_be_drawn_is_an_error_with_its_cause(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    verdict = analyze(run, engine="in-process", plots=False)
    (run / "plots").write_text("not a directory")
    with DrawingProcess() as drawing:
        drawing.start(view())
        with pytest.raises(RuntimeError, match=r"could not be drawn(?s:.*)FileExistsError"):
            drawing.finish(run, view(), verdict)


def test_an_analysis_that_fails_before_the_drawing_process_has_data_keeps_its_error() -> None:
    with pytest.raises(HistoryError), DrawingProcess() as drawing:
        raise HistoryError("no operations")
    assert drawing.process.poll() is not None


def test_the_plots_of_a_run_without_a_journal_are_drawn(tmp_path: Path) -> None:
    """The journal relates the clocks of nodes and clients; without it, events are far outside of the axis."""
    run = StoredRun(tmp_path / "run").write()
    (run / "history" / "journal.jsonl").unlink()
    assert analyze(run, engine="in-process").verdict == "unknown"
    assert "4-replicas-log-0.png" in drawn_files(run)


def test_texts_far_outside_of_the_axis_take_no_room() -> None:
    with figure() as (drawn, (axes,)):
        axes.set_xlim(0, 10)
        shown, far = axes.text(5, 0.5, "5"), axes.text(1.7e9, 0.5, "7")
        png(drawn)
        assert (shown.get_visible(), far.get_visible()) == (True, False)
