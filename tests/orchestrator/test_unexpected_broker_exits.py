"""A broker that exits unexpectedly is a finding and ends the run immediately; its last lines give the reason."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from history.journal.writer import Journal
from installation.files import PROJECT_ROOT
from orchestrator.command.line import main
from orchestrator.worlds.namespaces.requirements import missing
from tests.orchestrator.live_run import LiveRun

pytestmark = pytest.mark.rotating(13, among="real-time campaigns")
UNDRAWN = ("--engine", "in-process", "--no-plots", "--quiet")
ALIEN = """
name = "alien"
[topology]
world = "process"
[broker.n2]
"cluster.id" = "another"
"""


def test_the_run_does_not_wait_for_an_ended_broker(tmp_path: Path) -> None:
    campaign = tmp_path / "alien.toml"
    campaign.write_text(ALIEN)
    code = main(["run", str(campaign), "--store", str(tmp_path / "store"), *UNDRAWN])

    (verdict_file,) = (tmp_path / "store" / "alien").glob("*/verdict.json")
    verdict = json.loads(verdict_file.read_text())
    assert (code, verdict["verdict"]) == (1, "fail")
    (found,) = verdict["anomalies"]
    assert found["name"] == "unexpected-exit"
    assert "n2 ended with exit code 70" in found["sentence"]
    assert "correct cluster.id" in found["sentence"]
    journal = next((tmp_path / "store" / "alien").glob("*/history/journal.jsonl")).read_text()
    assert "n2: the service has ended unexpectedly" in journal
    assert "not within" not in journal
    assert not (verdict_file.parent / "plots").exists(), "--no-plots was given"


MORTAL = """
name = "mortal"
[topology]
world = "process"
[workload]
partitions = 1
producers = 1
consumers = 0
duration_s = 0.1
"""


def test_a_broker_that_exits_after_all_heals_is_found_and_the_run_completes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, note_phase = tmp_path / "mortal.toml", Journal.phase
    campaign.write_text(MORTAL)

    def phase(journal: Journal, name: str) -> int:
        if name == "quiesce":
            os.kill(broker_of("n3", tmp_path), signal.SIGKILL)
        return note_phase(journal, name)

    monkeypatch.setattr(Journal, "phase", phase)
    code = main(["run", str(campaign), "--store", str(tmp_path / "store"), *UNDRAWN])

    (run,) = [path.parent for path in (tmp_path / "store" / "mortal").glob("*/run.toml")]
    verdict = json.loads((run / "verdict.json").read_text())
    assert (code, verdict["verdict"]) == (1, "fail")
    assert "unexpected-exit" in {anomaly["name"] for anomaly in verdict["anomalies"]}
    journal = [json.loads(line) for line in (run / "history" / "journal.jsonl").read_text().splitlines()]
    assert [line["node"] for line in journal if line["event"] == "service_exit"] == ["n3"]
    assert [line["name"] for line in journal if line["event"] == "phase"][-1] == "done"


WORLDS = [
    "process",
    pytest.param(
        "namespaces",
        marks=pytest.mark.skipif(
            bool(missing()), reason=f"needs what namespaces need: {' / '.join(map(str, missing()))}"
        ),
    ),
]


def exits(verdict: dict[str, Any]) -> list[str]:
    assert verdict["verdict"] == "fail"
    return [each["sentence"] for each in verdict["anomalies"] if each["name"] == "unexpected-exit"]


@pytest.mark.parametrize("world", WORLDS)
def test_a_broker_killed_from_outside_is_found(tmp_path: Path, world: str) -> None:
    run = LiveRun(tmp_path, world)
    run.await_line(event="note", text="first_ack")
    os.kill(run.broker("n2"), signal.SIGKILL)
    (sentence,) = exits(run.verdict())
    assert "the process on n2 ended by signal 9 (SIGKILL), though nothing was done to it" in sentence


@pytest.mark.parametrize("world", WORLDS)
def test_a_broker_suspended_from_outside_is_found_and_the_run_completes(tmp_path: Path, world: str) -> None:
    run = LiveRun(tmp_path, world)
    run.await_line(event="note", text="first_ack")
    os.kill(run.broker("n3"), signal.SIGSTOP)
    (sentence,) = exits(run.verdict())
    assert "the process on n3 was suspended (all its threads were stopped)" in sentence
    assert run.journal()[-1]["name"] == "done", "it was woken with everything else that was healed"


def test_a_broker_restarted_by_another_process_is_found(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, "process")
    run.await_line(event="note", text="first_ack")
    pid = run.broker("n2")
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    directory = os.readlink(f"/proc/{pid}/cwd")
    os.kill(pid, signal.SIGKILL)
    environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}
    with subprocess.Popen(words, cwd=directory, env=environment, stderr=subprocess.DEVNULL) as again:
        try:
            assert any("the process on n2 ended by signal 9" in each for each in exits(run.verdict()))
        finally:
            again.kill()


# Exits when it has some records; until then it is our broker.
MORTAL_BROKER = """\
import os, pathlib, runpy, sys, threading, time
sys.path.pop(0)  # where a module lies that is called broker, too
data = pathlib.Path(sys.argv.pop())
def live():
    while sum(path.stat().st_size for path in data.rglob("*.log")) < 4000:
        time.sleep(0.05)
    print("assertion failed: the log is full")
    sys.stdout.flush()
    os._exit(3)
threading.Thread(target=live, daemon=True).start()
runpy.run_module("broker", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("world", WORLDS)
def test_a_broker_that_exits_after_a_failed_assertion_is_found(tmp_path: Path, world: str) -> None:
    own = tmp_path / "mortal"
    shutil.copytree(PROJECT_ROOT / "systems" / "brownout", own, ignore=shutil.ignore_patterns("__pycache__"))
    description = (own / "system.toml").read_text()
    description = description.replace('name = "brownout"', 'name = "mortal"')
    description = description.replace('"-m", "broker"', '"{{ system_dir }}/mortal.py"')
    description = description.replace('server.properties"]', 'server.properties", "{{ node.data_dir }}"]', 1)
    (own / "system.toml").write_text(description)
    (own / "mortal.py").write_text(MORTAL_BROKER)
    run = LiveRun(tmp_path, world, more='[system]\npath = "mortal"\n', duration_s=3)
    sentences = exits(run.verdict())
    assert sentences
    assert all("ended with exit code 3, though nothing was done to it" in each for each in sentences)
    assert "its last words: assertion failed: the log is full" in sentences[0]


def broker_of(node: str, store: Path) -> int:
    """The process that runs the broker of this node with files below `store`."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            mine = [word for word in words if word.startswith(str(store)) and f"/{node}/" in word]
            if "broker" in words and mine:
                return int(path.parent.name)
    raise AssertionError(f"no broker of {node} below {store}")
