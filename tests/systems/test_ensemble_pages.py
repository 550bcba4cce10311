"""Pages of systems with several nodes: their files are valid unchanged, and their power losses tear or do not.
With the programs, the settings that must pass pass, and a documented loss is found."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from nemeses.registry import injectable
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import expand
from orchestrator.command.line import main
from tests.systems.test_your_system import blocks

CAMPAIGNS = (
    "zookeeper/registers",
    "zookeeper/ids",
    "zookeeper/first-seconds",
    "nats/stream",
    "nats/one-server",
    "rabbitmq/queue",
    "etcd/kills",
    "etcd/defrag",
)
RUNS = (
    ("zookeeper/ids", "sync"),
    ("zookeeper/registers", "ordered"),
    ("nats/stream", "always"),
    ("nats/stream", "default"),
    ("nats/one-server", "always"),
    ("nats/one-server", "default"),
    ("rabbitmq/queue", "quorum"),
)
WITH_POWER_LOSSES = (
    *("zookeeper/registers", "zookeeper/ids", "nats/stream", "rabbitmq/queue"),
    *("redis/chaos", "redis-list/chaos", "postgresql/durability"),
)
SYNCS_ALWAYS = (2, 10)
"""The first version of NATS with the setting `sync_interval`."""


def nats_server() -> str | None:
    """A NATS server that has the settings of the page."""
    for program in filter(
        None, (shutil.which("nats-server"), shutil.which("nats-server", path=os.path.expanduser("~/go/bin")))
    ):
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        if tuple(map(int, re.findall(r"\d+", version)[:2])) >= SYNCS_ALWAYS:
            return program
    return None


def is_installed(system: str) -> bool:
    if system == "nats":
        return nats_server() is not None
    if system == "rabbitmq":
        return Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists()
    return bool(shutil.which("java")) and Path("/usr/share/java/zookeeper.jar").exists()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for page in ("zookeeper", "nats", "rabbitmq", "etcd", "redis", "postgresql"):
        for block in blocks((PROJECT_ROOT / f"docs/{page}.md").read_text(encoding="utf-8")):
            if "file" in block.options:
                path = tmp_path / block.options["file"]
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text)
                path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_the_files_of_the_pages_are_valid(directory: Path, campaign: str) -> None:
    assert main(["run", str(directory / f"{campaign}.toml"), "--dry-run"]) == 0


@pytest.mark.parametrize("campaign", WITH_POWER_LOSSES)
def test_power_losses_of_a_page_tear_and_do_not_tear(directory: Path, campaign: str) -> None:
    world = injectable(("power", "network"))
    runs = expand(load(directory / f"{campaign}.toml"), "20260102T030405aa")
    cuts = [plan for run in runs for plan in run.schedule(world) if plan.kind.startswith("power-loss")]
    assert {plan.parameters["tear"] is None for plan in cuts} == {True, False}


@pytest.mark.root
@pytest.mark.rotating(24, among="campaigns of ensembles")
@pytest.mark.parametrize(("campaign", "cell"), RUNS)
def test_a_setting_has_its_documented_result(directory: Path, campaign: str, cell: str) -> None:
    system = campaign.partition("/")[0]
    if not is_installed(system):
        pytest.skip(f"{system} is missing")
    if program := nats_server():
        shutil.copy(program, directory / "nats/nats-server")
    only = ["--cell", cell, "--seeds", "1", "--engine", "in-process", "--quiet", "--no-plots"]
    command = ["run", str(directory / f"{campaign}.toml"), "--store", str(directory / "store"), *only]
    done = subprocess.run(  # as root the command goes on as another process
        [sys.executable, "-m", "orchestrator", *command],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
