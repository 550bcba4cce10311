"""Clients that are programs: kcat, and Apache Kafka's own tools in Java."""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import systems.maven as maven
from systems.lock_file import Coordinate
from tests.broker.clients.harness import Cluster, until
from tests.broker.clients.kafkas_tools import JARS, VERSION
from tests.compatibility.trials import NotTriedError, Trial

TIMEOUT_S = 180.0
JAVA_OPTIONS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For short runs: what is compiled carefully is never run often enough."""
RECORDS = 300
TOOLS = Coordinate.parse(f"org.apache.kafka:kafka-tools:{VERSION}")
TOOLS_SHA256 = "8a6939f310a61119cedaffc144119e9b2a374e32a7ec18f78e49ce5aeb71d6b0"
TOOLS_JAR = JARS.parent.parent / "apache-kafka-tools" / VERSION / f"kafka-tools-{VERSION}.jar"
"""What has the tools' classes but for two, which the broker's own jars have: no system under test needs it."""


def run(command: Sequence[str], given: str = "", *, timeout_s: float = TIMEOUT_S) -> str:
    """What a program prints. It must end with 0."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- kcat


def kcat_version() -> str:
    if shutil.which("kcat") is None:
        raise NotTriedError("there is no kcat on this machine; `--install` has it installed")
    found = re.search(r"Version (\S+)", run(["kcat", "-V"]))
    return found[1] if found else "unknown"


def kcat_produce(nodes: Cluster) -> str:
    lines = "".join(f"{number}:kcat-{number}\n" for number in range(RECORDS))
    run(["kcat", "-b", nodes.bootstrap, "-P", "-t", "kcat", "-K:"], lines)
    return f"{RECORDS} records produced"


def kcat_consume(nodes: Cluster) -> str:
    out = run(["kcat", "-b", nodes.bootstrap, "-C", "-t", "kcat", "-e", "-q"])
    assert sorted(out.split()) == sorted(f"kcat-{number}" for number in range(RECORDS)), out[-200:]
    return f"{RECORDS} records read"


def kcat_list(nodes: Cluster) -> str:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic("kcat", 3)])["kcat"].result(TIMEOUT_S)
    out = run(["kcat", "-b", nodes.bootstrap, "-L"])
    assert "3 brokers" in out, out
    return "3 brokers listed"


# --- Java


@cache
def java_classpath() -> str:
    """The tools' jars; one of them is fetched when it is missing. Raises `NotTriedError`."""
    if shutil.which("java") is None:
        raise NotTriedError("there is no java on this machine")
    if not list(JARS.glob("kafka_2.13-*.jar")):
        raise NotTriedError(f"there are no jars: run `./brownout system fetch apache-kafka {VERSION}`")
    if not TOOLS_JAR.exists():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                found = maven.download([TOOLS], Path(scratch) / "maven", lambda _: None)[TOOLS]
            except maven.MavenError as error:
                raise NotTriedError(f"Maven did not bring {TOOLS}: {error}") from error
            if hashlib.sha256(found.read_bytes()).hexdigest() != TOOLS_SHA256:
                raise NotTriedError(f"what Maven brought for {TOOLS} has not the SHA-256 {TOOLS_SHA256}")
            TOOLS_JAR.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, TOOLS_JAR)
    return f"{TOOLS_JAR}:{JARS}/*"


def java_version() -> str:
    java_classpath()
    return VERSION


def tool(main_class: str, *arguments: str, given: str = "") -> str:
    return run(["java", *JAVA_OPTIONS, "-cp", java_classpath(), main_class, *arguments], given)


