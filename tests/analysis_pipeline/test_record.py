"""Whatever a run's plan names and its record does not show makes it unknown, with a reason that names it."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.checker import CheckedRun, Outcome, plan_of
from analysis.checkers import record
from analysis.evidence.run_directory import describe, events_by_node
from analysis.pipeline import analyze
from analysis.verdict import PASS, UNKNOWN
from history import seal
from history.checksummed_lines import read_lines, text_of
from history.reader import read_run
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun
from tests.mutations.stored import Stored
from tests.mutations.streams import reannounce
from tests.mutations.streams import rewrite as rewrite_rows
from tests.mutations.unjudged import ON_LOG, ON_REGISTER, took_part

OPERATIONS = "history/operations"
JOURNAL = "history/journal.jsonl"
Change = Callable[[Path], object]


def looked_at(run: Path) -> Outcome:
    return record.check(CheckedRun(run, describe(run), read_run(run), events_by_node(run)))


def remove(name: str) -> Change:
    def change(run: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def cut(name: str, size: int) -> Change:
    """The last bytes are gone."""
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:-size])


def flip(name: str, at: float) -> Change:
    """One bit is another, this far into the file."""

    def change(run: Path) -> None:
        data = bytearray((run / name).read_bytes())
        data[int(at * len(data))] ^= 4
        (run / name).write_bytes(data)

    return change


def add(name: str, text: str = "") -> Change:
    def change(run: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)

    return change


def replace(name: str, pattern: str, by: str) -> Change:
    def change(run: Path) -> None:
        text, found = re.subn(pattern, by, (run / name).read_text(), count=1, flags=re.MULTILINE)
        assert found
        (run / name).write_text(text)

    return change


def rewrite(name: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Change:
    """Other lines were written, each as it should be."""

    def changed(run: Path) -> None:
        (run / name).write_bytes(text_of(change([line for _, line in read_lines(run / name).contents])))

    return changed


def without(**fields: object) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda lines: [line for line in lines if not fields.items() <= line.items()]


def with_(fields: dict[str, object], **changes: object) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda lines: [{**line, **changes} if fields.items() <= line.items() else line for line in lines]


def added(**line: object) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Before the last line."""
    return lambda lines: [*lines[:-1], {"t": lines[-2]["t"], "wall": 1.0, **line}, lines[-1]]


