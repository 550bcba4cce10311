"""From a stored run of registers to its verdict."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.core import registers
from analysis.core.register_operations import RegisterOperation
from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.verdict import Verdict
from analysis.verifiers.register import verify_registers
from history.reader import read_run
from tests.analysis_pipeline.stored_registers import KEYS, OPERATIONS, ROUNDS, StoredRegisters


def judged(run: Path, *, plots: bool = False) -> Verdict:
    return analyze(run, engine="in-process", plots=plots)


def test_registers_without_contradiction_pass_with_a_certificate(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run").write()
    verdict = judged(run, plots=True)
    assert (verdict.verdict, verdict.met, verdict.reasons) == ("pass", True, ())
    assert [check.name for check in verdict.checks] == [
        "record",
        "configuration",
        "requested settings",
        "registers",
        "own checks",
        "load",
        "consumer groups",
        "replicas",
        "timestamp lookups",
        "bootstrap",
        "deletions",
        "administration",
        "remote store",
        "faults",
        "metadata quorum",
        "leaderships",
        "oracles",
        "services",
        "convergence",
        "progress",
        "certificate",
    ]
    assert verdict.stats["operations"] == OPERATIONS + len(KEYS)
    assert verdict.stats["acknowledged"] == 2 * len(KEYS) * ROUNDS
    assert verdict.stats["reads"] == len(KEYS) * (ROUNDS + 1)
    assert verdict.stats["latency_p50_ms"] == 1.0
    assert "linearizable" in verify_registers(run / "certificate", run)
    assert (run / "plots" / "1-latency.png").stat().st_size > 1_000


def test_a_program_without_a_record_may_have_written_any_of_its_values(tmp_path: Path) -> None:
    value = 1_000 << 32  # of a producer that the journal gives to the program
    empty = StoredRegisters(tmp_path / "empty", elsewhere=({"clock": "monotonic"},)).write()
    assert read_run(empty).may_have_written(value)
    assert judged(empty).verdict == "pass"
    run = StoredRegisters(tmp_path / "run", elsewhere=(READ | {"value": None},)).write()
    assert not read_run(run).may_have_written(value)


def test_operations_on_another_register_do_not_count_for_a_planned_one(tmp_path: Path) -> None:
    verdict = judged(StoredRegisters(tmp_path / "run", keys=("k0", "k9", "k2")).write())
    assert verdict.verdict == "unknown"
    assert verdict.reasons == ("no client operated on these planned registers: k1",)


def test_a_stale_read_fails_and_is_shown(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run", stale=True).write()
    verdict = judged(run, plots=True)
    assert verdict.verdict == "fail"
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.promise, anomaly.topic) == ("stale-register-read", "SR", "k2")
    assert not (run / "certificate").exists()
    assert (run / "plots" / "anomaly-0.png").stat().st_size > 1_000
    page = render_run(run).read_text()
    assert "stale-register-read" in page
    assert "c0 read k2 = " in page
    assert Verdict.read(run / "verdict.json") == verdict


def test_a_client_in_any_language_is_checked_with_the_others(tmp_path: Path) -> None:
    read = {"f": "read", "key": "k0", "value": None, "type": "ok", "inv": 1_000_000_000, "ret": 9_000_000_000}

    def verdict_of(name: str, **changes: object) -> Verdict:
        return judged(StoredRegisters(tmp_path / name, elsewhere=(read | changes,)).write())

    assert verdict_of("early").verdict == "pass"
    assert [anomaly.name for anomaly in verdict_of("late", inv=8_000_000_000).anomalies] == ["stale-register-read"]
    assert [anomaly.name for anomaly in verdict_of("unwritten", value=5).anomalies] == ["register-phantom"]
    red = verdict_of("red", colour="red")
    assert red.verdict == "unknown"
    assert any('elsewhere.jsonl:1: "colour" is not a field' in reason for reason in red.reasons)


@pytest.mark.parametrize(("error_ns", "verdict"), [(10**9, "pass"), (10**9 + 1, "unknown"), (50 * 10**9, "unknown")])
def test_a_clock_with_a_large_error_leaves_reads_undecided(tmp_path: Path, error_ns: int, verdict: str) -> None:
    lines = {"clock": "monotonic", "error_ns": error_ns}, WRITTEN | {"value": 1000 << 32}, READ | {"value": 1000 << 32}
    judged_so = judged(StoredRegisters(tmp_path / "run", elsewhere=lines).write())
    assert judged_so.verdict == verdict
    message = f"elsewhere.jsonl: its clock may be {error_ns / 1e9:g} s off, and more than 1 s show nothing"
    assert any(reason.startswith(message) for reason in judged_so.reasons) is (verdict == "unknown")


WRITTEN = {"f": "write", "key": "other", "type": "ok", "inv": 1_030_000_000, "ret": 1_030_000_001}
READ = {"f": "read", "key": "other", "type": "ok", "inv": 1_380_000_000, "ret": 1_380_000_001, "phase": "final"}


@pytest.mark.parametrize(
    ("values", "shown", "verdict"),
    [
        ([16], 17, "unknown"),
        ([16, 1000 << 32], 17, "unknown"),
        ([16, 1000 << 32], 1000 << 32 | 5, "unknown"),
        ([], 17, "unknown"),
        ([1000 << 32], 1499 << 32 | 5, "unknown"),
        ([1000 << 32], 17, "fail"),
    ],
)
def test_a_torn_record_leaves_writes_of_its_client_undecided(
    tmp_path: Path, values: list[int], shown: int, verdict: str
) -> None:
    """That is anything, unless its values are seen to be those that it was given: a program writes what it likes."""
    lines = (*(WRITTEN | {"value": value} for value in values), READ | {"value": shown})
    assert judged(StoredRegisters(tmp_path / "run", elsewhere=lines, torn=9).write()).verdict == verdict


@pytest.mark.parametrize(
    ("killed", "announces", "shown", "verdict"),
    [
        (0, False, 1000 << 32 | 5, "fail"),
        (1, False, 1000 << 32 | 5, "unknown"),
        (1, True, 1000 << 32 | 5, "fail"),
        (1, False, 17, "fail"),
        (1, True, 1000 << 32 | 1, "pass"),
    ],
)
def test_a_killed_program_may_have_written_unannounced_values(
    tmp_path: Path, killed: int, announces: bool, shown: int, verdict: str
) -> None:
    write: dict[str, object] = {**WRITTEN, "value": 1000 << 32}
    lines: tuple[dict[str, object], ...] = (write,)
    if announces:
        asked = {name: value for name, value in write.items() if name != "ret"} | {"type": "invoke"}
        under_way = {**asked, "id": 2, "value": 1000 << 32 | 1}
        lines = ({**asked, "id": 1}, {"id": 1, "type": "ok", "ret": write["ret"]}, under_way)
    run = StoredRegisters(tmp_path / "run", elsewhere=(*lines, READ | {"value": shown}), killed=killed).write()
    found = judged(run)
    assert found.verdict == verdict, found.reasons


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"min_ok": 1_000}, f"only {2 * len(KEYS) * ROUNDS} acknowledged writes, 1000 are needed"),
        ({"final_reads": False}, "register k1 was not read after healing"),
        ({"phases": ("setup", "main")}, "the run ended in phase main, not by its plan"),
    ],
)
def test_any_missing_evidence_makes_a_run_unknown(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    verdict = judged(StoredRegisters(tmp_path / "run", **change).write())  # type: ignore[arg-type]
    assert verdict.verdict == "unknown"
    assert reason in verdict.reasons


def test_a_run_without_operations_is_unknown(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run", min_ok=0).write()
    for path in (run / "history" / "operations").iterdir():
        path.unlink()
    verdict = judged(run)
    assert verdict.verdict == "unknown"
    assert "no read of a register was answered: nothing was checked" in verdict.reasons


def test_the_certificate_has_the_orders_of_the_check_which_are_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained: list[int] = []
    explain = registers.explain_order

    def counted(operations: Sequence[RegisterOperation], *, budget: int) -> list[RegisterOperation] | None:
        explained.append(len(operations))
        return explain(operations, budget=budget)

    monkeypatch.setattr(registers, "explain_order", counted)
    run = StoredRegisters(tmp_path / "run").write()
    verdict = analyze(run, engine="in-process", plots=False)
    assert (verdict.verdict, len(explained)) == ("pass", len(KEYS))
    assert (run / "certificate" / "registers.json").exists()


def test_a_run_that_fails_keeps_no_part_of_a_certificate(tmp_path: Path) -> None:
    run = StoredRegisters(tmp_path / "run", stale=True).write()
    assert analyze(run, engine="in-process", plots=False).verdict == "fail"
    assert not (run / "certificate").exists()
