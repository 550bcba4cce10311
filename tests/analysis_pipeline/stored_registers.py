"""Makes the directory of a run that worked registers, as an orchestrator would leave it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from history.journal.writer import Journal
from history.record.client_files import left_by
from history.record.shapes import REGISTER
from history.record.writer import OperationWriter
from history.seal import seal
from orchestrator.campaign import toml_text
from tests.analysis_pipeline.stored_run import MS, NODES, Clock

KEYS = ("k0", "k1", "k2")
ROUNDS = 12
OPERATIONS = len(KEYS) * ROUNDS * 3


Held = dict[str, int | None]


@dataclass
class StoredRegisters:
    """Three keys, each written, swapped and read in turn by two clients, and read after healing, unless the fields say
    otherwise."""

    path: Path
    clock: Clock = field(default_factory=Clock)
    keys: tuple[str, ...] = KEYS  # those that are worked; as many are planned
    min_ok: int = 10
    stale: bool = False  # the last read of the last key shows what its first write wrote
    final_reads: bool = True
    elsewhere: tuple[Mapping[str, object], ...] = ()  # what a client in another language did, who took part too
    killed: int = 0  # how many of its programs the run had to kill
    torn: int = 0  # the number of bytes of a torn last line, which the killed program left
    system: Mapping[str, str] = field(default_factory=dict)  # its name, title and version
    asked: Mapping[str, str] = field(default_factory=dict)  # the endpoint that each client asked, if it is recorded
    phases: tuple[str, ...] = ("setup", "main", "heal", "quiesce", "final", "collect", "done")

    def write(self) -> Path:
        self.path.mkdir(parents=True)
        content = {
            "run": self.path.name,
            "campaign": "story",
            "cell": "main",
            "world": "paper",
            "seed": 3,
            "replay": "./brownout run story.toml --seed 3",
            "mutants": [],
            "limits": ["nothing here is real"],
            "expect": {"verdict": "pass"},
            "checks": {"upper_bound": "strict", "min_ok": self.min_ok, "min_queries": 0, "required_faults": []},
            "topology": {"nodes": 3},
            "system": {**self.system, "roles": dict.fromkeys(NODES, "member")},
            "replicas": {"format": "none"},
            "metadata": {"format": "none", "traced": False},
            "workload": {"kind": "register", "judge": "register", "keys": len(self.keys)},
            "plan": {"clients": ["c0", "c1"], "changes": 2 * OPERATIONS // 3, "queries": OPERATIONS // 3},
            "nemesis": {"kind": "none"},
            "versions": {"python": "3"},
        }
        (self.path / "run.toml").write_text(toml_text.dump(content))
        for node in NODES:
            (self.path / "nodes" / node / "data").mkdir(parents=True)
            (self.path / "nodes" / node / "service.log").write_text("nothing to report\n")
        with Journal(self.path, clock=self.clock, wall=self.clock.wall) as journal:
            journal.run_started(run=self.path.name, cell="main", seed=3, world="paper")
            for phase in self.phases:
                self.clock.now += 10 * MS
                journal.phase(phase)
                if phase == "setup":
                    journal.note("nodes_up", endpoints={node: f"{node}:9" for node in NODES})
                for number, node in enumerate(NODES, 1):
                    if phase == "setup":
                        journal.node(node, "started")
                    if phase == "collect":
                        journal.node(node, "running", pid=number, start="7")
                        journal.node(node, "stopped", status=0, ran=True)
                if phase == "main":
                    clients, first, held = self._work(journal)
                if phase == ("final" if "final" in self.phases else "main"):
                    self._final(clients[0], first, held)
                    self._end(journal, clients)
                if phase == "heal":
                    up = {node: {"port": "open"} for node in NODES}
                    journal.event("heal_all", status="confirmed", evidence={"services": up})
        if "done" in self.phases:
            seal(self.path)
        return self.path

    def _work(self, journal: Journal) -> tuple[list[OperationWriter], Held, Held]:
        """The clients, and what each key held first and holds now."""
        (self.path / "clients").mkdir()
        for name in ("c0", "c1", *(["elsewhere"] if self.elsewhere else [])):
            (self.path / "clients" / f"{name}.log").touch()
        for n in (0, 1):
            journal.client(f"c{n}", process=n, role="client", session=1, producers=(n, 1))
        directory = self.path / "history" / "operations"
        clients = [
            OperationWriter(REGISTER, directory, client=f"c{n}", session=1, process=n, producer=n, clock=self._tick)
            for n in (0, 1)
        ]
        if self.elsewhere:
            journal.client("elsewhere", process=2, role="client", session=1, producers=(1000, 500))
        first: Held = {}
        held: Held = {}
        for number in range(ROUNDS):
            client = clients[number % 2]
            endpoint = self.asked.get(client.client, "")
            for key in self.keys:
                write = client.start("write", key=key)
                client.end(write, "ok", endpoint=endpoint)
                swap = client.start("cas", key=key, expected=write.value)
                client.end(swap, "ok", endpoint=endpoint)
                held[key] = swap.value
                first.setdefault(key, write.value)
                client.end(client.start("read", key=key), "ok", value=held[key], endpoint=endpoint)
        return clients, first, held

    def _end(self, journal: Journal, clients: list[OperationWriter]) -> None:
        directory = self.path / "history" / "operations"
        for client in clients:
            client.close()
            journal.client_ended(client.client, exit_code=0, files=left_by(directory, client.client))
        if self.elsewhere:
            text = "".join(json.dumps(line) + "\n" for line in self.elsewhere) + '{"f": "write"'[: self.torn]
            (directory / "elsewhere.jsonl").write_text(text)
            files = left_by(directory, "elsewhere")
            journal.client_ended("elsewhere", exit_code=137 if self.torn else 0, files=files, killed=self.killed)

    def _final(self, client: OperationWriter, first: Held, held: Held) -> None:
        client.phase = "final"
        for key in self.keys if self.final_reads else ():
            shown = first[key] if self.stale and key == self.keys[-1] else held[key]
            client.end(client.start("read", key=key), "ok", value=shown, endpoint=self.asked.get(client.client, ""))

    def _tick(self) -> int:
        self.clock.now += MS
        return self.clock.now