def swapped(first: str, second: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    names = {first: second, second: first}
    return lambda lines: [{**line, "name": names.get(line.get("name", ""), line.get("name"))} for line in lines]


def _all_unused(line: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    return {"unused": block["first"], "count": block["count"]} if "unused" in line else line


RESEALED: dict[str, tuple[Change, str]] = {
    "a client's stream is gone": (remove(f"{OPERATIONS}/producer-0-1.arrows"), r"producer-0-1\.arrows"),
    "a client's announcements are gone": (remove(f"{OPERATIONS}/producer-0-1.reserved"), r"producer-0-1\.reserved"),
    "a client's files are all gone": (
        lambda run: [path.rename(run / path.name) for path in (run / OPERATIONS).glob("reader-0*")],
        "client reader-0 is in the journal, but left no record",
    ),
    "a stream is torn": (cut(f"{OPERATIONS}/producer-0-1.arrows", 40), r"producer-0-1\.arrows: what follows its first"),
    "a stream is empty": (lambda run: (run / OPERATIONS / "reader-0-1.arrows").write_bytes(b""), "reader-0-1"),
    "a bit of a stream": (flip(f"{OPERATIONS}/producer-0-1.arrows", 0.5), r"producer-0-1\.arrows"),
    "a bit of the announcements": (flip(f"{OPERATIONS}/producer-0-1.reserved", 0.5), r"reserved: line \d is damaged"),
    "announcements are torn": (cut(f"{OPERATIONS}/producer-0-1.reserved", 4), r"producer-0-1\.reserved was torn"),
    "a client did not close its record": (
        lambda run: rewrite(f"{OPERATIONS}/producer-0-1.reserved", lambda lines: lines[:-1])(run),
        "it has no end mark, its client did not close it",
    ),
    "a client recorded more": (
        rewrite(f"{OPERATIONS}/reader-0-1.reserved", with_({"closed": {"end": 1, "read": 1}}, closed={"end": 2})),
        r"reader-0-1\.arrows: it has end 1, read 1, but its client recorded end 2",
    ),
    "an unannounced value": (
        rewrite(f"{OPERATIONS}/producer-0-1.reserved", lambda lines: [lines[0], lines[-1]]),
        "it has 40 appends with values that were never announced",
    ),
    "an announcement for another partition": (
        rewrite(f"{OPERATIONS}/producer-0-1.reserved", with_({"topic": "log"}, partition=1)),
        "it has 40 appends to other partitions than announced",
    ),
    "values given back though they were used": (
        rewrite(f"{OPERATIONS}/producer-0-1.reserved", lambda lines: [_all_unused(line, lines[1]) for line in lines]),
        "gives back 40 values that were used",
    ),
    "two clients change places": (
        lambda run: (
            [
                (run / OPERATIONS / "reader-0-1.arrows").rename(run / "aside"),
                (run / OPERATIONS / "producer-0-1.arrows").rename(run / OPERATIONS / "reader-0-1.arrows"),
                (run / "aside").rename(run / OPERATIONS / "producer-0-1.arrows"),
            ]
        ),
        r"producer-0-1\.arrows differs from what client producer-0 left",
    ),
    "a file without a client": (add(f"{OPERATIONS}/other-1.jsonl"), "the journal names no client of it"),
    "the journal forgot a client": (
        rewrite(JOURNAL, without(event="client", client="reader-0")),
        "reader-0 of the plan is not in the journal|names no client of it",
    ),
    "the journal forgot a client's end": (
        rewrite(JOURNAL, without(event="client_ended", client="reader-0")),
        "the journal does not say that client reader-0 has ended",
    ),
    "the journal is gone": (remove(JOURNAL), r"journal\.jsonl cannot be read: No such file"),
    "the journal is empty": (lambda run: (run / JOURNAL).write_bytes(b""), r"journal\.jsonl is empty"),
    "the journal is torn": (cut(JOURNAL, 4), r"journal\.jsonl was torn"),
    "a bit of the journal": (flip(JOURNAL, 0.5), r"journal\.jsonl: line \d+ is damaged"),
    "a line of the journal is gone": (
        lambda run: (run / JOURNAL).write_bytes(b"".join((run / JOURNAL).read_bytes().splitlines(True)[:3])),
        "the run ended in phase setup",
    ),
    "a line in the middle is gone": (
        replace(JOURNAL, r'^.*"event": "fault_healed".*\n', ""),
        r"journal\.jsonl: before line \d+, 1 lines are missing",
    ),
    "a line is there twice": (replace(JOURNAL, r'^(.*"name": "heal".*\n)', r"\1\1"), r"line \d+ is there twice"),
    "lines change places": (
        replace(JOURNAL, r'^(.*"name": "heal".*\n)(.*\n)', r"\2\1"),
        r"journal\.jsonl: line \d+ is out of order",
    ),
    "an unknown event": (rewrite(JOURNAL, added(event="lunch")), "has the unknown event 'lunch'"),
    "an event that lacks a field": (rewrite(JOURNAL, added(event="node", what="started")), "is a node without node"),
    "a field of another kind": (rewrite(JOURNAL, with_({"name": "heal"}, t="noon")), "is a phase with t 'noon'"),
    "a line from before": (rewrite(JOURNAL, with_({"name": "final"}, t=5)), "has an earlier time"),
    "a fault out of nothing": (
        rewrite(JOURNAL, without(event="fault_invoked")),
        "is a fault_injected of f1, which was never invoked",
    ),
    "a phase is missing": (
        rewrite(JOURNAL, without(name="quiesce")),
        "phases are setup, main, heal, final, collect, done, not setup",
    ),
    "phases change places": (
        rewrite(JOURNAL, swapped("heal", "quiesce")),
        "phases are setup, main, quiesce, heal, final, collect, done, not setup",
    ),
    "the end is missing": (rewrite(JOURNAL, without(name="done")), "the run ended in phase collect, not by its plan"),
    "the journal is another run's": (
        rewrite(JOURNAL, with_({"event": "run_started"}, seed=9)),
        "is of seed 9, run.toml",
    ),
    "a node was not started": (
        rewrite(JOURNAL, without(event="node", node="n2", what="started")),
        "the journal does not say that n2 was started",
    ),
    "a node was not stopped": (
        rewrite(JOURNAL, without(event="node", node="n3", what="stopped")),
        "the journal does not say that n3 was stopped",
    ),
    "a node of no plan": (
        rewrite(JOURNAL, added(event="node", node="n9", what="stopped")),
        "n9 was stopped, which is not in the plan",
    ),
    "a node's files are gone": (remove("nodes/n2"), "the files of n2 are missing"),
    "a node's log is gone": (remove("nodes/n2/service.log"), r"nodes/n2/service\.log is missing"),
    "what a client printed is gone": (remove("clients/reader-0.log"), r"clients/reader-0\.log is missing"),
    "files of no node": (add("nodes/n7/data/x"), "nodes/n7 is not of a node of the plan"),
    "replicas moved to unknown nodes": (
        rewrite(JOURNAL, without(event="assignment")),
        "the journal does not say which nodes hold the partitions' replicas",
    ),
    "replicas went elsewhere": (
        rewrite(JOURNAL, with_({"event": "assignment"}, replicas=[[1, 2]])),
        "placement of the partitions' replicas differs from run.toml's",
    ),
    "a partition more in the plan": (
        replace(
            "run.toml",
            r"partitions = 1\n(.*\n)assignment = .*",
            r"partitions = 2\n\1assignment = [[1, 2, 3], [1, 2, 3]]",
        ),
        "there is no operation on log-1, which the plan names",
    ),
    "another topic in the plan": (
        replace("run.toml", 'topic = "log"', 'topic = "other"'),
        "operations on log-0, which the plan does not name",
    ),
    "a topic with a path in its name in the plan": (
        replace("run.toml", 'topic = "log"', 'topic = "/../../../../outside"'),
        r"\[workload\] topic is '/../../../../outside', which is not a valid name of a topic",
    ),
    "a node with a path in its name in the plan": (
        replace("run.toml", "^n3 = ", '"../n3" = '),
        r"\[system\.roles\] has '\.\./n3': a node's name is that of its directory",
    ),
    "a client more in the plan": (
        replace("run.toml", '"reader-0"', '"reader-0", "probe"'),
        "client probe of the plan is not in the journal",
    ),
    "the plan names no minimum": (replace("run.toml", "min_ok = .*\n", ""), r"\[checks\] min_ok is missing"),
    "the plan requires a value that is not a list": (
        replace("run.toml", "required_faults = .*", "required_faults = 3"),
        r"\[checks\] required_faults is 3: expected array, got int",
    ),
    "the plan has fewer nodes than roles": (replace("run.toml", "nodes = 3", "nodes = 2"), "nodes is 2, but"),
    "the plan has an unknown bound": (
        replace("run.toml", 'upper_bound = ".*"', 'upper_bound = "loose"'),
        'upper_bound is "loose": expected one of strict, session, lower-bound-only',
    ),
    "a partition on an unknown node": (
        replace("run.toml", r"assignment = .*", "assignment = [[1, 2, 4]]"),
        "partition 0 is assigned to 1, 2, 4: nodes",
    ),
}


def test_a_whole_run_is_whole(tmp_path: Path) -> None:
    outcome = looked_at(StoredRun(tmp_path / "run").write())
    assert (outcome.verdict, outcome.doubts) == (PASS, ())


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("change", "reason"), RESEALED.values(), ids=RESEALED)
def test_missing_or_damaged_evidence_under_a_seal_is_unknown_with_a_reason(
    tmp_path: Path, change: Change, reason: str
) -> None:
    run = StoredRun(tmp_path / "run").write()
    change(run)
    seal.seal(run)
    outcome = looked_at(run)
    assert outcome.verdict == UNKNOWN
    assert any(re.search(reason, doubt) for doubt in outcome.doubts), outcome.doubts


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remove("history/seal.json"), "the run is not sealed"),
        (add("history/seal.json", "{"), r"history/seal\.json cannot be read"),
        (add("history/seal.json", '{"evidence": 3}'), r"history/seal\.json cannot be read: it is not a seal"),
        (add("nodes/n1/data/more"), "nodes/n1/data/more was added after the run had ended"),
        (remove("nodes/n1/events.jsonl"), r"nodes/n1/events\.jsonl is missing"),
        (cut("nodes/n1/events.jsonl", 3), r"nodes/n1/events\.jsonl was shortened from \d+ to \d+ bytes"),
        (flip("nodes/n1/service.log", 0.5), r"nodes/n1/service\.log was changed"),
        (replace("run.toml", "min_ok = .*", "min_ok = 1"), r"run\.toml was (changed|shortened)"),
        (lambda run: (run / "nodes" / "n1" / "data" / "empty").mkdir(), "nodes/n1/data/empty was added"),
    ],
)
def test_a_change_after_the_end_is_found(tmp_path: Path, change: Change, reason: str) -> None:
    run = StoredRun(tmp_path / "run").write()
    change(run)
    outcome = looked_at(run)
    assert outcome.verdict == UNKNOWN
    assert any(re.search(reason, doubt) for doubt in outcome.doubts), outcome.doubts


