"""A Spark Connect server on loopback, started as in docs/architecture.md, whose workers have no path of the project."""

import contextlib
import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from analysis.engines import spark, spark_address
from analysis.engines.log import LogPlan
from analysis.engines.register import RegisterPlan, check_and_order
from analysis.engines.spark import SparkHandle, java_version
from analysis.engines.spark_address import addresses_of, without_secrets
from analysis.engines.spark_errors import SparkUnavailableError
from analysis.engines.task_map import in_sequence
from installation.files import PROJECT_ROOT
from orchestrator.running.engine import Engine, judge, judge_each
from orchestrator.search.exploring import RANDOM
from orchestrator.search.task import ExplorationTask, attempt, spread
from tests.analysis import register_histories
from tests.analysis.log_checks import check_log
from tests.analysis.log_histories import random_history, stored, table
from tests.analysis_pipeline import register_tables
from tests.installation.test_wheel import WITHOUT_EXTRAS
from tests.orchestrator.stored_campaign import StoredCampaign, ask
from tests.orchestrator.test_spark_cluster import START_SERVER, _free_port, base_runs_judged, judged
from tests.search.imagined import SHORT

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
    events: Path

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def with_events(directory: Path) -> dict[str, str]:
    """An environment in which Spark writes the events of its jobs into `events/` of the directory."""
    (directory / "events").mkdir()
    (directory / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {(directory / 'events').as_uri()}\n"
        "spark.eventLog.compress false\nspark.eventLog.rolling.enabled false\n"
    )
    return {**os.environ, "SPARK_CONF_DIR": str(directory), "PYTHONPATH": str(PROJECT_ROOT)}


def jobs_of(events: Path) -> list[tuple[str, str]]:
    """The description and the tags of each job."""
    lines = [json.loads(line) for log in events.iterdir() for line in log.read_text().splitlines()]
    jobs = [line["Properties"] for line in lines if line["Event"] == "SparkListenerJobStart"]
    return [(job.get("spark.job.description", "none"), job.get("spark.job.tags", "")) for job in jobs]


