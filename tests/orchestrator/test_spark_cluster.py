"""A standalone Spark cluster of two workers on loopback, started as in docs/architecture.md."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from analysis.engines import spark_address, spark_cluster
from analysis.engines.log import LogPlan
from analysis.engines.spark import SparkHandle, java_version
from analysis.engines.task_map import SparkTasks
from orchestrator.running.engine import judge_each, judge_here
from tests.analysis.log_checks import check_log
from tests.analysis.log_histories import random_history, stored, table
from tests.mutations.base_runs import ARCHIVE
from tests.orchestrator.stored_campaign import StoredCampaign, ask

ROOT: Final = Path(__file__).resolve().parents[2]
START, ANALYZE, END, START_SERVER = re.findall(
    r"```sh\n(.*?)```",
    (ROOT / "docs" / "architecture.md").read_text().split("## When a campaign outgrows a machine")[1],
    re.DOTALL,
)
REGISTERED: Final = "Successfully registered with master"
START_S: Final = 600.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,
    pytest.mark.skipif(java_version() is None, reason="no Java runtime: install openjdk-17-jre-headless"),
]


@dataclass
class Cluster:
    """The documented commands in one shell, with another port and other directories."""

    scratch: Path
    port: int = field(default_factory=lambda: _free_port())
    registered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    shell: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        threading.Thread(target=self._read_log, daemon=True).start()

    def _read_log(self) -> None:
        assert self.shell.stderr is not None
        for line in self.shell.stderr:
            if REGISTERED in line:
                self.registered.release()

    def await_workers(self, count: int) -> None:
        """Wait until `count` more workers have registered with the master."""
        for _ in range(count):
            assert self.registered.acquire(timeout=START_S)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def run(self, commands: str) -> str:
        """The output of documented commands, once they have ended or are in the background. The last must succeed."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        for documented, here in (
            ("7077", str(self.port)),
            ("/tmp/worker", str(self.scratch / "worker")),
            (".venv/bin/python", sys.executable),
            ("./brownout", f"{sys.executable} -m orchestrator"),
        ):
            commands = commands.replace(documented, here)
        self.shell.stdin.write(f"{commands}\necho ended: $?\n")
        self.shell.stdin.flush()
        lines = []
        while not (line := self.shell.stdout.readline()).startswith("ended: "):
            assert line, "the shell ended"
            lines.append(line)
        assert line == "ended: 0\n", "".join(lines)
        return "".join(lines)

    def replace_lost_worker(self) -> None:
        self.run(START.splitlines()[-1])
        self.await_workers(1)

    def start_hidden(self, mount: str, work_directory: Path) -> subprocess.Popen[str]:
        """A worker in a mount namespace of its own, once it has registered."""
        worker = START.splitlines()[-1].removesuffix(" &").replace("7077", str(self.port))
        worker = worker.replace("/tmp/worker-2", str(work_directory))
        start = "\n".join(START.splitlines()[:2]).replace(".venv/bin/python", sys.executable)
        made = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{start}\n{mount} && exec {worker}"],
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert made.stderr is not None
        lines = iter(made.stderr.readline, "")
        assert any(REGISTERED in line for line in lines)
        return made

    def processes(self) -> list[int]:
        """The shell and what it started, as far as it lives."""
        found = subprocess.run(
            ["pgrep", "--pgroup", str(self.shell.pid), "--runstates", "RSDT"],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(pid) for pid in found.stdout.split()]

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.run(START)
        made.await_workers(2)
        yield made
        made.run(END)
        assert made.processes() == [made.shell.pid], "the documented command ends the cluster"
    finally:
        made.end()


def judged(run: Path) -> dict[str, Any]:
    """The stored verdict without what depends on time and engine."""
    verdict: dict[str, Any] = json.loads((run / "verdict.json").read_text())
    checks = [{name: value for name, value in check.items() if name != "seconds"} for check in verdict["checks"]]
    return {name: value for name, value in verdict.items() if name not in {"cost", "engine", "checksum"}} | {
        "checks": checks
    }


def test_a_run_gets_the_same_verdict_as_in_process(cluster: Cluster, tmp_path: Path) -> None:
    run, _ = StoredCampaign(tmp_path / "store").made()
    in_process = judged(run)
    (run / "verdict.json").unlink()
    said = cluster.run(ANALYZE.replace("latest", str(run)))
    assert "pass" in said
    assert json.loads((run / "verdict.json").read_text())["engine"] == "spark"
    assert judged(run) == in_process
    (run / "verdict.json").unlink()
    assert ask("analyze", run.parent, "--master", cluster.master).code == 0
    assert judged(run) == in_process


