"""Workloads on objects: a user brings a client, and a model judges the answers. A server that forgets must fail."""

import tomllib
from pathlib import Path

import pytest

from tests.campaign_text import campaign_text, random_faults
from tests.orchestrator.stored_campaign import Answer, ask
from workloads.objects import OBJECTS

SERVER = '''#!/usr/bin/env python3
"""All objects in one process. With "disk" it syncs each change before it answers."""

import json
import os
import socketserver
import sys
import threading

address, directory, mode = sys.argv[1:]
FILE = os.path.join(directory, "log")
lock = threading.Lock()
state = {"set": [], "queue": [], "counter": 0, "bank": {str(number): 50 for number in range(8)}, "ids": 0, "lists": {}}


def step(f, key, value):
    elements = state["lists"].setdefault(str(key), [])
    if f == "r":
        return [f, key, [*elements]]
    elements.append(value)
    return [f, key, value]


def apply(change):
    do, argument = change
    if do == "add" and isinstance(argument, str):
        state["set"].append(argument)
    elif do == "add":
        state["counter"] += argument
    elif do == "enqueue":
        state["queue"].append(argument)
    elif do == "dequeue":
        return state["queue"].pop(0) if state["queue"] else None
    elif do == "generate":
        state["ids"] += 1
        return state["ids"]
    elif do == "txn":
        return [step(*each) for each in argument]
    elif do == "transfer":
        state["bank"][str(argument["from"])] -= argument["amount"]
        if mode != "memory":  # else the money is gone
            state["bank"][str(argument["to"])] += argument["amount"]
    return None


if os.path.exists(FILE):
    for line in open(FILE):
        apply(json.loads(line))
log = open(FILE, "a")


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            do, argument = json.loads(line)
            with lock:
                if do == "read":
                    answer = state[argument]
                elif do == "transfer" and state["bank"][str(argument["from"])] < argument["amount"]:
                    answer = "refused"
                else:
                    if mode == "disk":
                        log.write(line.decode())
                        log.flush()
                        os.fsync(log.fileno())
                    answer = apply([do, argument])
                text = json.dumps(answer)
            self.wfile.write(text.encode() + b"\\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


host, port = address.rsplit(":", 1)
with Server((host, int(port)), Connection) as server:
    server.serve_forever()
'''
CLIENT = """
import json
import socket

from brownout_api import Client, Refused


class Objects(Client):
    def __init__(self, endpoints, timeout_s, options):
        super().__init__(endpoints, timeout_s, options)
        host, port = endpoints[0].rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.lines = self.connection.makefile("rb")

    def ask(self, do, argument):
        self.connection.sendall(json.dumps([do, argument]).encode() + b"\\n")
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        return json.loads(line)

    def add(self, operation):
        self.ask("add", operation.argument)

    def enqueue(self, operation):
        self.ask("enqueue", operation.argument)

    def dequeue(self, operation):
        return self.ask("dequeue", None)

    def generate(self, operation):
        return self.ask("generate", None)

    def txn(self, operation):
        steps = self.ask("txn", operation.argument)
        if self.options["of"] == "list-append":
            return steps
        return [(f, key, (value or [None])[-1] if f == "r" else value) for f, key, value in steps]

    def transfer(self, operation):
        if self.ask("transfer", operation.argument) == "refused":
            raise Refused("too little money")

    def read(self, operation):
        return self.ask("read", self.options["of"])

    def close(self):
        self.connection.close()
"""
SYSTEM = """
name = "objects"
workloads = ["own"]

[roles.server]
ports = { client = 7000 }
command = [
  "{{ system_dir }}/objects-server",
  "{{ node.address }}:{{ node.ports.client }}", "{{ node.data_dir }}", "{{ settings.mode }}",
]

[roles.server.defaults]
mode = "disk"
"""
CAMPAIGN = campaign_text(
    "objects",
    "Objects in one process that is killed",
    topology={"nodes": 1, "world": "process"},
    system={"path": "."},
    workload={"kind": "KIND", "rate": 60, "duration_s": 4},
    client={"client_class": "client.py:Objects", "options": {"of": "KIND"}},
    nemesis=random_faults("kill", interval_s=[0.5, 1.0], duration_s=[0.5, 0.5]),
    checks={"min_share": 0.1},
)
CAMPAIGN += """
[[cell]]
name = "disk"

[[cell]]
name = "memory"
server = { mode = "memory" }
expect = { verdict = "fail", anomaly = "ANOMALY" }
"""


ANOMALY = {
    "set": "lost-element",
    "queue": "lost-element",
    "counter": "lost-sum",
    "bank": "wrong-total",
    "unique-ids": "duplicate-id",
    "list-append": "incompatible-order",
    "rw-register": "own-promise-broken",
}