def started(
    directory: Path, *, python: str = sys.executable, shell: tuple[str, ...] = (), first: str = "true"
) -> Server:
    """A server that listens, with two workers of `python`. `shell`: the program that starts the shell; `first`: a
    command that the shell runs before."""
    port = _free_port()
    program, _, rest = START_SERVER.replace("15002", str(port)).partition(".venv/bin/python -c")
    command = program.replace("$PWD/.venv/bin/python", shlex.quote(python)) + f"{shlex.quote(sys.executable)} -c{rest}"
    environment = with_events(directory)
    del environment["PYTHONPATH"]
    with open(directory / "server.log", "wb") as log:
        process = subprocess.Popen(
            [*shell, "sh", "-ec", f"{first}\n{command}"],
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = Server(process, f"sc://127.0.0.1:{port}", directory / "events")
    give_up = time.monotonic() + START_S
    while True:
        try:
            spark_address.reach(server.url)
            return server
        except SparkUnavailableError:
            assert process.poll() is None
            assert time.monotonic() < give_up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = started(tmp_path_factory.mktemp("server"))
    yield made
    made.end()


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
        assert repr(check_and_order(plan, remote.tasks())[0]) == repr(check_and_order(plan, in_sequence)[0])


def test_stored_runs_get_the_same_verdicts_and_certificates(server: Server, tmp_path: Path) -> None:
    runs = StoredCampaign(tmp_path / "store").made()
    in_process = [judged(run) for run in runs]
    for named in (runs[0], runs[0].parent):
        for run in runs:
            (run / "verdict.json").unlink(missing_ok=True)
        assert ask("analyze", named, "--master", server.url).code == 0
        assert judged(runs[0]) == in_process[0]
    assert [judged(run) for run in runs] == in_process


def test_tables_and_explored_runs_are_those_of_this_process(
    server: Server, remote: SparkHandle, tmp_path: Path
) -> None:
    store = StoredCampaign(tmp_path / "store").made()[0].parents[1]
    assert ask("list", "--tables", "--store", store).code == 0
    here = {table.name: table.read_bytes() for table in (store / ".tables").glob("*.parquet")}
    shutil.rmtree(store / ".tables")
    assert ask("list", "--tables", "--store", store, "--master", server.url).code == 0
    assert {table.name: table.read_bytes() for table in (store / ".tables").glob("*.parquet")} == here

    campaign = tmp_path / "short.toml"
    campaign.write_text(SHORT)
    tasks = [ExplorationTask(number, RANDOM, SHORT, str(campaign), "fixed", number + 1) for number in range(2)]
    spread_out = spread(remote.tasks(), tmp_path / "there", tasks)
    expected = [attempt(task, tmp_path / "here") for task in tasks]
    assert all(run.digest for run in expected)
    assert [(run.number, run.digest, run.states) for run in spread_out] == [
        (run.number, run.digest, run.states) for run in expected
    ]


@pytest.mark.parametrize("kind", ["connect", "local"])
def test_events_of_spark_name_the_work_of_a_job(server: Server, tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store, of runs"
    runs = StoredCampaign(store).made()
    environment, events = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}, server.events
    if kind == "local":
        environment, events = with_events(tmp_path), tmp_path / "events"
    master = server.url if kind == "connect" else "local[2]"
    before = len(jobs_of(events))
    for named in (runs[0], runs[0].parent):
        command = [sys.executable, "-m", "orchestrator", "analyze", str(named), "--master", master]
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    jobs = jobs_of(events)[before:]
    assert [description for description, _ in jobs if not description.startswith("brownout ")] == []
    assert all(description.replace(",", ";") in tags for description, tags in jobs)
    work = {description.removeprefix("brownout ") for description, _ in jobs}
    run = f"{runs[0].parent.name}/{runs[0].name}"
    assert {f"check {run}: log: examine, 1 task in 1 partition"} <= work
    assert {f"analyze {len(runs)} runs: engine: judge here, 1 task in 1 partition"} <= work
    for path in runs:
        assert any(f"{path.parent.name}/{path.name}" in tags for said, tags in jobs if "judge here" in said)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package `pyspark-client`, which hides the whole Spark of this environment."""
    place = tmp_path_factory.mktemp("client")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1", "--target", str(place)]
    done = subprocess.run([*pip, "pyspark-client>=4,<5"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pyspark-client cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    (place / "sitecustomize.py").write_text(f"NOT_THERE = {{'py4j'}}\n{WITHOUT_EXTRAS}")
    return place


@pytest.mark.parametrize("package", ["pyspark", "pyspark-client"])
def test_a_client_needs_no_java(server: Server, tmp_path: Path, package: str, request: pytest.FixtureRequest) -> None:
    """One run by the client, and all by the workers."""
    in_process = base_runs_judged(tmp_path)
    paths = [PROJECT_ROOT, *([request.getfixturevalue("client")] if package == "pyspark-client" else [])]
    environment = os.environ | {
        "PATH": str(Path(sys.executable).parent),
        "PYTHONPATH": os.pathsep.join(map(str, reversed(paths))),
    }
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-m", "orchestrator", "analyze"]
    local = [*command, str(tmp_path / "store"), "--engine", "spark"]
    here = subprocess.run(local, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    lacks = "no Java runtime found" if package == "pyspark" else r"needs the extra [spark]"
    assert (here.returncode, lacks in here.stderr) == (64, True)
    for named in (next(run for run in in_process if run.parent.name == "log"), tmp_path / "store"):
        there = [*command, str(named), "--master", server.url]
        subprocess.run(there, env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert {run: judged(run) for run in in_process} == in_process


def test_an_error_of_a_task_is_named(remote: SparkHandle) -> None:
    with pytest.raises(RuntimeError) as raised:
        remote.tasks()(int, ["1", "two"])
    assert str(raised.value) == "a task on Spark failed: ValueError: invalid literal for int() with base 10: 'two'"
    with pytest.raises(RuntimeError, match="Python worker exited unexpectedly"):
        remote.tasks()(os._exit, [3])


def test_a_server_that_dies_makes_its_runs_unknown(tmp_path: Path) -> None:
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    own = started(tmp_path)
    engine = Engine("spark", f"{own.url}/;user_id=secret")
    try:
        tasks = engine.tasks()
        with pytest.raises(RuntimeError, match=r"a task on Spark failed: (?!.*RPC that).*[a-z]{3}"):
            tasks(partial(os.killpg, own.process.pid), [signal.SIGKILL])
        lost = f"a task on Spark failed: no Spark server answers .*{own.url.removeprefix('sc://')}: .*refused"
        assert re.match(lost, dict(judge_each([run], tasks))[run])
        verdict = judge(run, engine)
        assert verdict.verdict == "unknown"
        assert re.search(lost, str(verdict.reasons)), verdict.reasons
        assert "secret" not in (run / "verdict.json").read_text()
    finally:
        engine.stop()
        own.end()


WITHOUT_PACKAGES: Final = f'exec {shlex.quote(sys.executable)} -S "$@"'
OTHER_VERSION: Final = f'PYTHONPATH=$(dirname "$0"):$PYTHONPATH exec {shlex.quote(sys.executable)} "$@"'
LACKS: Final = {
    "packages": (
        WITHOUT_PACKAGES,
        r"ModuleNotFoundError: No module named .*; the workers of the server need Python 3\.",
    ),
    "version": (OTHER_VERSION, r"different version: 3\.99 than .*; the workers of the server need Python 3\."),
}


@pytest.mark.parametrize("lacks", LACKS)
def test_another_python_of_the_workers_is_named(tmp_path: Path, lacks: str) -> None:
    script, complaint = LACKS[lacks]
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(
        "import collections, sys\n"
        "fields = 'major', 'minor', 'micro', 'releaselevel', 'serial'\n"
        "sys.version_info = collections.namedtuple('version_info', fields)(3, 99, 0, 'final', 0)\n"
    )
    own = started(tmp_path, python=str(python))
    try:
        assert_refused(tmp_path, own.url, complaint)
    finally:
        own.end()


def test_a_store_that_the_server_does_not_see_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    own = started(tmp_path, shell=("unshare", "--mount"), first=f"mount -t tmpfs none {tmp_path / 'store'}")
    try:
        assert_refused(tmp_path, own.url, "does not see .*: keep the store on a file system")
    finally:
        own.end()


def assert_refused(tmp_path: Path, master: str, complaint: str) -> None:
    """The command says what is wrong, without a token, and the earlier verdict stays."""
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    before = (run / "verdict.json").read_bytes()
    said = ask("analyze", run, "--master", master)
    assert said.code == 64
    assert re.search(complaint, said.err), said.err
    assert f"--master {without_secrets(master)}: " in said.err
    assert "secret" not in said.err
    assert (run / "verdict.json").read_bytes() == before


def test_a_server_of_another_version_is_named(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "5.0.0")
    assert_refused(tmp_path, server.url, r"the server is Spark 4\..* this client is Spark 5\.0\.0")


@pytest.mark.parametrize(
    ("master", "complaint"),
    [
        ("sc://127.0.0.1:{free}", r"no Spark server answers .*127\.0\.0\.1:{free}: .*refused"),
        ("sc://no.such.host.invalid/;token=secret", r"no Spark server answers .*no\.such\.host\.invalid:15002"),
        ("sc://", "give sc://HOST:PORT"),
        ("sc://127.0.0.1:no/;token=secret", "give sc://HOST:PORT"),
        ("sc://127.0.0.1:99999", "give sc://HOST:PORT"),
        ("sc://[::1", "give sc://HOST:PORT"),
        ("sc://127.0.0.1:{listens}/path", r"The path component '/path' must be empty"),
        ("sc://127.0.0.1:{listens}/;use_ssl", r"Parameter 'use_ssl' should be provided as a key-value pair"),
    ],
)
def test_an_address_without_a_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, complaint: str
) -> None:
    monkeypatch.setattr(spark_address, "MASTER_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = {"free": _free_port(), "listens": listener.getsockname()[1]}
        assert_refused(tmp_path, master.format(**ports), re.sub(r"\{free\}", str(ports["free"]), complaint))


@pytest.mark.parametrize("parameters", ["", "/;token=secret"])
def test_a_server_of_another_protocol_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: str
) -> None:
    """A web server. A token needs TLS, which the web server does not speak either."""
    monkeypatch.setattr(spark, "_RETRIES", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        try:
            master = f"sc://127.0.0.1:{web.server_address[1]}{parameters}"
            assert_refused(tmp_path, master, f"Spark did not start: .*{web.server_address[1]}: ")
        finally:
            web.shutdown()


def test_the_address_of_a_server_has_a_port_of_its_own() -> None:
    assert addresses_of("sc://host") == [("host", 15002)]
    assert addresses_of("sc://host:7/;token=secret") == [("host", 7)]
    assert addresses_of("sc://[::1]:7") == [("::1", 7)]


def test_an_address_is_shown_without_its_secrets() -> None:
    assert without_secrets("sc://me:secret@host:7/;use_ssl=true;token=secret") == "sc://host:7"
    assert without_secrets("sc://host;token=secret") == "sc://host"
    assert without_secrets("spark://host:7077") == "spark://host:7077"