def topics(nodes: Cluster) -> str:
    ask = partial(tool, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", nodes.bootstrap)
    ask("--create", "--topic", "java", "--partitions", "3")
    out = ask("--describe", "--topic", "java")
    assert "PartitionCount: 3" in out and "ReplicationFactor: 3" in out, out  # noqa: PT018 - of one answer
    assert "java" in ask("--list").split()
    return "created, described (3 partitions, 3 replicas) and listed a topic"


def configs(nodes: Cluster) -> str:
    where = ("--bootstrap-server", nodes.bootstrap, "--entity-type", "topics", "--entity-name", "java")
    tool("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", "retention.ms=86400000")
    out = tool("kafka.admin.ConfigCommand", *where, "--describe")
    assert "retention.ms=86400000" in out, out
    return "altered and described a topic's configuration"


def users(nodes: Cluster) -> str:
    where = ("--bootstrap-server", nodes.bootstrap, "--entity-type", "users")
    tool("kafka.admin.ConfigCommand", *where, "--describe")
    change = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    tool("kafka.admin.ConfigCommand", *where, "--entity-name", "ann", "--alter", "--add-config", change)
    out = tool("kafka.admin.ConfigCommand", *where, "--describe")
    assert "SCRAM credential configs for user-principal 'ann'" in out, out
    return "none, then one with a SCRAM credential, described"


def reassignment(nodes: Cluster) -> str:
    plan = {"version": 1, "partitions": [{"topic": "java", "partition": 0, "replicas": [2, 3, 1]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plan, file)
        file.flush()
        main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        ask = partial(tool, main, "--bootstrap-server", nodes.bootstrap, "--reassignment-json-file", file.name)
        ask("--execute")
        until(lambda: "is completed" in ask("--verify"), "the reassignment is complete")
    return "executed, verified until it was complete"


def quorum(nodes: Cluster) -> str:
    ask = partial(tool, "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", nodes.bootstrap)
    status = ask("describe", "--status")
    assert re.search(r"LeaderId:\s+[123]\n", status), status
    replication = ask("describe", "--replication")
    assert replication.count("Follower") == 2, replication
    return "status and replication: one leader, two followers"


def console_producer(nodes: Cluster) -> str:
    lines = "".join(f"console-{number}\n" for number in range(RECORDS))
    main = "org.apache.kafka.tools.ConsoleProducer"
    tool(main, "--bootstrap-server", nodes.bootstrap, "--topic", "java", given=lines)
    return f"{RECORDS} records produced"


def console_consumer(nodes: Cluster) -> str:
    where = ("--bootstrap-server", nodes.bootstrap, "--topic", "java", "--from-beginning", "--group", "console")
    out = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--max-messages", str(RECORDS))
    assert sorted(out.split()) == sorted(f"console-{number}" for number in range(RECORDS)), out[-200:]
    return f"{RECORDS} records read in a group"


def verifiable_producer(nodes: Cluster) -> str:
    main = "org.apache.kafka.tools.VerifiableProducer"
    where = ("--bootstrap-server", nodes.bootstrap, "--topic", "java")
    out = tool(main, *where, "--max-messages", str(RECORDS))
    assert f'"acked":{RECORDS}' in out.replace(" ", ""), out[-400:]
    return f"{RECORDS} of {RECORDS} acknowledged"


def verifiable_consumer(nodes: Cluster) -> str:
    main = "org.apache.kafka.tools.VerifiableConsumer"
    where = ("--bootstrap-server", nodes.bootstrap, "--topic", "java", "--group-id", "verifiable")
    out = tool(main, *where, "--max-messages", str(2 * RECORDS), "--reset-policy", "earliest")
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    read = sum(event["count"] for event in events if event["name"] == "records_consumed")
    commits = [event["success"] for event in events if event["name"] == "offsets_committed"]
    assert read >= 2 * RECORDS, out[-400:]
    assert commits, out[-400:]
    assert all(commits), out[-400:]
    return f"{read} records read in a group, {len(commits)} commits of offsets"


def consumer_groups(nodes: Cluster) -> str:
    ask = partial(tool, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server")
    assert {"console", "verifiable"} <= set(ask(nodes.bootstrap, "--list").split())
    out = ask(nodes.bootstrap, "--describe", "--group", "verifiable")
    rows = [line.split() for line in out.splitlines() if line.startswith("verifiable ")]
    assert sum(int(row[3]) for row in rows) == 2 * RECORDS, out
    assert {row[5] for row in rows} == {"0"}, out
    return f"groups listed; one described: offsets of {len(rows)} partitions, no lag"


def dump_log(nodes: Cluster) -> str:
    main, brokers = "kafka.tools.DumpLogSegments", nodes.brokers.values()
    segments = [segment for broker in brokers for segment in sorted(broker.log_dir.glob("java-*/*.log"))]
    out = tool(main, "--files", ",".join(map(str, segments)), "--deep-iteration")
    assert "rror" not in out, out[-400:]
    found = len(re.findall(r"^\| offset: ", out, re.MULTILINE))
    assert found == len(nodes.brokers) * 2 * RECORDS, f"{found} records"
    metadata = [min((broker.log_dir / "__cluster_metadata-0").glob("*.log")) for broker in brokers]
    out = tool(main, "--files", ",".join(map(str, metadata)), "--cluster-metadata-decoder")
    assert out.count("TOPIC_RECORD") >= len(metadata), out[-400:]
    return f"{found} records of {len(segments)} segments, and the metadata logs of {len(metadata)} brokers"


def _java(name: str, done: str, trial: Callable[[Cluster], str]) -> Trial:
    return Trial(f"Apache Kafka, {name}", done, java_version, trial)


TRIALS = (
    _java("kafka-topics", "create, describe, list", topics),
    _java("kafka-configs", "alter, describe", configs),
    _java("kafka-configs", "users: describe, add a SCRAM credential", users),
    _java("kafka-reassign-partitions", "--execute, --verify", reassignment),
    _java("kafka-metadata-quorum", "describe --status, --replication", quorum),
    _java("console producer", "defaults", console_producer),
    _java("console consumer", "a group, from the beginning", console_consumer),
    _java("verifiable producer", "defaults", verifiable_producer),
    _java("verifiable consumer", "a group", verifiable_consumer),
    _java("kafka-consumer-groups", "list, describe", consumer_groups),
    _java("kafka-dump-log", "on our files", dump_log),
    Trial("kcat", "list", kcat_version, kcat_list),
    Trial("kcat", "produce", kcat_version, kcat_produce),
    Trial("kcat", "consume", kcat_version, kcat_consume),
)
