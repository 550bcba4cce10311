"""`brownout run --jobs N`: simulated runs side by side."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.campaign_text import campaign_text, random_faults
from tests.orchestrator.stored_campaign import ask


def campaign(directory: Path, count: int) -> Path:
    path = directory / "short.toml"
    path.write_text(
        campaign_text(
            "short",
            topology={"world": "simulation"},
            seeds={"count": count},
            workload={"partitions": 1, "producers": 1, "consumers": 0, "rate": 10, "duration_s": 6},
            nemesis=random_faults("kill", interval_s=[0.5, 0.5], duration_s=[0.5, 0.5]),
            checks={"min_ok": 1, "min_share": 0.05},
        )
    )
    return path


def results(store: Path) -> dict[int, tuple[str, str]]:
    """By seed: the verdict, and the digest of everything that the simulation did."""
    found = {}
    for path in (store / "short").glob("*/verdict.json"):
        verdict = json.loads(path.read_text())
        summary = json.loads((path.parent / "simulation.json").read_text())
        found[verdict["seed"]] = (verdict["verdict"], summary["digest"])
    return found


@pytest.mark.rotating(13, among="real-time campaigns")
def test_runs_side_by_side_are_the_same_runs(tmp_path: Path) -> None:
    path = campaign(tmp_path, 2)
    one_by_one, side_by_side = tmp_path / "a", tmp_path / "b"
    assert ask("run", path, "--store", one_by_one, "--quiet").code == 0
    answer = ask("run", path, "--store", side_by_side, "--jobs", "2")
    assert answer.code == 0, answer.err
    assert results(one_by_one) == results(side_by_side)
    assert [verdict for verdict, _ in results(side_by_side).values()] == ["pass", "pass"]
    assert answer.err.count("pass, expected pass") == 2
    assert list((side_by_side / ".labs").glob("*")) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--world", "process"], "the process world makes one run at a time"),
        (["--engine", "spark"], "each process analyzes its runs itself"),
        (["--jobs", "0"], "not a number of at least 1"),
    ],
)
def test_options_that_exclude_parallel_runs_are_wrong_usage(tmp_path: Path, options: list[str], why: str) -> None:
    answer = ask("run", campaign(tmp_path, 2), "--store", tmp_path / "store", "--jobs", "2", *options)
    assert (answer.code, why in answer.err) == (64, True), answer.err
    assert not list((tmp_path / "store").glob("*/*"))


@pytest.mark.rotating(2, among="interrupted runs")
def test_an_interrupt_keeps_the_runs_that_had_started_and_the_rest_can_be_resumed(tmp_path: Path) -> None:
    path, store = campaign(tmp_path, 30), tmp_path / "store"
    words = ["run", str(path), "--store", str(store), "--jobs", "2"]
    process = subprocess.Popen([sys.executable, "-m", "orchestrator", *words], stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + 120
    while not results(store):
        assert process.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "--resume" in said
    made = results(store)
    assert 1 <= len(made) < 30
    assert len(made) == len(list((store / "short").glob("*/run.toml"))), "each run that started has its verdict"
    resumed = ask("run", path, "--store", store, "--resume", "--dry-run")
    assert resumed.code == 0


def started(path: Path, store: Path, *, before: str = "") -> subprocess.Popen[str]:
    """The campaign, two runs at a time. `before`: a shell command that comes first."""
    words = [sys.executable, "-m", "orchestrator", "run", str(path), "--store", str(store), "--jobs", "2", "--no-plots"]
    shell = ["/bin/sh", "-c", f'{before}exec "$@"', "sh", *words]
    return subprocess.Popen(shell, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def workers_of(process: int) -> list[int]:
    """The processes that make the runs of this one."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(each) for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.rotating(2, among="interrupted runs")
def test_a_worker_that_is_killed_ends_the_command_with_the_reason_and_the_rest_can_be_resumed(tmp_path: Path) -> None:
    path, store = campaign(tmp_path, 30), tmp_path / "store"
    process = started(path, store)
    give_up = time.monotonic() + 240
    while not results(store):
        assert process.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.05)
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=240)
    assert process.returncode not in (0, 1, 64), said
    assert "a process that made runs ended unexpectedly" in said
    assert "Traceback" not in said
    assert list(store.rglob("*.tmp")) == []
    assert ask("run", path, "--store", store, "--resume", "--dry-run").code == 0


@pytest.mark.rotating(2, among="interrupted runs")
def test_runs_on_a_full_disk_are_unknown_without_a_partial_page(tmp_path: Path) -> None:
    store = tmp_path / "store"
    # No file is larger than 17 KB. Python would store cut modules.
    process = started(campaign(tmp_path, 2), store, before="export PYTHONDONTWRITEBYTECODE=1; ulimit -f 34; ")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 2, said
    assert "File too large" in said
    assert "Traceback" not in said
    verdicts = [json.loads(each.read_text()) for each in store.glob("short/*/verdict.json")]
    assert [each["verdict"] for each in verdicts] == ["unknown", "unknown"]
    # A verdict that is too large itself leaves one that names its error.
    full = re.compile(r"ran out of disk|File too large")
    assert all(any(full.search(reason) for reason in each["reasons"]) for each in verdicts)
    assert list(store.rglob("*.tmp")) == []
