"""In a world that is slower than this machine, runs of every system end as they do here, and the gate accepts them."""

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.command.line import main
from orchestrator.errors import EXIT_PASS
from orchestrator.worlds.process.lab import ProcessLab, ProcessWorld
from tests.systems.test_apache_kafka import FETCHED, VERSION
from tests.systems.test_etcd_runs import FAKE, SMALL

SCALE: Final = 4.0
KILLS = '[nemesis]\nkind = "random"\nfaults = ["kill"]\ninterval_s = [1.0, 1.5]\nduration_s = [0.5, 1.0]\n'
PAUSES = KILLS.replace("kill", "pause")  # a killed member of this system forgets all
TOPOLOGY = '[topology]\nnodes = 3\nworld = "process"\n[checks]\nmin_ok = 5\nmin_share = 0.01  # however slow it is\n'
LOG = f"""
name = "small"
{TOPOLOGY}
[workload]
partitions = 2
producers = 1
consumers = 1
rate = 40
duration_s = 5
[broker]
"log.flush.interval.messages" = 1
"min.insync.replicas" = 2
"broker.session.timeout.ms" = 1500
"""
GROUP = f"""
name = "small"
{TOPOLOGY}
[workload]
kind = "group"
partitions = 2
producers = 1
members = 2
rate = 40
duration_s = 8
[broker]
"min.insync.replicas" = 2
"offsets.topic.num.partitions" = 1
"""
OWN = f"""
{FAKE}
[roles.member.files]
"member.conf" = "member.conf.j2"
[settings]
times = ["*-timeout"]
"""
TEMPLATE = """{% for key, value in settings.items() %}{{ key }}: {{ value }}
{% endfor %}patience: {{ 1000 * time_scale }}
"""
"""A file of a user's system whose lines depend on the world in two ways."""
CLIENT = '[client]\nclient_class = "fake/client.py:FirstSeen"\noptions = { stale = "no" }\n'
CAMPAIGNS: Mapping[str, str] = {
    "brownout": LOG + '"broker.lease.ms" = 1000\n' + KILLS,
    "brownout's groups": GROUP + KILLS,
    "apache-kafka": f'{LOG}[system]\nname = "apache-kafka"\nversion = "{VERSION}"\n',
    "etcd": f'{SMALL}[system]\nname = "etcd"\n{KILLS}',
    "of a user": f'{SMALL}[system]\npath = "fake"\n{CLIENT}{PAUSES}',
}
MISSING = {
    "etcd": (shutil.which("etcd") is None, "etcd is not installed: ./brownout install-packages etcd-server"),
    "apache-kafka": (not FETCHED, f"./brownout system fetch apache-kafka {VERSION} was not called"),
}
"""What a machine may lack for a campaign, and the remedy."""


def test_every_system_has_a_campaign_here() -> None:
    assert {"brownout", "apache-kafka", "etcd"} <= CAMPAIGNS.keys()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes plain processes a world of this time scale."""
    for place in (ProcessLab, ProcessWorld):
        monkeypatch.setattr(place, "time_scale", SCALE)


def made(directory: Path, text: str) -> tuple[int, Path]:
    """Runs a campaign below a directory with the files of a user's system; the exit code and the store."""
    fake = directory / "fake"
    fake.mkdir(exist_ok=True)
    (fake / "system.toml").write_text(OWN)
    (fake / "member.conf.j2").write_text(TEMPLATE)
    (fake / "fake.py").write_text("from systems.etcd.etcd import Etcd\n\n__all__ = ['Etcd']\n")
    shutil.copyfile(Path(__file__).parents[1] / "systems" / "stale_etcd_client.py", fake / "client.py")
    (directory / "small.toml").write_text(text)
    store = directory / "store"
    options = ["--store", str(store), "--engine", "in-process", "--no-plots", "--quiet"]
    return main(["run", str(directory / "small.toml"), *options]), store


def described(store: Path) -> dict[str, Any]:
    (path,) = (store / "small").glob("*/run.toml")
    return tomllib.loads(path.read_text())


@pytest.mark.rotating(2)
@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_run_in_a_slow_world_passes_its_gate(tmp_path: Path, name: str) -> None:
    is_missing, remedy = MISSING.get(name, (False, ""))
    if is_missing:
        pytest.skip(remedy)
    code, store = made(tmp_path, CAMPAIGNS[name])
    assert code == EXIT_PASS
    assert main(["gate", str(store)]) == EXIT_PASS
    assert described(store)["time_scale"] == SCALE
    shutil.rmtree(tmp_path / "fake")  # the gate may be elsewhere, where the user's files are not
    assert main(["gate", str(store)]) == EXIT_PASS
