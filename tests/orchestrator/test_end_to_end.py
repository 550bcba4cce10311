"""A whole small run: three brokers as plain processes, real clients, kill -9, and the verdict."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from history.reader import read_run
from orchestrator.command.line import main
from tests.campaign_text import campaign_text, random_faults

ROOT = Path(__file__).resolve().parents[2]

SMALL = campaign_text(
    "small",
    topology={"world": "process"},
    broker={"min.insync.replicas": 2, "broker.session.timeout.ms": 1500, "broker.lease.ms": 1000},
    workload={"partitions": 2, "producers": 1, "consumers": 1, "rate": 60, "duration_s": 4},
    nemesis=random_faults("kill", interval_s=[0.5, 0.5], duration_s=[0.5, 0.5]),
    # however slow the machine is
    checks={"min_ok": 5, "min_share": 0.05, "required_faults": ["kill"]},
)


@pytest.fixture
def campaign_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def only_run(store: Path) -> Path:
    (run,) = [path.parent for path in (store / "small").glob("*/run.toml")]
    return run


@pytest.mark.rotating(13, among="real-time campaigns")
def test_a_cluster_with_killed_brokers_passes(campaign_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ["run", str(campaign_file), "--store", str(store), "--engine", "in-process", "--quiet"]
    code = main(arguments)

    run = only_run(store)
    verdict = json.loads((run / "verdict.json").read_text())
    assert (code, verdict["verdict"], verdict["reasons"]) == (0, "pass", [])
    assert verdict["stats"]["acknowledged"] >= 5
    assert {fault["kind"] for fault in verdict["faults"] if fault["status"] == "confirmed"} == {"kill"}
    assert verdict["world"] == "process"
    assert any("no power loss" in limit for limit in verdict["limits"])
    assert (store / "latest").resolve() == run
    assert tomllib.loads((run / "run.toml").read_text())["replay"] == verdict["replay"]
    for name in (
        "report.html",
        "campaign.toml",
        "nodes/n1/events.jsonl",
        "nodes/n3/data/log-0",
        "clients/probe.log",
        "plots/1-latency.png",
    ):
        assert (run / name).exists(), name
    for name in ("report.html", "junit.xml", "summary.json"):
        assert (store / "small" / name).exists(), name
    assert main(["gate", str(store / "small")]) == 0


def start(campaign_file: Path, store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "orchestrator", "run", str(campaign_file), "--store", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, "--engine", "in-process"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )


def wait_for(words: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"the run ended without a word of {words!r}")


def processes_of(run: Path) -> list[str]:
    """Command lines that name this run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(run) in line:
            found.append(line)
    return found


def wait_until_gone(run: Path) -> list[str]:
    """The remains of a run after at most five seconds: after a longer time, a process that ends on its own would count
    as ended."""
    give_up = time.monotonic() + 5
    while (left := processes_of(run)) and time.monotonic() < give_up:
        time.sleep(0.02)
    return left


@pytest.mark.rotating(4, among="interrupted runs")
def test_an_interrupted_run_leaves_only_its_record(campaign_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = start(campaign_file, store)
    wait_for("first acknowledged operation", process)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=180)

    assert process.returncode == 130, words
    assert f"./brownout run {campaign_file} --resume" in words
    run = only_run(store)
    assert wait_until_gone(run) == []
    assert (run / "nodes" / "n1" / "data").is_dir()
    assert main(["analyze", "latest", "--store", str(store), "--engine", "in-process"]) == 2
    reasons = json.loads((run / "verdict.json").read_text())["reasons"]
    assert "the run was not finished: it was interrupted" in reasons


def on_terminal(campaign_file: Path, store: Path) -> tuple[int, int]:
    """Start a run on a terminal of its own; its pid, and the terminal."""
    command = [sys.executable, "-m", "orchestrator", "run", str(campaign_file), "--store", str(store)]
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may be running under nohup
        os.chdir(ROOT)
        os.execve(sys.executable, [*command, "--engine", "in-process"], {**os.environ, "PYTHONPATH": str(ROOT)})
    return pid, terminal


@pytest.mark.rotating(4, among="interrupted runs")
def test_a_terminal_shows_the_next_command_ready_to_copy(campaign_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    pid, terminal = on_terminal(campaign_file, store)
    shown = b""
    with open(terminal, "r+b", buffering=0) as screen:
        while b"first acknowledged operation" not in shown:
            shown += screen.read(4096)
        screen.write(b"\x03")
        with contextlib.suppress(OSError):  # how a terminal ends
            while more := screen.read(4096):
                shown += more
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 130
    said = shown.decode()[shown.decode().index("brownout: stopped") :]
    assert f"/brownout run {campaign_file} --resume --store {store}\r\n" in said
    assert "collect" not in said, "no line that changes is left below it"


@pytest.mark.rotating(4, among="interrupted runs")
def test_a_run_ends_in_order_when_its_terminal_closes(campaign_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    pid, terminal = on_terminal(campaign_file, store)
    with open(terminal, "rb", buffering=0) as screen:
        shown = b""
        while b"first acknowledged operation" not in shown:
            shown += screen.read(4096)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 130
    run = only_run(store)
    assert wait_until_gone(run) == []
    notes = [line.get("text") for line in read_run(run).journal]
    assert "the run was not finished: it was interrupted" in notes


@pytest.mark.rotating(4, among="interrupted runs")
def test_a_killed_run_leaves_no_process_and_can_be_analyzed(campaign_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = start(campaign_file, store)
    wait_for("first acknowledged operation", process)
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()

    run = only_run(store)
    assert wait_until_gone(run) == []
    assert read_run(run).logs.rows.num_rows >= 0
    assert main(["analyze", str(run), "--store", str(store), "--engine", "in-process"]) == 2
