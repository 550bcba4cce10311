"""The runs that are mutated: made by `brownout run` as a user makes them, and kept in an archive.

Making them takes a minute of real time, and every test session needs them. The archive beside this module has their
evidence and no verdicts: each session analyzes the runs with today's code. A test makes the runs again and compares
their shape (`test_base_runs.py`). After a change of the files of a run, write the archive with `.venv/bin/python -m
tests.mutations.base_runs`.
"""

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from installation.files import PROJECT_ROOT
from orchestrator.command.line import main
from tests.campaign_text import campaign_text, random_faults
from tests.systems.test_etcd_runs import FAKE

ARCHIVE: Final = Path(__file__).with_name("base_runs.tar.xz")
STALE: Final = "runs have changed: write the archive again with .venv/bin/python -m tests.mutations.base_runs"
DERIVED: Final = ("verdict.json", "tables", "certificate", "plots", "report.html", "spark", "summary.json", "junit.xml")
"""What an analysis writes, and the gate."""

SLOW: Final = 0.05
"""The least share of the load, however slow the machine is."""
LOG = """
name = "log"
[topology]
world = "process"
nodes = 3
[broker]
"min.insync.replicas" = 2
"offsets.topic.num.partitions" = 1
"broker.session.timeout.ms" = 1500
"broker.lease.ms" = 1000
[workload]
partitions = 2
producers = 2
consumers = 1
rate = 20
[nemesis]
kind = "steps"
step = [
  { do = "name", node = "leader:0", as = "A" },
  { do = "wait", log_end = 20, node = "A" },
  { do = "wait", log_end = 20, node = "A", partition = 1 },
  { do = "kill", node = "A" },
  { do = "wait", fenced = "A" },
  { do = "start", node = "A" },
  { do = "wait", in_sync = 0 },
  { do = "wait", log_end = 35, node = "A" },
  { do = "name", node = "follower:1", as = "B" },
  { do = "pause", node = "B" },
  { do = "resume", node = "B" },
  { do = "wait", in_sync = 1 },
  { do = "wait", log_end = 35, node = "B", partition = 1 },
  { do = "consume", partition = 0 },
]
[checks]
min_ok = 20
min_queries = 1
required_faults = ["kill", "pause"]
"""
"""A leader is killed, so that partition 0 has two leader epochs, and a follower stands still for a moment.
A reader sees partition 0 before all is healed, and another one all of them in the end."""

REGISTER = campaign_text(
    "register",
    topology={"world": "process", "nodes": 1},
    system={"path": "fake"},
    client={"client_class": "fake/client.py:FirstSeen", "options": {"stale": "no"}},
    workload={"kind": "register", "clients": 3, "keys": 2, "rate": 12, "duration_s": 6, "operations": 60},
    nemesis=random_faults("pause", interval_s=[2.0, 2.0], duration_s=[0.2, 0.2]),
    checks={"min_ok": 8, "min_share": SLOW, "required_faults": ["pause"]},
)
"""A store of keys in one process, which stands still now and then."""

GROUP = campaign_text(
    "group",
    topology={"world": "process", "nodes": 1},
    broker={
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 100,
    },
    workload={
        "kind": "group", "partitions": 2, "replication_factor": 1, "producers": 1, "members": 2, "rate": 40,
        "duration_s": 8,
    },
    nemesis=random_faults("pause", interval_s=[2.0, 2.0], duration_s=[0.2, 0.2]),
    checks={"min_ok": 20, "min_share": SLOW, "required_faults": ["pause"]},
)  # fmt: skip
"""A consumer group of two members at one broker, which stands still now and then."""