def test_files_derived_from_the_evidence_do_not_break_the_seal(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    before = seal.digest(run)
    assert analyze(run, engine="in-process", plots=True).verdict == PASS
    assert list(seal.complaints(run)) == []
    assert seal.digest(run) == before
    (run / "nodes" / "n1" / "service.log").write_text("another word\n")
    assert seal.digest(run) != before


def test_a_proven_anomaly_stays_one_in_a_run_that_is_not_whole(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    remove("nodes/n2/service.log")(run)
    assert analyze(run, engine="in-process", plots=False).verdict == "fail"


@pytest.mark.parametrize(
    ("kind", "line", "reason"),
    [
        (StoredRun, ON_REGISTER, "1 operation on registers, which no checker reads: the workload asks for 'log'"),
        (StoredRegisters, ON_LOG, "1 operation on partitions of logs, which no checker reads: .* asks for 'register'"),
    ],
)
def test_operations_that_no_checker_reads_make_a_run_unknown(
    tmp_path: Path, kind: Callable[[Path], Any], line: dict[str, object], reason: str
) -> None:
    run = kind(tmp_path / "run").write()
    took_part(Stored(run), line)
    seal.seal(run)
    verdict = analyze(run, engine="in-process", plots=False)
    assert verdict.verdict == UNKNOWN
    assert [doubt for doubt in verdict.doubts if not re.search(reason, doubt)] == ["record: not whole for 1 reason"]


OUTSIDE = "/../../../../outside"


@pytest.mark.parametrize(
    "change",
    [
        lambda run: took_part(run, ON_LOG | {"topic": OUTSIDE}),
        lambda run: rewrite_rows(run, "reader-0-1.arrows", lambda rows: [rows[0] | {"topic": OUTSIDE}, *rows[1:]]),
        lambda run: reannounce(
            run,
            "producer-0-1.reserved",
            lambda lines: [
                line | ({"topic": OUTSIDE} if "topic" in line else {}) for line in lines if "unused" not in line
            ],
        ),
        lambda run: run.plan('^topic = "log"', f'topic = "{OUTSIDE}"'),
    ],
    ids=["JSON lines", "a stream", "announcements", "the plan"],
)
def test_a_topic_name_cannot_direct_files_outside_of_the_run(tmp_path: Path, change: Callable[[Stored], None]) -> None:
    run = StoredRun(tmp_path / "run").write()
    change(Stored(run))
    seal.seal(run)
    assert analyze(run, engine="in-process", plots=False).verdict == UNKNOWN
    assert sorted(tmp_path.iterdir()) == [run]


def moved_away(*patterns: str) -> Change:
    return lambda run: [
        path.rename(run / f"gone-{path.name}") for pattern in patterns for path in sorted(run.glob(pattern))
    ]


@pytest.mark.parametrize("kind", [StoredRun, StoredRegisters])
@pytest.mark.parametrize(
    "change",
    [
        moved_away(JOURNAL),
        moved_away(OPERATIONS),
        moved_away(f"{OPERATIONS}/*.arrows", f"{OPERATIONS}/*.registers"),
        moved_away(f"{OPERATIONS}/*.reserved", f"{OPERATIONS}/*.invoked"),
        moved_away("nodes"),
        add("run.toml"),
        add(
            "run.toml", "seed = 'x'\nchecks = 3\nworkload = []\nversions = { a = 1 }\nsystem = { roles = { a = 1 } }\n"
        ),
        lambda run: [path.write_bytes(b"\xff\0" * 500) for path in (run / "history").rglob("*") if path.is_file()],
    ],
    ids=["journal", "clients", "streams", "announcements", "nodes", "empty plan", "wrong plan", "garbage"],
)
def test_deleted_evidence_is_unknown_without_an_anomaly_or_a_crash(
    tmp_path: Path, kind: type[StoredRun] | type[StoredRegisters], change: Change
) -> None:
    run = kind(tmp_path / "run").write()
    change(run)
    seal.seal(run)
    verdict = analyze(run, engine="in-process", plots=False)
    assert (verdict.verdict, verdict.anomalies) == (UNKNOWN, ())
    assert not [check for check in verdict.checks if "crashed" in check.detail]


def test_the_journal_gives_the_places_of_replicas_assigned_during_the_run(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    replace("run.toml", r'placement = "spread"\nassignment = .*', 'placement = "off-controller"')(run)
    plan = plan_of(describe(run), read_run(run))
    assert (plan.replicas, plan.doubts) == ({("log", 0): ("n1", "n2", "n3")}, ())
    rewrite(JOURNAL, with_({"event": "assignment"}, replicas=[[1, 7]]))(run)
    assert plan_of(describe(run), read_run(run)).doubts == ("replicas are on nodes that are not in the plan: 7",)


def test_a_value_may_be_of_a_client_with_lost_announcements(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    assert not read_run(run).may_have_written(99)
    remove(f"{OPERATIONS}/producer-0-1.reserved")(run)
    assert read_run(run).may_have_written(99)
    assert not read_run(run).may_have_written(7 << 32)


def test_a_killed_client_is_read_with_all_its_possible_records(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    name = f"{OPERATIONS}/producer-0-1.reserved"
    (run / name).write_bytes(b"".join((run / name).read_bytes().splitlines(True)[:-2]))
    digest = seal.content_of(run)[name]
    left = {"producer-0-1.reserved": digest, "producer-0-1.arrows": seal.content_of(run)[name[:-8] + "arrows"]}
    ended = with_({"event": "client_ended", "client": "producer-0"}, exit_code=-9, files=left)
    rewrite(JOURNAL, ended)(run)
    history = read_run(run)
    (producer,) = [each for each in history.records if each.client == "producer-0"]
    assert (producer.operations, history.unfinished, producer.announced) == (40, 1024 - 40, True)
    assert producer.defects == (
        "producer-0-1.reserved: it has no end mark, its client did not close it",
        "client producer-0 ended with exit code -9",
    )


def test_operations_outside_of_the_runs_time_are_reported(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    rewrite(JOURNAL, lambda lines: [{**line, "t": line["t"] + 10**15} for line in lines])(run)
    doubts = looked_at(run).doubts
    assert "42 operations before the run's start or after its end, by their times" in doubts


def test_the_seal_is_one_document(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    evidence = json.loads((run / "history" / "seal.json").read_text())["evidence"]
    assert evidence["nodes/n1/data"] == {"is": "directory"}
    assert evidence["run.toml"]["bytes"] == (run / "run.toml").stat().st_size
    assert not any(name.endswith("seal.json") or name.startswith("tables") for name in evidence)


@pytest.mark.parametrize("name", ["nodes/n2/data/log-0", "nodes/n2/service.log", "run.toml", JOURNAL])
def test_a_symbolic_link_is_not_evidence_of_the_run(tmp_path: Path, name: str) -> None:
    """Though the run was sealed with it, and what it leads to is right."""
    run = StoredRun(tmp_path / "run").write()
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    seal.seal(run)
    assert f"{name} is neither a file nor a directory: what it shows need not be of this run" in looked_at(run).doubts
