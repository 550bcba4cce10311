"""Faults, steps, processes and load: the record must show each of them, or the run does not pass."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.checkers.faults import contradictions
from analysis.evidence.load import load_of
from analysis.evidence.run_directory import settings_in
from analysis.pipeline import analyze
from analysis.report import worth_of_run
from analysis.verdict import Verdict
from history.checksummed_lines import CHECKSUM, NUMBER, text_of
from history.reader import read_run
from history.seal import seal
from orchestrator.campaign import toml_text
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun
from tests.mutations.stored import Stored
from tests.mutations.streams import rewrite

Line = dict[str, Any]
Change = Callable[[list[Line]], list[Line]]


def judged(path: Path, change: Change, **plan: Any) -> Verdict:
    """The verdict over a passing run whose journal was changed, and its plan (`table__key`)."""
    run = StoredRun(path).write()
    journal = run / "history" / "journal.jsonl"
    lines = change([json.loads(line) for line in journal.read_text().splitlines()])
    journal.write_bytes(text_of({key: line[key] for key in line if key not in (NUMBER, CHECKSUM)} for line in lines))
    content = tomllib.loads((run / "run.toml").read_text())
    for key, value in plan.items():
        table, _, name = key.partition("__")
        content[table][name] = value
    (run / "run.toml").write_text(toml_text.dump(content))
    seal(run)
    return analyze(run, engine="in-process", plots=False)


def same(lines: list[Line]) -> list[Line]:
    return lines


def without(event: str, **fields: Any) -> Change:
    def change(lines: list[Line]) -> list[Line]:
        return [line for line in lines if line["event"] != event or any(line.get(k) != v for k, v in fields.items())]

    return change


def having(event: str, **fields: Any) -> Change:
    """The lines of this event with other fields; a function makes the new value from the old one."""

    def change(lines: list[Line]) -> list[Line]:
        return [
            line | {key: new(line[key]) if callable(new) else new for key, new in fields.items()}
            if line["event"] == event
            else line
            for line in lines
        ]

    return change


def twice(event: str) -> Change:
    return lambda lines: [again for line in lines for again in [line] * (2 if line["event"] == event else 1)]


def before_the_end(lines: list[Line], *more: Line) -> list[Line]:
    """The lines with these before the last one."""
    when = {key: lines[-1][key] for key in ("t", "wall")}
    return [*lines[:-1], *({**when, **line} for line in more), lines[-1]]


def healed(status: str = "confirmed", **facts: Any) -> Line:
    return {"healed": {"status": status, "detail": {"n2": facts}}}


def kept() -> Line:
    return {"healed": {"status": "mismatch", "detail": {"n2": {}, "because": ["n2: its disk kept all of it"]}}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (having("fault_injected", evidence={}), "fault f1 (kill) is called confirmed, but not by its evidence: it is"),
        (
            having("fault_injected", evidence={"n2": {"state": "S"}}),
            "fault f1 (kill) is called confirmed, but not by its evidence: n2: state is 'S', not 'gone'",
        ),
        (having("fault_injected", evidence={"n1": {"state": "gone"}}), "it says nothing of n2"),
        (having("fault_injected", evidence={"n2": {"pid": 7}}), "n2: state is missing"),
        (
            having("fault_injected", status="inconclusive", evidence={"already": ["n2: its service had ended before"]}),
            "fault f1 (kill) is inconclusive: no proof that it took effect (n2: its service had ended before)",
        ),
        (
            having("fault_injected", status="inconclusive", evidence={"n2": {"error": "flip.py:7: KeyError: 'x'"}}),
            "fault f1 (kill) is inconclusive: no proof that it took effect (n2: flip.py:7: KeyError: 'x')",
        ),
        (
            having("fault_healed", status="mismatch", evidence=kept()),
            "fault f1 (kill) is mismatch: no proof that it took effect (n2: its disk kept all of it)",
        ),
        (without("fault_injected"), "fault f1 (kill) was started, but its result is not on record"),
        (without("fault_invoked"), "is a fault_injected of f1, which was never invoked"),
        (without("fault_healed"), "fault f1 (kill) was never healed"),
        (having("fault_healed", evidence={}), "nothing shows that fault f1 (kill) was healed"),
        (
            having("fault_healed", evidence=healed("mismatch", port="closed")),
            "fault f1 (kill): its heal is mismatch, so when it ended is not known",
        ),
        (
            having("fault_healed", evidence=healed(port="closed")),
            "fault f1 (kill) is called healed, but not by its evidence: n2: port is 'closed', not 'open'",
        ),
        (having("fault_healed", evidence=healed(status="inconclusive")), "its heal is inconclusive"),
        (having("fault_healed", id="f9"), "is a fault_healed of f9, which was never invoked"),
        (twice("fault_injected"), "fault f1 (kill): the record has fault_injected 2 times"),
        (lambda lines: [line for line in lines if "fault" not in line["event"]], "fault kill was required and never"),
        (having("fault_invoked", kind="pause"), "fault kill was required and never confirmed"),
        (without("heal_all"), "the final heal of everything has no evidence: heal_all is not on record"),
        (having("heal_all", status="mismatch"), "healing everything in the end was mismatch: services: n1: port: open"),
        (having("heal_all", evidence={}), "healing everything in the end was confirmed: nothing"),
    ],
)
def test_a_fault_without_evidence_of_its_start_and_end_is_in_doubt(tmp_path: Path, change: Change, reason: str) -> None:
    verdict = judged(tmp_path / "run", change)
    assert verdict.verdict == "unknown"
    assert any(reason in stated for stated in verdict.reasons), verdict.reasons


def test_a_fault_with_its_evidence_and_its_heal_passes(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "run", same)
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    (found,) = [check for check in verdict.checks if check.name == "faults"]
    assert found.detail == ("1 fault injected, proven and healed; in the end everything was found healed (services)")


def test_every_kind_of_a_random_schedule_must_have_occurred(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "run", same, nemesis__faults=["kill", "pause"])
    assert verdict.verdict == "unknown"
    assert "fault pause was planned and never confirmed" in verdict.reasons
    assert verdict.never_seen == ()


@pytest.mark.parametrize(("done", "verdict"), [((1, 2, 3), "pass"), ((1, 3), "unknown"), ((), "unknown")])
def test_every_step_of_a_script_must_be_done(tmp_path: Path, done: tuple[int, ...], verdict: str) -> None:
    def walked(lines: list[Line]) -> list[Line]:
        heal = next(at for at, line in enumerate(lines) if line.get("name") == "heal")
        when = {key: lines[heal][key] for key in ("t", "wall")}
        steps = [{**when, "event": "step_done", "step": number} for number in done]
        return [*lines[:heal], *steps, *lines[heal:]]

    steps = [f"step {number} (kill n{number})" for number in (1, 2, 3)]
    found = judged(tmp_path / "run", walked, nemesis__kind="steps", nemesis__steps=steps)
    assert found.verdict == verdict
    if verdict == "unknown":
        missing = "step 2 (kill n2)" if done else "step 1 (kill n1), and 2 more"
        assert f"not every step of the script is on record as done: {missing}" in found.reasons


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("node", node="n3", what="running"), "the process on n3 was not seen to run after the last heal"),
        (
            having("node", t=lambda _: 5),
            "the process on n1 was not seen to run after the last heal",
        ),
        (
            lambda lines: [line | {"status": None} if line.get("what") == "stopped" else line for line in lines],
            "how the process on n2 ended, when it was asked to, is not known",
        ),
        (without("node", node="n1"), "the process on n1 was not seen to run after the last heal"),
    ],
    ids=["not seen", "seen before the heal", "no status", "no node"],
)
def test_a_process_not_observed_to_the_end_is_in_doubt(tmp_path: Path, change: Change, reason: str) -> None:
    verdict = judged(tmp_path / "run", change)
    assert verdict.verdict == "unknown"
    assert reason in verdict.reasons


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"way": "restarted", "signal": 9},
            "the process on n2 ended by signal 9 (SIGKILL), and another one was started in its place, though the run",
        ),
        ({"way": "stood still"}, "the process on n2 was suspended (all its threads were stopped), though the run"),
        ({"way": "not up", "exit_code": 1}, "when it had just been started, though nothing was done to it"),
        (
            {"way": "not up", "exit_code": 0, "last_words": "daemon"},
            "; a command of system.toml is to stay in the foreground; its last words: daemon",
        ),
        (
            {"way": "ended badly", "exit_code": 70},
            "ended with exit code 70 when it was asked to end, which its system does not declare (stop_exit_codes)",
        ),
        (
            {"way": "ended", "signal": 9, "kernel": "Killed process 7"},
            "ended by the kernel for lack of memory (Killed process 7), though nothing was done to it",
        ),
        ({"way": "ended", "signal": 6, "core": "/data/core.7"}, "it left a core dump: /data/core.7"),
        (
            {"way": "ended", "last_words": "panic: no quorum\n\ngoroutine 1 [running]:\nmain.main()\n"},
            "its last words: panic: no quorum",
        ),
        (
            {"way": "ended", "last_words": "Traceback (most recent call last):\n  x.py\nKeyError: 'a'\n"},
            "its last words: KeyError: 'a'",
        ),
    ],
)
def test_an_unexpected_exit_is_described_in_a_sentence(tmp_path: Path, fields: Line, sentence: str) -> None:
    event = {"event": "service_exit", "node": "n2", "exit_code": None, "signal": None, "last_words": ""}
    verdict = judged(tmp_path / "run", lambda lines: before_the_end(lines, event | fields))
    assert verdict.verdict == "fail"
    (anomaly,) = verdict.anomalies
    assert anomaly.name == "unexpected-exit"
    assert sentence in anomaly.sentence


def test_a_crashed_process_is_an_anomaly_and_not_also_a_doubt(tmp_path: Path) -> None:
    def crashed(lines: list[Line]) -> list[Line]:
        ended = {"event": "service_exit", "node": "n3", "exit_code": 1, "signal": None, "last_words": ""}
        return before_the_end(without("node", node="n3")(lines), ended)

    verdict = judged(tmp_path / "run", crashed)
    assert verdict.verdict == "fail"
    assert [anomaly.name for anomaly in verdict.anomalies] == ["unexpected-exit"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"checks__min_ok": RECORDS + 1}, f"only {RECORDS} acknowledged appends, {RECORDS + 1} are needed"),
        ({"checks__min_queries": 9}, "only 0 answered queries of logs' ends under load, 9 are needed"),
        (
            {"checks__min_ok": 1, "plan__changes": 2 * RECORDS + 1},
            "only 49% of the 81 planned appends were acknowledged under load, 50% are needed (min_share of [checks])",
        ),
        (
            {"checks__min_share": 0.9, "plan__changes": 50},
            "only 80% of the 50 planned appends were acknowledged under load, 90% are needed (min_share of [checks])",
        ),
        ({"checks__min_share": 7}, "run.toml: [checks] min_share is 7: expected float <= 1.0"),
        ({"checks__min_share": float("nan")}, "run.toml: [checks] min_share is nan: expected float >= 0.0"),
        ({"checks__min_share": True}, "run.toml: [checks] min_share is true: expected float, got bool"),
        ({"checks__min_share": "half"}, 'run.toml: [checks] min_share is "half": expected float, got str'),
    ],
)
def test_less_load_than_is_needed_proves_too_little(tmp_path: Path, plan: Line, reason: str) -> None:
    verdict = judged(tmp_path / "run", same, **plan)
    assert verdict.verdict == "unknown"
    assert reason in verdict.reasons


def test_half_of_the_planned_load_is_enough(tmp_path: Path) -> None:
    assert judged(tmp_path / "run", same, plan__changes=2 * RECORDS).verdict == "pass"


@pytest.mark.parametrize(("behind", "verdict"), [(RECORDS - 2, "pass"), (RECORDS - 1, "unknown")])
def test_a_load_that_ended_before_the_first_fault_is_unknown(tmp_path: Path, behind: int, verdict: str) -> None:
    run = StoredRun(tmp_path / "run", fault_behind=behind).write()
    found = analyze(run, engine="in-process", plots=False)
    assert found.verdict == verdict
    assert any("the faults met no load" in reason for reason in found.reasons) == (verdict == "unknown")


def test_the_reason_for_an_unfinished_run_is_first(tmp_path: Path) -> None:
    said = "the run was not finished: n1: the service's port 7000 did not open within 30 s"

    def unfinished(lines: list[Line]) -> list[Line]:
        left = without("phase", name="done")(lines)
        return before_the_end(left, {"event": "note", "text": said, "unfinished": True})

    reasons = judged(tmp_path / "run", unfinished).reasons
    assert reasons[0] == said
    assert "the run ended in phase collect, not by its plan" in reasons


def test_one_acknowledged_append_is_counted_in_the_singular(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    rewrite(Stored(run), "producer-0-1.arrows", lambda rows: [rows[0], *(row | {"acks": 1} for row in rows[1:])])
    seal(run)
    reason = analyze(run, engine="in-process", plots=False).reasons[0]
    assert reason.startswith(f"only 1 acknowledged append, {RECORDS} are needed")


def test_appends_with_weak_acks_do_not_count_as_acknowledged_load(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    rewrite(Stored(run), "producer-0-1.arrows", lambda rows: [row | {"acks": 1} for row in rows])
    seal(run)
    verdict = analyze(run, engine="in-process", plots=False)
    assert verdict.verdict == "unknown"
    weak = f"; {RECORDS} more had a lower acks than -1, which no rule protects"
    assert verdict.reasons[:2] == (
        f"only 0 acknowledged appends, {RECORDS} are needed{weak}",
        f"only 0% of the {RECORDS} planned appends were acknowledged under load, 50% are needed (min_share of [checks])"
        f"{weak}",
    )
    assert (verdict.stats["acknowledged"], verdict.stats["acknowledged_weak"]) == (0, RECORDS)


def with_acks(run: Path, weak: int) -> Path:
    """The run, with acks = 1 for its last `weak` appends."""

    def changed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"acks": 1 if number >= RECORDS - weak else -1} for number, row in enumerate(rows)]

    if weak:
        rewrite(Stored(run), "producer-0-1.arrows", changed)
        seal(run)
    return run


@pytest.mark.parametrize(("weak", "verdict"), [(0, "pass"), (1, "unknown")])
def test_an_append_that_no_rule_protects_counts_for_no_minimum(tmp_path: Path, weak: int, verdict: str) -> None:
    run = with_acks(StoredRun(tmp_path / "run").write(), weak)
    found = analyze(run, engine="in-process", plots=False)
    assert found.verdict == verdict, found.reasons
    assert (found.stats["acknowledged"], found.stats["acknowledged_weak"]) == (RECORDS - weak, weak)
    assert worth_of_run(found).startswith(f"{RECORDS - weak} acknowledged changes under 1 confirmed fault")


def test_appends_with_weak_acks_do_not_count_as_load_under_faults(tmp_path: Path) -> None:
    """After the first fault only appends with acks = 1 were under way."""
    run = StoredRun(tmp_path / "run", min_ok=1, fault_behind=RECORDS // 2)
    verdict = analyze(with_acks(run.write(), RECORDS // 2), engine="in-process", plots=False)
    assert verdict.verdict == "unknown"
    assert any("the faults met no load" in reason for reason in verdict.reasons), verdict.reasons


def test_writes_of_probes_after_the_load_do_not_count_as_load(tmp_path: Path) -> None:
    history = read_run(StoredRun(tmp_path / "run").write())
    half = history.logs.rows["inv"][RECORDS // 2].as_py()
    earlier = [line | ({"t": half} if line.get("name") == "quiesce" else {}) for line in history.journal]
    changed = replace(history, journal=earlier)
    assert load_of(history).changes_under_load == load_of(history).changes == RECORDS
    assert load_of(changed).changes_under_load == RECORDS // 2
    assert load_of(changed).changes == RECORDS


def test_the_verdict_states_the_achieved_share_of_the_plan(tmp_path: Path) -> None:
    """A campaign with a throttled load states the share with which a run may pass."""
    verdict = judged(tmp_path / "run", same, plan__changes=4 * RECORDS, checks__min_share=0.25)
    assert verdict.verdict == "pass"
    assert (verdict.stats["planned_changes"], verdict.stats["achieved_share"]) == (4 * RECORDS, 0.25)
    (found,) = [check for check in verdict.checks if check.name == "load"]
    assert found.detail.endswith("under load 25% of 160 planned changes")


@pytest.mark.parametrize(("least", "verdict"), [(1, "pass"), (10_000, "unknown")])
def test_registers_need_reads_under_load(tmp_path: Path, least: int, verdict: str) -> None:
    run = StoredRegisters(tmp_path / "run").write()
    text = (run / "run.toml").read_text()
    (run / "run.toml").write_text(text.replace("min_queries = 0", f"min_queries = {least}"))
    seal(run)
    found = analyze(run, engine="in-process", plots=False)
    assert found.verdict == verdict
    assert any("answered reads under load, 10000 are needed" in reason for reason in found.reasons) == (least > 1)


@pytest.mark.parametrize(
    ("must", "facts", "said"),
    [
        ({"key": "off", "values": [True]}, {"off": True}, []),
        ({"key": "off", "values": [True]}, {"off": False}, ["n1: off is false, not true"]),
        ({"key": "after", "unlike": ["T"]}, {"after": "S"}, []),
        ({"key": "after", "unlike": ["T"]}, {"after": "T"}, ["n1: after is 'T'"]),
        ({"key": "service.port", "values": ["open"]}, {"service": {"port": "open"}}, []),
        ({"key": "service.port", "values": ["open"]}, {"service": 7}, ["n1: service.port is missing"]),
        ({"key": "boot", "differs_from": "before"}, {"boot": "b", "before": "a"}, []),
        ({"key": "boot", "differs_from": "before"}, {"boot": "a", "before": "a"}, ["n1: boot is 'a', as before is"]),
        ({"key": "dropped", "least": 1}, {"dropped": 2}, []),
        (
            {"key": "dropped", "least": 1},
            {"dropped": 0},
            ["n1: dropped is 0, at least 1 is needed"],
        ),
    ],
)
def test_evidence_must_show_the_effects_that_the_fault_declares(must: Line, facts: Line, said: list[str]) -> None:
    assert contradictions([must], {"n1": facts}, ["n1"]) == said


def test_evidence_of_a_compound_fault_must_show_each_of_its_parts() -> None:
    must = [{"key": "dropped", "of": "fault", "least": 1}]
    assert contradictions(must, {"dropped": {"a->b": 3, "b->a": 1}}, ["n1"]) == []
    for dropped in ({"a->b": 3, "b->a": 0}, {}):
        (said,) = contradictions(must, {"dropped": dropped}, ["n1"])
        assert "at least 1 is needed" in said


def test_the_settings_that_a_script_changes_are_read_from_its_steps() -> None:
    steps = [
        "step 1 (produce 2 to 0 with acks=all)",
        "step 2 (configure the topic: retention.bytes=12000, local.retention.ms=-2) - it deletes records (all)",
        "step 3 (configure n1: log.retention.ms=5)",
    ]
    assert settings_in(steps) == {"retention.bytes": "12000", "local.retention.ms": "-2", "log.retention.ms": "5"}
    assert settings_in(["step 1 (wait for offset: name=log-start, at_least=2)"]) == {}
