"""Writes docs/by-hand.md from the broker's configuration and its texts: `python -m docs.generators.by_hand`."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from broker.config import BrokerConfig, setting_texts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "by-hand.md"
HOST, PORTS, CONTROLLERS = "127.0.0.1", (9092, 9093, 9094), (9192, 9193, 9194)

INTRODUCTION = """# Brokers by hand

Made by `python -m docs.generators.by_hand`. A test fails if this page is out of date, and another test runs its
commands unchanged in a shell. `python` is the project's Python: `.venv/bin/python` in a checkout after `./brownout` has
set up the environment.
"""
ONE = """
## One broker
A broker is one process with one properties file and one data directory.
"""
ONE_MORE = """
It prints a line when it is ready. Any Kafka client can use it at the first of its `listeners`:
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
SIGTERM stops it cleanly. All of its data is on disk then:
"""
THREE = """
## Three brokers
Each broker has its own number, address and directory, and all have the same list of voters. With three replicas per
partition and at least two in sync, an acknowledged record survives the loss of any one machine. With
`log.flush.interval.messages=1` it also survives a power loss of all machines. Consumer groups need as many brokers as
`__consumer_offsets` has replicas: three by default.
"""
VOTERS = """
A new cluster starts when all `quorum.voters` are up; afterwards a majority of them is sufficient. A voter is
identified by its number and its disk (`directory.id` in `meta.properties`, KIP-853). A voter that restarts with an
empty disk has lost its vote. It has no vote at first and fetches the metadata log. It replaces the old disk
automatically after the other voters have had no fetch from that disk for 1.5 times `quorum.fetch.timeout.ms`. The
other voters must be a majority for this: if two of three disks are lost, or one of two, the quorum stops, because it
could otherwise lose committed records.

The first start of a cluster must complete with the same disks. The first leader writes a record that names them, and
commits nothing until each voter has that record. If a disk is lost before that, the other voters wait for it and
report which voter is missing; a new disk does not replace it. Nothing has been acknowledged at that point: stop all
voters, empty their directories, and start again.
"""
THREE_MORE = """
Two of the three are sufficient. Kill one, and start it again with the same command:
"""
KEYS = """
## All configuration keys
`python -m broker --config FILE --check` checks a file. A key that is not in this table is an error. Names and
meanings are Kafka's, except for `quorum.*`, which are from KIP-595, and for `broker.lease.ms`,
`group.coordinator.max.bytes`, `trace.path` and `metrics.port`, which are ours. Durations end in `.ms` (milliseconds),
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
    parts += [THREE_MORE, _block(_kill_and_start(2)), "\nStop all three:\n", _block(_stop([1, 2, 3])), KEYS, *_table()]
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
    yield "\n| key | default | meaning |\n|---|---|---|\n"
    settings = [(spec, spec.metadata.get("key", "")) for spec in fields(BrokerConfig)]
    for spec, _ in settings:
        if key := spec.metadata.get("needed"):
            yield f"| `{key}` | needed | {setting_texts()[key]} |\n"
    yield "| `trace.path` | none | File for the broker's trace: one JSON object per line for each event. |\n"
    for spec, key in settings:
        if key:
            yield f"| `{key}` | {_default(spec.default)} | {setting_texts()[key]} |\n"


def _default(value: object) -> str:
    if value is None or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
