"""The analysis of a run and its page read its operations in parts, never all at once."""

from pathlib import Path
from typing import Any

import pytest

import history.reader
from analysis.pipeline import analyze
from analysis.report import render_run
from history.record.operations import Operations
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("stored", "options"),
    [(StoredRun, {}), (StoredRun, {"has_group": True}), (StoredRegisters, {}), (StoredRun, {"lost": 7})],
)
def test_verdict_plots_and_page_need_no_whole_history(
    stored: Any, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = stored(tmp_path / "plain" / "run", **options).write()
    expected = analyze(plain, engine="in-process", plots=False)
    reads = list[object]()
    monkeypatch.setattr(
        history.reader, "MOST_BYTES_KEPT", 0
    )  # as of a large run: the operations are in the tables only
    monkeypatch.setattr(Operations, "rows", property(reads.append))
    run = stored(tmp_path / "run", **options).write()
    verdict = analyze(run, engine="in-process")
    page = render_run(run).read_text()
    assert (verdict.verdict, verdict.stats) == (expected.verdict, expected.stats)
    assert [each.sentence for each in verdict.anomalies] == [each.sentence for each in expected.anomalies]
    assert f"{verdict.stats['operations']} operations." in page
    assert [*(run / "plots").glob("*.png")]
    assert reads == []
