"""A Spark Connect server on loopback, whose workers do not see the project by their own paths."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from analysis.engines import spark_cluster
from analysis.engines.log import LogPlan
from analysis.engines.register import RegisterPlan, check_registers
from analysis.engines.spark import SparkHandle, java_version
from analysis.engines.spark_errors import SparkUnavailableError
from analysis.engines.task_map import in_sequence
from orchestrator.campaign.runs_on_workers import judge_each
from tests.analysis import register_histories
from tests.analysis.log_checks import check_log
from tests.analysis.log_histories import random_history, stored, table
from tests.analysis_pipeline import register_tables
from tests.orchestrator.stored_campaign import StoredCampaign, ask
from tests.orchestrator.test_spark_cluster import _free_port, judged

START_S = 300.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,
    pytest.mark.skipif(java_version() is None, reason="no Java runtime: install openjdk-17-jre-headless"),
    pytest.mark.skipif(
        importlib.util.find_spec("grpc") is None, reason="no client of Spark Connect: pip install 'pyspark[connect]'"
    ),
]


@dataclass(frozen=True)
class Server:
    """A server and its address."""

    process: subprocess.Popen[bytes]
    url: str


def started(directory: Path) -> Server:
    """A server that listens, with two workers. Its environment has no path of the project."""
    import pyspark

    port = _free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [f"{pyspark.__path__[0]}/bin/spark-submit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with open(directory / "server.log", "wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    server = Server(process, f"sc://127.0.0.1:{port}")
    give_up = time.monotonic() + START_S
    while True:
        try:
            spark_cluster.reach(server.url)
            return server
        except SparkUnavailableError:
            assert process.poll() is None
            assert time.monotonic() < give_up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = started(tmp_path_factory.mktemp("server"))
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture(scope="module")
def remote(server: Server) -> Iterator[SparkHandle]:
    handle = SparkHandle.start_in_background(master=server.url)
    yield handle
    handle.stop()


@pytest.mark.parametrize("seed", range(5))
def test_random_histories_have_the_same_report(remote: SparkHandle, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    tables = stored(tmp_path, table(*(random_history(rng) for _ in range(20))), 3)
    there = check_log(LogPlan.of(tables, span=8), remote.tasks(), upper_bound="strict")
    assert there == check_log(LogPlan.of(tables), upper_bound="strict")


def test_registers_have_the_same_report(remote: SparkHandle, tmp_path: Path) -> None:
    for name, is_wrong in (("right", False), ("wrong", True)):
        histories = register_tables.many_keys(random.Random("connect"), 12, hot=60, wrong=is_wrong)
        register_tables.stored(
            tmp_path / name, register_histories.table(histories), pieces=3, least_rows=1, most_rows=5
        )
        plan = RegisterPlan.of(tmp_path / name / "tables", task_rows=30)
        assert repr(check_registers(plan, remote.tasks())) == repr(check_registers(plan, in_sequence))


def test_stored_runs_get_the_same_verdicts_and_certificates(server: Server, tmp_path: Path) -> None:
    runs = StoredCampaign(tmp_path / "store").made()
    in_process = [judged(run) for run in runs]
    for named in (runs[0], runs[0].parent):
        for run in runs:
            (run / "verdict.json").unlink(missing_ok=True)
        assert ask("analyze", named, "--master", server.url).code == 0
        assert judged(runs[0]) == in_process[0]
    assert [judged(run) for run in runs] == in_process


def test_an_error_of_a_task_is_named(remote: SparkHandle) -> None:
    with pytest.raises(RuntimeError) as raised:
        remote.tasks()(int, ["1", "two"])
    assert str(raised.value) == "a task on Spark failed: ValueError: invalid literal for int() with base 10: 'two'"
    with pytest.raises(RuntimeError, match="Python worker exited unexpectedly"):
        remote.tasks()(os._exit, [3])


def test_a_server_that_dies_makes_its_runs_unknown(tmp_path: Path) -> None:
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    own = started(tmp_path)
    handle = SparkHandle.start_in_background(master=own.url)
    try:
        with pytest.raises(RuntimeError, match="a task on Spark failed: "):
            handle.tasks()(partial(os.kill, own.process.pid), [signal.SIGKILL])
        failures = dict(judge_each([run], handle.tasks()))
        assert failures[run].startswith("a task on Spark failed: ")
    finally:
        handle.stop()
        own.process.kill()
        own.process.wait()
