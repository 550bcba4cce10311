"""A shortage of the tester is never a failure of the system; a failure beside a healthy tester is one."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from analysis.evidence.tester_shortages import lost_journal, shortages
from history.journal.writer import RESERVE, Journal
from history.reader import read_run
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.running import run
from orchestrator.running.run import OwnResources, resource_named
from tests.orchestrator.live_run import LiveRun

CAMPAIGN = """
name = "small"
[topology]
world = "{world}"
[workload]
duration_s = 6
rate = 100
"""
IN_SMALL_STORE = """
mount -t tmpfs -o size={size},mode=755 tmpfs {store} || exit 99
{python} -m orchestrator run {campaign} --store {store} --engine in-process --no-plots --quiet
code=$?
cp {store}/small/*/verdict.json {kept}
exit $code
"""


def can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.skipif(not can_mount(), reason="mounts a small filesystem, which needs root")
@pytest.mark.parametrize(("world", "size"), [("process", "900k"), ("process", "1500k"), ("simulation", "900k")])
def test_a_full_store_makes_every_run_unknown(tmp_path: Path, world: str, size: str) -> None:
    store, campaign, kept = tmp_path / "store", tmp_path / "small.toml", tmp_path / "verdict.json"
    store.mkdir()
    campaign.write_text(CAMPAIGN.format(world=world))
    script = IN_SMALL_STORE.format(size=size, store=store, python=sys.executable, campaign=campaign, kept=kept)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in (2, 70), done.stdout + done.stderr
    assert "bug of Brownout" not in done.stderr
    if kept.exists():  # on the smallest ones not even the verdict fits
        verdict = json.loads(kept.read_text())
        assert (verdict["verdict"], verdict["anomalies"]) == ("unknown", [])
        assert any("the tester ran out of disk" in doubt for doubt in verdict["doubts"]) or world == "simulation"


@pytest.mark.rotating(13, among="real-time campaigns")
def test_a_service_that_ends_beside_a_healthy_tester_is_a_failure(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, "process")
    run.await_line(event="note", text="first_ack")
    os.kill(run.broker("n2"), signal.SIGKILL)
    assert [each["name"] for each in run.verdict()["anomalies"]] == ["unexpected-exit"]
    assert not [line for line in run.journal() if line["event"] == "tester_short"]


@pytest.mark.rotating(13, among="real-time campaigns")
def test_services_that_end_with_their_parent_process_are_not_findings(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, "process")
    run.await_line(event="note", text="first_ack")
    parent = int(Path(f"/proc/{run.broker('n2')}/stat").read_text().rpartition(") ")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert run.process.wait(600) == 2
    verdict = json.loads((run.path / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["anomalies"]) == ("unknown", [])


def recorded(run: Path) -> list[tuple[str, str]]:
    return [(line["resource"], line["seen"]) for line in read_run(run).journal if line["event"] == "tester_short"]


def own(run: Path, journal: Journal) -> OwnResources:
    return OwnResources([run, run / "nowhere"], journal, REAL_TIME)


def test_no_look_moves_the_virtual_clock(tmp_path: Path) -> None:
    """The number of looks depends on this machine's clock, and each `monotonic_ns` of a simulated run is later than the
    one before: with it the same seed was not always the same run."""
    clock = cast(Scheduler, SimpleNamespace(monotonic=lambda: 5.0))  # any other call fails
    with Journal(tmp_path) as journal:
        looking = OwnResources([tmp_path], journal, clock)
        looking.tick()
        looking.failed(OSError(errno.ENOSPC, "no space"))
        looking.client_failed("c", ["OSError: [Errno 24] Too many open files"], -signal.SIGKILL)
    assert [name for name, _ in recorded(tmp_path)] == ["disk", "descriptors"]


def test_a_healthy_tester_reports_no_shortage(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        looking = own(tmp_path, journal)
        looking.look()
        looking.tick()
        looking.failed(RuntimeError("of the system"))
        looking.client_failed("producer-1", ["KafkaError: No space left on device, said the broker"], 1)
        looking.client_failed("producer-2", [], -signal.SIGKILL)
    assert recorded(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "named"),
    [
        (errno.ENOSPC, "disk"),
        (errno.EDQUOT, "disk"),
        (errno.EFBIG, "disk"),
        (errno.EMFILE, "descriptors"),
        (errno.ENFILE, "descriptors"),
        (errno.ENOMEM, "memory"),
    ],
)
def test_an_error_of_the_orchestrator_names_the_short_resource(tmp_path: Path, number: int, named: str) -> None:
    outer = RuntimeError("the run failed")
    outer.__cause__ = OSError(number, "why")
    with Journal(tmp_path) as journal:
        own(tmp_path, journal).failed(outer)
        own(tmp_path, journal).client_failed("producer-1", [f"OSError: [Errno {number}] why"], 1)
    first, second = recorded(tmp_path)
    assert (first[0], second[0]) == (named, named)
    assert "client producer-1 failed" in second[1]


def test_an_error_of_memory_is_one_of_the_tester(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        own(tmp_path, journal).failed(MemoryError())
    assert recorded(tmp_path)[0][0] == "memory"
    assert resource_named("MemoryError: ") == "memory"
    assert resource_named("ConnectionError: [Errno 104] reset") == ""


def test_a_client_that_the_kernel_killed_for_lack_of_memory_is_one_of_the_tester(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = 3
    monkeypatch.setattr(run, "_oom_kills", lambda: kills)
    with Journal(tmp_path) as journal:
        looking = own(tmp_path, journal)
        looking.client_failed("producer-1", [], -signal.SIGKILL)
        assert recorded(tmp_path) == []
        kills += 1
        looking.client_failed("producer-1", [], -signal.SIGTERM)
        assert recorded(tmp_path) == []
        looking.client_failed("producer-1", [], -signal.SIGKILL)
    assert recorded(tmp_path)[0][0] == "memory"


def test_limits_that_are_too_low_for_a_run_are_a_shortage(tmp_path: Path) -> None:
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from history.journal.writer import Journal; from nemeses.scheduling import REAL_TIME\n"
        "from orchestrator.running.run import OwnResources\n"
        "resource.setrlimit(getattr(resource, sys.argv[2]), (int(sys.argv[3]),) * 2)\n"
        "run = Path(sys.argv[1])\n"
        "with Journal(run) as journal: OwnResources([run], journal, REAL_TIME).look()\n"
    )
    for limit, value, named in (
        ("RLIMIT_NOFILE", 64, "descriptors"),
        ("RLIMIT_FSIZE", 1 << 20, "disk"),
        ("RLIMIT_DATA", 1 << 30, "memory"),
    ):
        run = tmp_path / limit
        subprocess.run([sys.executable, "-c", program, str(run), limit, str(value)], check=True)
        assert [each[0] for each in recorded(run)] == [named]
        assert limit in recorded(run)[0][1]


@pytest.mark.skipif(not can_mount(), reason="mounts a small filesystem, which needs root")
def test_the_journal_records_a_full_disk(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from history.journal.writer import Journal\n"
        "run = Path(sys.argv[1]); journal = Journal(run); journal.phase('setup')\n"
        "try:\n"
        "    with open(run / 'other', 'wb') as other:\n"
        "        while True: other.write(bytes(4096)); other.flush()\n"
        "except OSError: pass\n"
        "for _ in range(100): journal.tester_short('disk', since=1, seen='full')\n"
        "journal.close(); print(os.stat(run / 'history/journal.jsonl').st_size); sys.stdout.flush()\n"
        "sys.exit(0 if (run / 'history/journal.jsonl').read_bytes().count(b'tester_short') == 100 else 3)\n"
    )
    script = f'mount -t tmpfs -o size=200k tmpfs {tmp_path} && exec {sys.executable} -c "$0" {tmp_path}'
    command = ["unshare", "--mount", "sh", "-c", script, program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < RESERVE, "reserved bytes are not part of the file's size"


def journal_of(run: Path) -> list[dict[str, Any]]:
    return list(read_run(run).journal)


def test_an_orchestrator_that_ends_without_a_line_counts_as_a_lost_journal(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.run_started()
        journal.service_exit("n1", 70, None, "gives up")
    assert lost_journal(journal_of(tmp_path))
    with Journal(tmp_path) as journal:
        journal.note("the run was not finished: it was interrupted", unfinished=True)
    assert not lost_journal(journal_of(tmp_path))


def test_a_shortage_counts_from_the_last_look_that_found_enough(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        looking = own(tmp_path, journal)
        looking.look()
        healthy = journal.note("healthy")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        try:
            looking.look()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (found,) = shortages(journal_of(tmp_path))
    assert found.since <= healthy
