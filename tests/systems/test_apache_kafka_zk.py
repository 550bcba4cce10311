"""Apache Kafka with ZooKeeper: the settings of its nodes, the settings of a campaign, and one real broker."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator.worlds.base import Node
from systems import Deployed, InputError, Service, Settings, load_system
from systems.apache_kafka_zk.kafka import ZooKeeperKafka
from systems.catalog import find_system
from systems.description import read
from systems.files import CACHE, FileCache
from systems.java_system import Java
from tests.orchestrator.campaigns import campaign
from tests.systems.places import places_of

NAME, VERSION = "apache-kafka-zk", "0.10.2.2"
FETCHED = FileCache(CACHE).is_fetched(find_system(NAME).lock(VERSION))
ROLES = ("broker", "broker", "zookeeper")


def services(tmp_path: Path, version: str = VERSION, settings: Mapping[str, Settings] | None = None) -> list[Service]:
    """What two brokers and a ZooKeeper run."""
    java = Java(tmp_path / "jdk" / "bin" / "java", 17)
    java.program.parent.mkdir(parents=True, exist_ok=True)
    java.program.touch()  # no test starts it
    system = ZooKeeperKafka(read(find_system(NAME).directory), version, cache=tmp_path / "cache", find=lambda _: java)
    deployed = Deployed(system, ROLES, "brownout-a run", dict(settings or {}))
    nodes = places_of(deployed)
    return [deployed.service(node, nodes) for node in nodes]


def properties(service: Service, name: str) -> dict[str, str]:
    lines = [line for line in service.files[f"/etc/b/{name}"].splitlines() if line.strip()]
    return dict(line.split("=", 1) for line in lines)


def test_broker_properties_have_the_broker_id_and_the_zookeeper_address(tmp_path: Path) -> None:
    first, second, _ = services(tmp_path)
    settings = properties(second, "server.properties")
    assert (properties(first, "server.properties")["broker.id"], settings["broker.id"]) == ("1", "2")
    assert settings["listeners"] == "PLAINTEXT://10.0.0.2:9092"
    assert settings["log.dirs"] == "/data/log"
    assert settings["zookeeper.connect"] == "10.0.0.3:2181"
    assert settings["unclean.leader.election.enable"] == "false"


def test_settings_are_those_of_the_role_and_the_node_and_count_more_than_ours(tmp_path: Path) -> None:
    own = {"n2": {"zookeeper.session.timeout.ms": "1500"}}
    settings = {"broker": Settings({"num.io.threads": "8"}, own), "zookeeper": Settings({"syncLimit": "3"})}
    first, second, zookeeper = services(tmp_path, settings=settings)
    assert properties(first, "server.properties")["zookeeper.session.timeout.ms"] == "6000"
    assert properties(second, "server.properties")["zookeeper.session.timeout.ms"] == "1500"
    assert properties(second, "server.properties")["num.io.threads"] == "8"
    assert properties(zookeeper, "zookeeper.properties")["syncLimit"] == "3"


def test_zookeeper_properties_allow_short_sessions_and_open_one_port(tmp_path: Path) -> None:
    old = properties(services(tmp_path)[2], "zookeeper.properties")
    new = properties(services(tmp_path, "3.9.1")[2], "zookeeper.properties")
    assert (old["dataDir"], old["clientPort"], old["minSessionTimeout"]) == ("/data/zookeeper", "2181", "500")
    assert "admin.enableServer" not in old
    assert new["admin.enableServer"] == "false"


def test_zookeeper_starts_before_the_brokers_and_stops_are_kills(tmp_path: Path) -> None:
    first, _, zookeeper = services(tmp_path)
    assert zookeeper.start_order < first.start_order
    assert all(service.kills_at_stop for service in (first, zookeeper))


def test_a_node_runs_the_versions_jars_with_a_java_that_it_sees(tmp_path: Path) -> None:
    first, _, zookeeper = services(tmp_path)
    jars = str(tmp_path / "cache" / NAME / VERSION)
    for service, program in ((first, "kafka.Kafka"), (zookeeper, "org.apache.zookeeper.server.quorum.QuorumPeerMain")):
        assert service.command[0] == str(tmp_path / "jdk" / "bin" / "java")
        assert service.command[-4:-1] == ("-cp", f"{jars}/*", program)
        assert jars in service.shows


HEAD = f'[system]\nname = "{NAME}"\n[workload]\nassignment = [[1, 2]]\n'


def test_the_last_node_is_zookeeper_and_keeps_no_data() -> None:
    system = load_system(NAME)
    assert system.assign_roles(3, {}) == ROLES
    assert system.version == "3.9.1"
    with pytest.raises(InputError, match=r"assignment: n3 stores no data"):
        campaign(HEAD.replace("[[1, 2]]", "[[1, 3]]"))
    with pytest.raises(InputError, match=r"replication_factor: 3 replicas need as many nodes .* there are 2"):
        campaign(f'[system]\nname = "{NAME}"\n')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[broker]\n"zookeeper.connect" = "x"\n',
            r"c.toml:7: \[broker\] zookeeper.connect: the run gives it to each node",
        ),
        ("[zookeeper]\nclientPort = 1\n", r"c.toml:7: \[zookeeper\] clientPort: the run gives it to each node"),
        ('[system.roles]\nn1 = "controller"\n', r"has no role 'controller'"),
        ('[system.roles]\nn1 = "zookeeper"\nn2 = "zookeeper"\n', "2 nodes have the role zookeeper; it must be one"),
        ('[system.roles]\nn1 = "broker"\n', "0 nodes have the role zookeeper; it must be one"),
        ("[topology]\nnodes = 1\n", "roles: no node has the role broker; give .topology. more nodes"),
        ('[[cell]]\nname = "a"\nversion = "0.10.2"\n', r"has no version '0.10.2'"),
    ],
)
def test_an_error_in_a_campaign_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        campaign(HEAD + text)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ('do = "wait"\nevent = "registered"\nnode = "n1"', "writes no trace events"),
        ('do = "wait"\nlog_end = 1\nnode = "n1"', "do not report their log end"),
    ],
)
def test_steps_that_it_cannot_do_are_refused(step: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        campaign(HEAD + f'[nemesis]\nkind = "steps"\n[[nemesis.step]]\n{step}\n')


def test_missing_jars_are_named_with_the_remedy(tmp_path: Path) -> None:
    system = ZooKeeperKafka(
        read(find_system(NAME).directory), VERSION, cache=tmp_path, find=lambda _: Java(tmp_path, 17)
    )
    with pytest.raises(InputError, match=r"not on this machine; run: brownout system fetch apache-kafka-zk 0.10.2.2"):
        system.prepare(lambda _: None)


@pytest.mark.skipif(not FETCHED, reason=f"run: brownout system fetch {NAME} {VERSION}")
def test_a_broker_and_its_zookeeper_run_and_are_observed(tmp_path: Path) -> None:
    system = load_system(NAME, version=VERSION)
    system.prepare(lambda _: None)
    deployed = Deployed(system, ("broker", "zookeeper"), "brownout-test")
    nodes = [node(tmp_path, number, deployed) for number in (1, 2)]
    observer = system.observe(deployed.members(nodes), "log")
    try:
        with running(deployed, nodes):
            await_true(lambda: observer.view().controller == "n1" and observer.view().unfenced == {"n1", "n2"})
            await_true(lambda: observer.create_topic([[1]], 1.0) is None)
            await_true(lambda: [state.isr for state in observer.view().partitions.values()] == [("n1",)])
            await_true(lambda: observer.elect("n1", 0) is None)  # type: ignore[attr-defined]
        assert observer.view().complaints
    finally:
        observer.close()


def node(tmp_path: Path, number: int, deployed: Deployed) -> Node:
    directory = tmp_path / f"n{number}"
    for each in ("data", "etc", "var"):
        (directory / each).mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, etc, var = (str(directory / each) for each in ("data", "etc", "var"))
    files = deployed.files_dir
    return Node(f"n{number}", number, "127.0.0.1", {"client": port}, data, etc, var, files, record_dir=directory)


@contextlib.contextmanager
def running(deployed: Deployed, nodes: Sequence[Node]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in reversed(nodes):  # ZooKeeper first
            service = deployed.service(each, nodes)
            for path, text in service.files.items():
                Path(path).write_text(text)
            log = stack.enter_context(open(each.service_log, "wb"))
            process = subprocess.Popen(
                service.command, stdout=log, stderr=log, env={**os.environ, **service.environment}
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def await_true(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
    give_up = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)
