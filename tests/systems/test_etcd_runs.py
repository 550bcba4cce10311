"""Whole runs of registers, small: on a fake member of etcd, and on etcd itself where it is installed."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from orchestrator.command.line import main
from orchestrator.errors import EXIT_PASS
from tests.campaign_text import campaign_text

HERE = Path(__file__).resolve().parent

FAKE = """
name = "fake-etcd"
class = "fake.py:Etcd"
workloads = ["register"]
[roles.member]
ports = { client = 2379 }
command = ["{{ python }}", "-m", "tests.systems.fake_etcd", "{{ node.address }}", "{{ node.ports.client }}"]
environment = { PYTHONPATH = "{{ python_path }}" }
defaults = { heartbeat-interval = 100, election-timeout = 1000 }
kills_at_stop = true
"""

SMALL = campaign_text(
    "small",
    topology={"nodes": 1, "world": "process"},
    workload={"kind": "register", "clients": 3, "keys": 2, "rate": 100, "duration_s": 2},
    # however slow the machine is
    checks={"min_ok": 1, "min_share": 0.05},
)

CELLS = f"""
[system]
path = "fake"
[client]
client_class = "{HERE / "stale_etcd_client.py"}:FirstSeen"
[[cell]]
name = "honest"
client = {{ options = {{ stale = "no" }} }}
[[cell]]
name = "stale"
client = {{ options = {{ stale = "yes" }} }}
expect = {{ verdict = "fail", anomaly = "stale-register-read" }}
"""


def run(tmp_path: Path, text: str) -> dict[str, tuple[dict[str, Any], Path]]:
    """The verdict and the directory of each cell; every run is as the campaign expects."""
    (tmp_path / "small.toml").write_text(text)
    store = tmp_path / "store"
    arguments = ["run", str(tmp_path / "small.toml"), "--store", str(store), "--engine", "in-process", "--quiet"]
    assert main(arguments) == EXIT_PASS
    found = {}
    for path in (store / "small").glob("*/verdict.json"):
        cell = tomllib.loads((path.parent / "run.toml").read_text())["cell"]
        found[cell] = json.loads(path.read_text()), path.parent
    return found


@pytest.mark.rotating(13, among="real-time campaigns")
def test_a_client_with_stale_reads_fails_with_a_witness_and_a_correct_one_passes(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "system.toml").write_text(FAKE)
    (tmp_path / "fake" / "fake.py").write_text("from systems.etcd.etcd import Etcd\n\n__all__ = ['Etcd']\n")
    runs = run(tmp_path, SMALL + CELLS)
    verdict, directory = runs["stale"]
    stale = next(each for each in verdict["anomalies"] if each["name"] == "stale-register-read")
    (member,) = {row["endpoint"] for row in stale["witness"]}
    assert member.partition(":")[0]
    assert "answered by n1" in (directory / "report.html").read_text()
    assert not (directory / "certificate").exists()
    verdict, directory = runs["honest"]
    assert (verdict["verdict"], verdict["anomalies"]) == ("pass", [])
    assert any((directory / "certificate").iterdir())


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed: install-packages etcd-server")
def test_one_member_of_etcd_that_is_killed_passes(tmp_path: Path) -> None:
    nemesis = '[nemesis]\nkind = "random"\nfaults = ["kill"]\ninterval_s = [0.3, 0.5]\nduration_s = [0.3, 0.5]\n'
    runs = run(tmp_path, SMALL + '[system]\nname = "etcd"\n' + nemesis)
    verdict, directory = runs["main"]
    assert verdict["verdict"] == "pass"
    assert "elected leader" in (directory / "nodes" / "n1" / "service.log").read_text()
