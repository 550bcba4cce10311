"""Runs with clients that compress get the same verdicts, for every codec and message format."""

from pathlib import Path

import pytest

from analysis.pipeline import analyze
from analysis.verdict import Verdict
from history.seal import seal
from tests.analysis.compressed_sets import ALL, NAMES
from tests.analysis.segment_files import batch
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun

each_codec = pytest.mark.parametrize("codec", ALL, ids=NAMES.get)
each_format = pytest.mark.parametrize("magic", [1, 2])


def judged(path: Path) -> Verdict:
    return analyze(path, engine="in-process", plots=False)


@each_format
@each_codec
def test_equal_replicas_pass(tmp_path: Path, codec: int, magic: int) -> None:
    verdict = judged(StoredRun(tmp_path / "run", codec=codec, magic=magic).write())
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    (found,) = [check for check in verdict.checks if check.name == "replicas"]
    assert f"{3 * RECORDS} records compared" in found.detail


@each_format
@each_codec
def test_another_record_on_one_replica_fails(tmp_path: Path, codec: int, magic: int) -> None:
    verdict = judged(StoredRun(tmp_path / "run", codec=codec, magic=magic, diverging="n2").write())
    assert verdict.verdict == "fail"
    assert {"replica-divergence", "replica-order-mismatch"} <= {anomaly.name for anomaly in verdict.anomalies}


@each_codec
def test_another_byte_in_a_record_fails(tmp_path: Path, codec: int) -> None:
    """The batch and its set are intact: only the value, which clients made, reveals the change."""
    verdict = judged(StoredRun(tmp_path / "run", codec=codec, corrupt="n3").write())
    assert verdict.verdict == "fail"
    assert {"corrupt-record", "replica-divergence"} <= {anomaly.name for anomaly in verdict.anomalies}


@each_codec
def test_a_damaged_set_is_damage_and_yields_no_anomaly(tmp_path: Path, codec: int) -> None:
    run = StoredRun(tmp_path / "run", codec=codec).write()
    segment = run / "nodes" / "n2" / "data" / "log-0" / f"{0:020d}.log"
    torn = batch(RECORDS, 1, [b"\x82SNAPPY\0 and no more"], attributes=codec & 7, count=1, last=0)
    segment.write_bytes(segment.read_bytes() + torn)
    seal(run)
    verdict = judged(run)
    assert verdict.verdict == "unknown"
    assert any("the log of log-0 on n2 ends early: " in doubt for doubt in verdict.doubts), verdict.doubts
