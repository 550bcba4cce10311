"""Makes docs/by-hand.md from what the broker's configuration says of itself: `python -m tests.house.by_hand`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from broker.config import BrokerConfig
from broker.key_texts import OPTIONAL, REQUIRED

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "by-hand.md"
HOST, PORTS, CONTROLLERS = "127.0.0.1", (9092, 9093, 9094), (9192, 9193, 9194)

INTRODUCTION = """# Brokers by hand

Made by `python -m tests.house.by_hand`; a test fails when this page is out of date, and another one types what stands
here, as it stands, into a shell. `python` is that of the project: `.venv/bin/python` in the checkout, once `./brownout`
has set it up.
"""
ONE = """
## One broker
A broker is one process with one file of properties and one directory for its data.
"""
ONE_MORE = """
It says when it serves. Any client of Apache Kafka finds it at the first of its `listeners`:
"""
CLIENT = """from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {{"bootstrap.servers": "{servers}"}}
admin = AdminClient(servers)
admin.create_topics([NewTopic("log", 1, {replicas})])["log"].result(30)
producer = Producer(servers)
producer.produce("log", b"hello")
assert producer.flush(30) == 0
consumer = Consumer(servers | {{"group.id": "readers", "auto.offset.reset": "earliest"}})
consumer.subscribe(["log"])
message = consumer.poll(60)
print(message.value().decode())
consumer.close()
"""
ONE_ENDS = """
SIGTERM stops it cleanly; what it has is on disk then:
"""
THREE = """
## Three brokers
Each has its own number, address and directory, and the same list of voters. With three replicas of each partition and
two of them in sync, an acknowledged record survives the loss of any one machine; with `log.flush.interval.messages=1`
also that of the power of all. Consumer groups need as many brokers as `__consumer_offsets` has replicas: three, unless
the configuration says otherwise.
"""
VOTERS = """
A new cluster begins once all of `quorum.voters` are up; from then on a majority of them is enough. Each voter is
known by its number and by its disk (`directory.id` in `meta.properties`, KIP-853). A voter that comes back with an
empty disk has forgotten its vote: it counts for nothing at first, fetches what the others have, and takes the place
of the old disk by itself once the others have gone without that for one and a half times `quorum.fetch.timeout.ms`.
That needs the others to be a majority: where two of three disks are lost, or one of two, the quorum stands still
rather than forget what was committed.

A new cluster has to begin with the disks that it began with: the first leader names them, and commits nothing before
each voter has that record. A disk that is lost between the two is waited for (the others say for whom), and no other
takes its place. Nothing was acknowledged to anybody by then: stop all voters, empty their directories, and start anew.
"""
THREE_MORE = """
Two of the three are enough to go on. Kill one, and it comes back by the same command as before:
"""
KEYS = """
## All configuration keys
`python -m broker --config FILE --check` reads a file and says whether it is good. A key that is not in this table is
refused. Names and meanings are Kafka's, but for `quorum.*`, which are KIP-595's, and `broker.lease.ms`,
`group.coordinator.max.bytes`, `trace.path` and `metrics.port`, which are our own. Times end in `.ms` (milliseconds),
sizes are in bytes.
"""


def page() -> str:
    """The page as it should be."""
    parts = [INTRODUCTION, ONE, _block(_start([1])), ONE_MORE, _block(_client(1, 1)), ONE_ENDS, _block(_stop([1]))]
    parts += [
        THREE,
        _block(_start([1, 2, 3])),
        VOTERS,
        "\nThe same client, with three replicas:\n",
        _block(_client(3, 3)),
    ]
    parts += [THREE_MORE, _block(_kill_and_start(2)), "\nAnd the end:\n", _block(_stop([1, 2, 3])), KEYS, *_table()]
    return "".join(parts)


def _block(lines: str) -> str:
    return f"```sh\n{lines}```\n"


def _name(brokers: list[int], broker: int) -> str:
    return "only" if len(brokers) == 1 else f"n{broker}"


def _start(brokers: list[int]) -> str:
    voters = ",".join(f"{broker}@{HOST}:{CONTROLLERS[broker - 1]}" for broker in brokers)
    lines = ""
    for broker in brokers:
        name = _name(brokers, broker)
        lines += f"mkdir -p {name}\ncat > {name}/server.properties <<'END'\n"
        lines += f"node.id={broker}\nlisteners=PLAINTEXT://{HOST}:{PORTS[broker - 1]},CONTROLLER://{HOST}:"
        lines += f"{CONTROLLERS[broker - 1]}\ncontroller.listener.names=CONTROLLER\nquorum.voters={voters}\n"
        lines += f"log.dir={name}/data\n"
        if len(brokers) == 1:
            lines += "offsets.topic.replication.factor=1\n"
        else:
            lines += "default.replication.factor=3\nmin.insync.replicas=2\nlog.flush.interval.messages=1\n"
        lines += "END\n"
    lines += "".join(_run(_name(brokers, broker)) for broker in brokers)
    return lines + "".join(_wait(_name(brokers, broker)) for broker in brokers)


def _run(name: str) -> str:
    return f"python -m broker --config {name}/server.properties > {name}/out 2>&1 &\necho $! > {name}/pid\n"


def _wait(name: str) -> str:
    return f"until grep 'is ready' {name}/out; do sleep 0.2; done\n"


def _client(brokers: int, replicas: int) -> str:
    servers = ",".join(f"{HOST}:{port}" for port in PORTS[:brokers])
    return f"python - <<'END'\n{CLIENT.format(servers=servers, replicas=replicas)}END\n"


def _kill_and_start(broker: int) -> str:
    return f"kill -9 $(cat n{broker}/pid)\n{_run(f'n{broker}')}{_wait(f'n{broker}')}"


def _stop(brokers: list[int]) -> str:
    pids = " ".join(f"$(cat {_name(brokers, broker)}/pid)" for broker in brokers)
    return f"kill {pids}\nwait\n"


def _table() -> Iterator[str]:
    yield "\n| key | default | what it says |\n|---|---|---|\n"
    for key, doc in REQUIRED.items():
        yield f"| `{key}` | needed | {doc} |\n"
    yield "| `trace.path` | none | a file for all that happens to the broker, a JSON object in each line |\n"
    for spec in fields(BrokerConfig):
        if "key" in spec.metadata:
            yield f"| `{spec.metadata['key']}` | {_default(spec.default)} | {OPTIONAL[spec.metadata['key']]} |\n"


def _default(value: object) -> str:
    if value is None or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
