"""Mistakes that each command finds before it starts, and signals that end it."""

import argparse
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from installation.python_modules import module_command, module_environment
from orchestrator.command import check, line
from orchestrator.errors import UsageError
from orchestrator.worlds import selection
from orchestrator.worlds.namespaces import kernel_check

CAMPAIGN = 'name = "mistaken"\n[system]\npath = "{}"\n[workload]\nkind = "log"\n'


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_every_command_and_its_scratch_is_removed(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def works(_: argparse.Namespace) -> int:
        with tempfile.TemporaryDirectory(dir=tmp_path):
            os.kill(os.getpid(), number)
            time.sleep(60)  # ended by the signal
        return 0

    before = signal.getsignal(number)
    monkeypatch.setattr(check, "COMMAND", replace(check.COMMAND, main=works))
    assert line.main(["check", "h.edn"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    assert signal.getsignal(number) == before


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert line.main([*arguments]) == 64
    return capsys.readouterr().err


def test_quorum_describe_names_an_address_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(capsys, "quorum", "describe", "--bootstrap-server", address, "--timeout", "0.2")
    assert address in said
    assert "name a broker that runs" in said


def test_mutants_names_an_unknown_mutant(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown mutant 'bounce_unsen'; did you mean 'bounce_unseen'?" in refused(capsys, "mutants", "bounce_unsen")


def test_a_campaign_names_the_key_of_a_system_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.toml").write_text(CAMPAIGN.format("nowhere"))
    said = refused(capsys, "run", "c.toml")
    assert "c.toml:3: [system] path:" in said
    assert "has no system.toml" in said


READS = {
    "a policy": ("gate.toml", ("gate", "store")),
    "a given policy": ("given.toml", ("gate", "store", "--policy", "given.toml")),
    "a summary": ("store/c/summary.json", ("list", "--store", "store")),
    "a verdict": ("store/c/20260102T030405aa-main-1/verdict.json", ("list", "--store", "store")),
    "a plan": ("store/c/plans/20260102T030405aa.json", ("gate", "store")),
    "the table of runs": ("store/.tables/runs.parquet", ("list", "--store", "store", "--trends")),
    "a system": ("own/system.toml", ("run", "c.toml")),
    "a history": ("h.edn", ("check", "h.edn")),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READS)
def test_no_command_waits_for_a_pipe_or_a_device(name: str, kind: str) -> None:
    file, arguments = READS[name]
    run = Path("store/c/20260102T030405aa-main-1")
    run.mkdir(parents=True)
    (run / "run.toml").touch()
    Path("c.toml").write_text(CAMPAIGN.format("own"))
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    else:
        Path(file).symlink_to("/dev/zero")
    command = [sys.executable, "-m", "orchestrator", *arguments]
    root = Path(line.__file__).parents[2]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (0, 2, 64), done.stderr
    assert "Traceback" not in done.stderr


def test_files_with_the_names_of_modules_are_not_imported() -> None:
    for name in ("history", "analysis", "workloads", "json", "random"):
        Path(f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    command = [*module_command("orchestrator"), "system", "list"]
    done = subprocess.run(command, env=module_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"$venv/bin/python" -P -m orchestrator' in (PROJECT_ROOT / "brownout").read_text()


def test_too_few_open_files_are_found_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(UsageError, match=r"open files: 64 at a time, and a run needs 1024; .*ulimit -n 1024"):
        selection.select_lab("process")


def test_a_low_limit_of_open_files_is_raised_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert selection.open_files().met
    assert limits == [(1024, 4096)]


def test_a_loop_control_that_is_another_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: opened("/dev/null", flags))
    with pytest.raises(OSError, match="does not name a free loop device"):
        kernel_check._loop_devices()