def written(directory: Path, kind: str, campaign: str = CAMPAIGN) -> Path:
    for name, text in {"objects-server": SERVER, "client.py": CLIENT, "system.toml": SYSTEM}.items():
        (directory / name).write_text(text)
    (directory / "objects-server").chmod(0o755)
    path = directory / "objects.toml"
    path.write_text(campaign.replace("KIND", kind).replace("ANOMALY", ANOMALY[kind]))
    return path


def run(path: Path, *options: str) -> Answer:
    return ask("run", path, "--store", path.parent / "store", "--engine", "in-process", "--no-plots", *options)


PARAMETERS = {"queue": "dequeues = 0.2"}
"""By kind. The queue stays long. A kill then loses more elements than there are dequeues of unknown outcome, which may
have taken as many."""


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_on_a_disk_pass_and_objects_in_memory_fail(tmp_path: Path, kind: str) -> None:
    campaign = CAMPAIGN.replace('kind = "KIND"', f'kind = "KIND"\n{PARAMETERS.get(kind, "")}')
    answer = run(written(tmp_path, kind, campaign))
    assert answer.code == 0, answer
    descriptions = [tomllib.loads(path.read_text()) for path in tmp_path.glob("store/objects/*-1/run.toml")]
    assert [each["checks"]["model"] for each in descriptions] == [OBJECTS[kind][1]] * 2


@pytest.mark.parametrize("kind", OBJECTS)
def test_another_model_may_judge_an_object(tmp_path: Path, kind: str) -> None:
    campaign = CAMPAIGN.replace("min_share = 0.1", 'min_share = 0.1\nmodel = "fifo-queue"')
    path = written(tmp_path, kind, campaign.replace("ANOMALY", "not-linearizable"))
    answer = run(path, "--dry-run")
    assert answer.code == (0 if kind == "queue" else 64), answer


WRONG = {
    "an unknown parameter": ("rate = 60", "rate = 60\nkeys = 3", "keys"),
    "a parameter out of bounds": ("rate = 60", "rate = 60\nreads = 2", "reads: 2: expected float < 1"),
    "a client without the function": ('kind = "set"', 'kind = "unique-ids"', "Objects has no such method"),
    "an anomaly of another model": (
        "min_share = 0.1",
        'min_share = 0.1\nallow = ["out-of-order"]',
        "[checks] allow: the model set-full has no anomaly out-of-order; it has lost-element",
    ),
    "an anomaly without a model": (
        "min_share = 0.1",
        'min_share = 0.1\nuse = ["check.py:C"]\nprohibit = ["stale-read"]',
        "[checks] prohibit: ",
    ),
    "an initial value that the model does not have": (
        "min_share = 0.1",
        'min_share = 0.1\ninitial = "1"',
        "[checks] initial: 1 has no elements: #{1 2} or a vector is needed",
    ),
    "an initial value that is no form": (
        "min_share = 0.1",
        "min_share = 0.1\ninitial = '#{1'",
        "[checks] initial: ",
    ),
    "an initial value without a model": (
        "min_share = 0.1",
        'min_share = 0.1\nuse = ["check.py:C"]\ninitial = "1"',
        "[checks] initial: it is for a model; name it in `model`",
    ),
    "an unknown consistency model": (
        "min_share = 0.1",
        'min_share = 0.1\nconsistency_model = "serialisable"',
        "did you mean 'serializable'?",
    ),
    "a consistency model for a set": (
        "min_share = 0.1",
        'min_share = 0.1\nconsistency_model = "serializable"',
        "[checks] consistency_model: it is for transactions, the models list-append and rw-register; leave it out",
    ),
    "transactions with a client that has none": ('kind = "set"', 'kind = "list-append"', "Objects has no such method"),
    "an initial value of lists": (
        "min_share = 0.1",
        'min_share = 0.1\nmodel = "list-append"\ninitial = "1"',
        "[checks] initial: 1: every key of the model list-append is empty at first; leave it out",
    ),
    "an anomaly that the consistency model allows": (
        "min_share = 0.1",
        'min_share = 0.1\nmodel = "list-append"\nconsistency_model = "read-committed"',
        "lost-element",
    ),
    "no system": (
        '[system]\npath = "."\n',
        "",
        "[system] is missing, and without it the run would test Brownout's own broker",
    ),
    "another kind": ('kind = "set"', 'kind = "sett"', "did you mean 'set'?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_before_anything_starts(tmp_path: Path, case: str) -> None:
    old, new, message = WRONG[case]
    path = written(tmp_path, "set")
    path.write_text(path.read_text().replace(old, new))
    (tmp_path / "client.py").write_text(
        CLIENT.replace("def generate", "def generated").replace("def txn", "def transaction")
    )
    answer = run(path)
    assert (answer.code, message in answer.err) == (64, True), answer
    assert not (tmp_path / "store").exists()
