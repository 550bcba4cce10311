"""Evidence that was changed after a run yields no anomaly, and other proofs keep their force."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.pipeline import analyze
from analysis.stored_verdict import standing_of
from analysis.verdict import Verdict
from history.checksummed_lines import read_lines, text_of
from tests.analysis.segment_files import write_high_watermarks
from tests.analysis_pipeline.stored_quorum import StoredQuorum
from tests.analysis_pipeline.stored_run import StoredRun
from tests.mutations.stored import Line, Stored
from tests.mutations.streams import rewrite

Change = Callable[[Path], object]
LOG = "nodes/n2/data/log-0/00000000000000000000.log"
METADATA = "nodes/n2/data/__cluster_metadata-0/leader-epoch-checkpoint"
JOURNAL = "history/journal.jsonl"
PRODUCER = ("history/operations/producer-0-1.arrows", "history/operations/producer-0-1.reserved")


def judged(run: Path) -> Verdict:
    return analyze(run, engine="in-process", plots=False)


def emptied(name: str) -> Change:
    return lambda run: (run / name).write_bytes(b"")


def lines(name: str, change: Callable[[Line], object]) -> Change:
    """Each line is replaced by a plausible other one."""

    def changed(run: Path) -> None:
        contents = [content for _, content in read_lines(run / name).contents]
        for content in contents:
            change(content)
        (run / name).write_bytes(text_of(contents))

    return changed


def of_another_run(run: Path) -> None:
    """The client has the same name, number and count of operations, and other offsets."""
    other = StoredRun(run.parent / "other").write()
    rewrite(
        Stored(other),
        "producer-0-1.arrows",
        lambda rows: [
            row | {"offset": by["offset"]} for row, by in zip(rows, [rows[1], rows[0], *rows[2:]], strict=True)
        ],
    )
    for name in PRODUCER:
        shutil.copy(other / name, run / name)


CHANGES: dict[str, tuple[Change, str]] = {
    "a replica's log is emptied": (emptied(LOG), LOG),
    "high watermarks of another run": (
        lambda run: write_high_watermarks(run / "nodes/n2/data", {("log", 0): 3}),
        "nodes/n2/data/replication-offset-checkpoint",
    ),
    "epochs of another quorum": (lambda run: Stored(run).text(METADATA, "2 5", "2 4"), METADATA),
    "a client's record of another run": (of_another_run, PRODUCER[0]),
    "a member's record of another run": (
        lines("history/groups/member-0.jsonl", lambda line: line.update(first=9) if "first" in line else None),
        "history/groups/member-0.jsonl",
    ),
    "a journal with a process that ended": (
        lambda run: Stored(run).insert_line(
            lambda line: line.get("name") == "heal",
            event="service_exit",
            node="n1",
            exit_code=1,
            signal=None,
            last_words="",
        ),
        JOURNAL,
    ),
}


@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES)
def test_evidence_changed_after_the_run_yields_no_anomaly(tmp_path: Path, change: Change, name: str) -> None:
    run = (
        StoredQuorum(tmp_path / "run").write()
        if name == METADATA
        else StoredRun(tmp_path / "run", has_group=True).write()
    )
    change(run)
    verdict = judged(run)
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert any(", from evidence that was changed: " in doubt for doubt in verdict.doubts), verdict.doubts
    assert any(" without proof: " in doubt and name in doubt for doubt in verdict.doubts)


def test_without_a_seal_a_client_record_unknown_to_the_journal_yields_no_anomaly(
    tmp_path: Path,
) -> None:
    run = StoredRun(tmp_path / "run").write()
    of_another_run(run)
    (run / "history" / "seal.json").unlink()
    verdict = judged(run)
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())


@pytest.mark.parametrize(
    "name",
    [
        LOG,
        "nodes/n1/service.log",
        "nodes/n1/events.jsonl",
        "nodes/n2/data/replication-offset-checkpoint",
    ],
)
def test_damage_to_files_that_a_checker_does_not_read_keeps_its_finding(tmp_path: Path, name: str) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    emptied(name)(run)
    verdict = judged(run)
    assert verdict.verdict == "fail"
    assert verdict.anomalies[0].name == "lost-acknowledged-write"
    assert any(doubt.startswith(f"{name} was ") for doubt in verdict.doubts)


def test_a_verdict_that_was_made_before_the_change_stays(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    assert judged(run).verdict == "fail"
    of_another_run(run)
    assert standing_of(run).proves_failure


def test_a_symbolic_link_to_a_replica_yields_no_anomaly(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", diverging="n3").write()
    assert judged(run).verdict == "fail"
    (run / "nodes/n3").rename(tmp_path / "n3")
    (run / "nodes/n3").symlink_to(tmp_path / "n3")
    assert (judged(run).verdict, judged(run).anomalies) == ("unknown", ())