def base_runs_judged(directory: Path) -> dict[Path, dict[str, Any]]:
    """The runs that the tests of mutations start from, by path, with their verdicts in process."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    runs = sorted(path.parent for path in directory.glob("store/*/*/run.toml") if not path.parent.is_symlink())
    assert ask("analyze", directory / "store", "--engine", "in-process").code == 0
    return {run: judged(run) for run in runs}


def test_base_runs_get_the_same_verdicts_as_in_process(cluster: Cluster, tmp_path: Path) -> None:
    in_process = base_runs_judged(tmp_path)
    assert ask("analyze", tmp_path / "store", "--master", cluster.master).code == 0
    assert {run: judged(run) for run in in_process} == in_process


def test_a_remote_of_the_environment_does_not_replace_the_master(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("SPARK_REMOTE", "sc://127.0.0.1:1"),
        ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ("SPARK_API_MODE", "connect"),
    ):
        monkeypatch.setenv(name, value)
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    assert ask("analyze", run, "--master", cluster.master).code == 0


def lose_the_worker_once(marker: Path) -> None:
    """Kill this task's worker with its processes, unless the marker exists."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    daemon = os.getppid()
    executor = _parent(daemon)
    for pid in (_parent(executor), executor, daemon, os.getpid()):
        os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _judge_after_the_loss(marker: Path, run: str) -> None:
    lose_the_worker_once(marker)
    judge_here(run)


class _LosesAWorker:
    """Spark's tasks; the worker of one task is lost in the middle."""

    def __init__(self, tasks: SparkTasks, marker: Path) -> None:
        self._tasks, self._marker = tasks, marker

    def __call__(self, function: Callable[[Any], Any], tasks: Any, weights: Any = None, /) -> list[Any]:
        return self._tasks(partial(_after_the_loss, self._marker, function), tasks, weights)


def _after_the_loss(marker: Path, function: Callable[[Any], Any], task: Any) -> Any:
    lose_the_worker_once(marker)
    return function(task)


@pytest.mark.parametrize("work", ["a history", "several runs"])
def test_a_task_of_a_lost_worker_is_repeated(cluster: Cluster, tmp_path: Path, work: str) -> None:
    handle = SparkHandle.start_in_background(master=cluster.master)
    marker = tmp_path / "lost"
    try:
        if work == "a history":
            rng = random.Random(7)
            tables = stored(tmp_path, table(*(random_history(rng) for _ in range(40))), 2)
            there = check_log(LogPlan.of(tables), _LosesAWorker(handle.tasks(), marker), upper_bound="strict")
            assert there == check_log(LogPlan.of(tables), upper_bound="strict")
        else:
            runs = StoredCampaign(tmp_path / "store").made()
            in_process = [judged(run) for run in runs]
            for run in runs:
                (run / "verdict.json").unlink()
            failures = dict(judge_each(runs, handle.tasks(), partial(_judge_after_the_loss, marker)))
            assert failures == dict.fromkeys(runs, "")
            assert [judged(run) for run in runs] == in_process
        assert marker.exists()
    finally:
        handle.stop()
        cluster.replace_lost_worker()


HIDES: Final = {
    "the project": ("mount -t tmpfs none {analysis}", "ModuleNotFoundError: .* each worker needs the project at "),
    "the same code": ("mount --bind {other} {analysis}", "has other code of the analysis"),
    "the store": ("mount -t tmpfs none {store}", "does not see .*: keep the store on a file system"),
}


@pytest.mark.parametrize("lacks", HIDES)
def test_an_incomplete_worker_is_named_before_a_verdict_is_replaced(
    cluster: Cluster, tmp_path: Path, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_cluster, "SETTLED_S", 15.0)  # the incomplete worker is the slowest on a busy host
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    before = (run / "verdict.json").read_bytes()
    hide, complaint = HIDES[lacks]
    other = tmp_path / "analysis"
    shutil.copytree(ROOT / "analysis", other)
    (other / "verdict.py").write_text((other / "verdict.py").read_text() + "# changed\n")
    mount = hide.format(analysis=ROOT / "analysis", other=other, store=tmp_path / "store")
    extra = cluster.start_hidden(mount, tmp_path / "worker-3")
    try:
        said = ask("analyze", run, "--master", cluster.master)
    finally:
        extra.kill()
        extra.wait()
    assert said.code == 64
    assert re.search(complaint, said.err)
    assert (run / "verdict.json").read_bytes() == before


def test_a_master_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_address, "MASTER_S", 0)
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    before = (run / "verdict.json").read_bytes()
    port = _free_port()
    for master, complaint in (
        (f"spark://127.0.0.1:{port}", rf"no Spark master answers .*127\.0\.0\.1:{port}: .*refused"),
        ("spark://no.such.host.invalid:7077", "no Spark master answers .*no.such.host.invalid"),
        ("spark://127.0.0.1", r"give spark://HOST:PORT"),
        ("nonsense", "give spark://HOST:PORT"),
        ("SC://host", "give spark://HOST:PORT, or sc://HOST:PORT"),
    ):
        said = ask("analyze", run, "--master", master)
        assert said.code == 64
        assert re.search(complaint, said.err), said.err
        assert f"--master {master}: " in said.err
        assert (run / "verdict.json").read_bytes() == before