SIMULATED = campaign_text(
    "simulated",
    topology={"world": "simulation", "nodes": 3},
    broker={
        "min.insync.replicas": 2,
        "log.flush.interval.messages": 1,
        "offsets.topic.num.partitions": 1,
        "broker.session.timeout.ms": 1500,
        "broker.lease.ms": 1000,
    },
    workload={"partitions": 1, "producers": 1, "consumers": 1, "rate": 20, "duration_s": 8},
    nemesis=random_faults("kill", interval_s=[1.0, 1.0], duration_s=[0.5, 0.5]),
    # a broker is killed each second: what waits for it comes late
    checks={"min_ok": 20, "min_share": 0.3, "required_faults": ["kill"]},
)
"""A simulated cluster, at whose brokers' own state the oracles looked."""

TIERED = """
name = "tiered"
[topology]
world = "simulation"
nodes = 3
[broker]
"min.insync.replicas" = 1
"log.flush.interval.messages" = 1
"offsets.topic.num.partitions" = 1
"broker.session.timeout.ms" = 1500
"broker.lease.ms" = 1000
"remote.log.storage.system.enable" = "true"
"rlmm.config.remote.log.metadata.topic.num.partitions" = 2
"remote.log.manager.task.interval.ms" = 300
"log.retention.check.interval.ms" = 300
"follower.fetch.last.tiered.offset.enable" = "true"
[workload]
kind = "tiered"
assignment = [[1, 2]]
producers = 2
consumers = 1
idempotent = true
rate = 60
jumps_share = 0.5
[workload.topic_settings]
"remote.storage.enable" = "true"
"segment.bytes" = 4096
"retention.ms" = -1
"retention.bytes" = -1
"local.retention.ms" = -1
"local.retention.bytes" = 8192
[nemesis]
kind = "steps"
step = [
  { do = "wait", offset = "local-start", at_least = 10 },
  { do = "kill", node = "n2" },
  { do = "start", node = "n2" },
  { do = "wait", in_sync = 0 },
  { do = "join", node = "n3" },
  { do = "elect", node = "n3", partition = 0 },
  { do = "wait", offset = "last-tiered", at_least = 130 },
  { do = "consume", partition = 0 },
]
[checks]
min_ok = 20
required_faults = ["kill"]
"""
"""A simulated cluster with tiered storage. An empty replica joins above what is in the store, and leads."""

BASES = {"log": LOG, "register": REGISTER, "group": GROUP, "simulated": SIMULATED, "tiered": TIERED}


def make(name: str, directory: Path) -> Path:
    """Runs a campaign of `BASES` below `directory` and returns its only run."""
    fake = directory / "fake"
    fake.mkdir(exist_ok=True)
    (fake / "system.toml").write_text(FAKE)
    (fake / "fake.py").write_text("from systems.etcd.etcd import Etcd\n\n__all__ = ['Etcd']\n")
    shutil.copyfile(PROJECT_ROOT / "tests" / "systems" / "stale_etcd_client.py", fake / "client.py")
    file = directory / f"{name}.toml"
    file.write_text(BASES[name])
    store = ["--store", str(directory / "store")]
    main(["run", str(file), *store, "--engine", "in-process", "--no-plots", "--quiet"])
    return _run_of(directory / "store" / name)


def unpack(directory: Path) -> dict[str, Path]:
    """The archived runs below `directory`, not analyzed; their directories, by name."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return {name: _run_of(directory / "store" / name) for name in BASES}


def _run_of(campaign: Path) -> Path:
    (run,) = [path.parent for path in campaign.glob("*/run.toml")]
    return run


def write_archive() -> None:
    """Make all base runs and write the archive."""
    with tempfile.TemporaryDirectory(prefix="bases-") as place:
        campaigns = {name: make(name, Path(place)).parent for name in BASES}
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for name, campaign in campaigns.items():
                for path in sorted(campaign.rglob("*")):
                    inside = path.relative_to(campaign)
                    if not set(inside.parts) & set(DERIVED):
                        archive.add(path, f"store/{name}/{inside}", recursive=False, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="root", gname="root", mtime=0, deep=False)


if __name__ == "__main__":
    write_archive()
