"""Apache Kafka with KRaft: the settings of its nodes, the requirements of a machine, and one real node."""

import base64
import json
import tomllib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.command.line import main
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.process.lab import ProcessWorld
from systems import Deployed, InputError, MachineRoot, Member, Service, Settings, java_system, load_system
from systems.apache_kafka.kraft import Kraft, kraft_cluster_id
from systems.catalog import find_system
from systems.description import Description, read
from systems.files import CACHE, FileCache
from systems.java_system import Java, ProgramRoot, find_java
from systems.service import Place
from tests.campaign_text import campaign_text
from tests.orchestrator.campaigns import campaign
from tests.systems.places import places_of

NAME, VERSION = "apache-kafka", "4.1.1"
FETCHED = FileCache(CACHE).is_fetched(find_system(NAME).lock(VERSION))


def description() -> Description:
    return read(find_system(NAME).directory)


def java_17(home: Path) -> Java:
    """A Java with Debian's layout, which no test starts."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "bin" / "java").touch()
    return Java(home / "bin" / "java", 17)


def services(
    tmp_path: Path, roles: Sequence[str], settings: dict[str, Settings] | None = None, time_scale: float = 1.0
) -> tuple[list[dict[str, str]], list[Service]]:
    """The properties that each node gets, as Java would read them, and the services."""
    system = Kraft(description(), cache=tmp_path / "cache", find=lambda _: java_17(tmp_path / "jdk"))
    deployed = Deployed(system, tuple(roles), "brownout-a run", settings or {})
    nodes = places_of(deployed)
    found = [deployed.service(node, nodes, time_scale) for node in nodes]
    return [properties(service.files["/etc/b/server.properties"]) for service in found], found


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_by_default_every_node_is_broker_and_controller(tmp_path: Path) -> None:
    (first, second, _), _ = services(tmp_path, ["broker"] * 3)
    assert first["process.roles"] == "broker,controller"
    assert (first["node.id"], second["node.id"]) == ("1", "2")
    assert first["controller.quorum.voters"] == "1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093"
    assert second["listeners"] == "PLAINTEXT://10.0.0.2:9092,CONTROLLER://10.0.0.2:9093"
    assert second["advertised.listeners"] == "PLAINTEXT://10.0.0.2:9092"
    assert first["log.dirs"] == "/data/log"
    assert first["offsets.topic.replication.factor"] == "3"


def test_separate_controllers_are_the_whole_quorum(tmp_path: Path) -> None:
    given, (controller, broker, _) = services(tmp_path, ["controller", "broker", "broker"])
    assert [each["process.roles"] for each in given] == ["controller", "broker", "broker"]
    assert {each["controller.quorum.voters"] for each in given} == {"1@10.0.0.1:9093"}
    assert [each["listeners"] for each in given] == [
        "CONTROLLER://10.0.0.1:9093",
        "PLAINTEXT://10.0.0.2:9092",
        "PLAINTEXT://10.0.0.3:9092",
    ]
    assert given[1]["offsets.topic.replication.factor"] == "2"
    assert controller.start_order < broker.start_order


def test_settings_are_those_of_the_role_and_the_node_and_count_more_than_ours(tmp_path: Path) -> None:
    settings = {
        "broker": Settings({"min.insync.replicas": "2", "num.io.threads": "8"}, {"n3": {"min.insync.replicas": "1"}}),
        "controller": Settings({"broker.session.timeout.ms": "6000"}),
    }
    (controller, broker, other), _ = services(tmp_path, ["controller", "broker", "broker"], settings)
    assert controller["broker.session.timeout.ms"] == "6000"
    assert "min.insync.replicas" not in controller
    assert (broker["min.insync.replicas"], other["min.insync.replicas"]) == ("2", "1")
    assert broker["num.io.threads"] == "8"


def test_a_slower_world_has_longer_quorum_timeouts_and_less_jit_compilation(tmp_path: Path) -> None:
    given = {"broker": Settings({"broker.session.timeout.ms": "6000"})}
    usual, (fast, *_) = services(tmp_path, ["broker"] * 3, given)
    slow, (emulated, *_) = services(tmp_path, ["broker"] * 3, given, time_scale=12.0)
    assert "controller.quorum.election.timeout.ms" not in usual[0], "a setting without a value keeps Kafka's default"
    assert slow[0]["controller.quorum.election.timeout.ms"] == "12000"
    assert slow[0]["initial.broker.registration.timeout.ms"] == "720000"
    assert (usual[0]["broker.session.timeout.ms"], slow[0]["broker.session.timeout.ms"]) == ("6000", "72000")
    assert "-XX:CompileThresholdScaling" not in fast.files["/etc/b/java.options"]
    assert "-XX:CompileThresholdScaling" in emulated.files["/etc/b/java.options"]


def made_with(root: MachineRoot, tmp_path: Path, said: list[str]) -> list[str]:
    """What a system that has a file of the machines' Java gives them."""
    cache = tmp_path / "cache"
    system = Kraft(description(), cache=cache, find=lambda _: java_17(tmp_path / "jdk"))
    (cache / NAME / VERSION).mkdir(parents=True, exist_ok=True)
    return list(Deployed(system, ("broker",), "c").software.make(root, said.append))


def test_machines_get_a_class_archive_of_their_own_java_or_start_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def refuse() -> AbstractContextManager[Path]:
        raise OSError("overlay cannot be mounted")

    def make(_deployed: Deployed, archive: Path, **given: object) -> None:
        assert given == {"root": ProgramRoot(tmp_path), "files_dir": "/opt/files"}
        archive.write_text("classes")

    root = MachineRoot("one image", "/opt/files", refuse)
    assert made_with(root, tmp_path, said) == []
    assert said[-1] == "without a class archive, nodes start slower: overlay cannot be mounted"
    monkeypatch.setattr(java_system, "make_class_archive", make)
    assert made_with(replace(root, open=lambda: nullcontext(tmp_path)), tmp_path, said) == ["classes.jsa"]
    assert made_with(root, tmp_path, said) == ["classes.jsa"], "it is kept"
    assert made_with(replace(root, key="another image"), tmp_path, said) == []


def test_a_node_runs_the_versions_jars_with_a_java_that_it_sees(tmp_path: Path) -> None:
    _, (service, *_) = services(tmp_path, ["broker"] * 3)
    jars = str(tmp_path / "cache" / NAME / VERSION)
    assert service.command[0] == str(tmp_path / "jdk" / "bin" / "java")
    assert service.command[-3:] == ("@/etc/b/java.options", "kafka.Kafka", "/etc/b/server.properties")
    class_path = (
        service.files["/etc/b/java.options"].splitlines()[-1].removeprefix('-cp "').removesuffix('"').split(":")
    )
    assert class_path == sorted(class_path), "class archives are of one class path"
    assert {str(Path(jar).parent) for jar in class_path} == {jars}
    assert {jars, str(tmp_path / "jdk")} <= set(service.shows)
    (formatting,) = service.prepare
    assert formatting[formatting.index("-t") + 1] == kraft_cluster_id("brownout-a run")
    assert formatting[-1] == "/etc/b/server.properties"


def test_faults_wait_as_long_for_a_start_as_the_system_may_take(tmp_path: Path) -> None:
    system = Kraft(description(), cache=tmp_path, find=lambda _: java_17(tmp_path / "jdk"))
    world = ProcessWorld(WorldSpec("r", tmp_path / "run", 1, Deployed(system, ("broker",), "c")))
    assert (world.site.start_deadline_s, world.site.stop_deadline_s) == (60, 20)


def test_cluster_ids_are_valid_and_differ_between_runs() -> None:
    ids = {kraft_cluster_id(f"brownout-{number}") for number in range(2000)}
    assert len(ids) == 2000
    assert {len(base64.urlsafe_b64decode(each + "==")) for each in ids} == {16}
    assert not [each for each in ids if each.startswith("-") or len(each) != 22]


CAMPAIGN = f'[system]\nname = "{NAME}"\n[topology]\nnodes = 4\n'


def test_a_campaign_may_name_controllers() -> None:
    asked = campaign(CAMPAIGN + '[system.roles]\nn4 = "controller"\n[controller]\n"broker.session.timeout.ms" = 6000\n')
    assert asked.system.roles == {"n4": "controller"}
    assert asked.settings["controller"].common == {"broker.session.timeout.ms": "6000"}
    assert asked.checks.upper_bound == "session"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[broker]\n"node.id" = 7\n', r"c.toml:7: \[broker\] node.id: the run gives it to each node"),
        ('[system.roles]\nn1 = "zookeeper"\n', r"has no role 'zookeeper'; known: broker, controller"),
        (
            "[system.roles]\n" + "".join(f'n{number} = "controller"\n' for number in range(1, 5)),
            r"c.toml:2: \[system\] roles: no node has the role broker",
        ),
        (
            "[system.roles]\n" + "".join(f'n{number} = "controller"\n' for number in range(1, 4)),
            r"replication_factor: 3 replicas need as many nodes that store data, and there are 1",
        ),
        ('[[cell]]\nname = "a"\nversion = "4.1.0"\n', r"apache-kafka has no version '4.1.0'; did you mean '4.1.1'\?"),
        ('[[cell]]\nname = "a"\nmutants = ["no_epochs"]\n', "mutants: apache-kafka has no mutants; leave them out"),
        (
            '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "wait"\nevent = "x"\nnode = "n1"\n',
            "apache-kafka writes no trace events",
        ),
        (
            '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "wait"\nlog_end = 3\nnode = "n1"\n',
            "nodes of apache-kafka do not report their log end; wait for in_sync",
        ),
    ],
)
def test_impossible_settings_are_refused_with_line_and_reason(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        campaign(CAMPAIGN + text)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(InputError, match=r"apache-kafka has no version '9\.9'"):
        load_system(NAME, version="9.9")


def test_without_jars_the_error_names_the_fetch_command(tmp_path: Path) -> None:
    system = Kraft(description(), cache=tmp_path, find=lambda _: java_17(tmp_path / "jdk"))
    with pytest.raises(InputError, match=r"run: brownout system fetch apache-kafka 4\.1\.1"):
        system.prepare(lambda _: None)


@pytest.mark.skipif(not FETCHED, reason=f"needs its jars: brownout system fetch {NAME} {VERSION}")
def test_without_a_new_enough_java_the_error_lists_the_found_ones(tmp_path: Path) -> None:
    def find(home: str) -> Kraft:
        return Kraft(description(), find=lambda least: find_java(least, {"JAVA_HOME": home}, ()))

    with pytest.raises(InputError, match=r"Apache Kafka 4\.1\.1: Java 17 or later is needed, but there is none in"):
        find(str(tmp_path)).prepare(lambda _: None)
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    with pytest.raises(InputError, match=r"Java 17 or later is needed, but there is only .*bin/java \(Java 11\)"):
        find(str(tmp_path)).prepare(lambda _: None)


def test_controllers_are_queried_separately_from_brokers() -> None:
    members = [Member("n1", 1, "h", 1, "controller"), Member("n2", 2, "h", 2, "broker")]
    observer = Kraft(description()).observe(members, "log")
    assert [each.name for each in observer.members] == ["n2"]
    assert [each.name for each in observer.controllers] == ["n1"]
    observer.close()


def test_every_version_has_a_lock_and_every_lock_is_a_version() -> None:
    for name in (NAME,):
        found = find_system(name)
        locks = {path.stem for path in (found.directory / "versions").glob("*.lock")}
        assert set(found.versions) == locks == set(description().versions)


SMALL = campaign_text(
    "small",
    system={"name": NAME},
    topology={"nodes": 1, "world": "process"},
    workload={"partitions": 1, "producers": 1, "consumers": 1, "rate": 50, "duration_s": 2},
    nemesis={"kind": "none"},
    # however slow the machine is
    checks={"min_ok": 1, "min_share": 0.05},
)


@pytest.mark.skipif(not FETCHED, reason=f"needs its jars: brownout system fetch {NAME} {VERSION}")
def test_one_node_really_runs_and_passes(tmp_path: Path) -> None:
    file, store = tmp_path / "small.toml", tmp_path / "store"
    file.write_text(SMALL)
    assert main(["run", str(file), "--store", str(store), "--engine", "in-process", "--quiet"]) == 0
    run = (store / "latest").resolve()
    verdict = json.loads((run / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["reasons"]) == ("pass", [])
    assert tomllib.loads((run / "run.toml").read_text())["system"]["version"] == VERSION
    assert "Kafka Server started" in (run / "nodes" / "n1" / "service.log").read_text()


TIERED = {"broker": Settings({"remote.log.storage.system.enable": "true"})}


def tiered_services(tmp_path: Path, shared_dir: str) -> list[Service]:
    system = Kraft(description(), "4.3.1", cache=tmp_path / "cache", find=lambda _: java_17(tmp_path / "jdk"))
    deployed = Deployed(system, ("broker",) * 3, "c", TIERED)
    nodes = [
        Place(f"n{n}", n, f"10.0.0.{n}", deployed.ports(n), "/d", "/e", "/v", shared_dir=shared_dir) for n in (1, 2, 3)
    ]
    return [deployed.service(node, nodes) for node in nodes]


def test_tiered_brokers_keep_their_objects_in_the_directory_that_all_nodes_share(tmp_path: Path) -> None:
    given = [properties(each.files["/e/server.properties"]) for each in tiered_services(tmp_path, "/shared by all")]
    assert {each["rsm.config.dir"] for each in given} == {"/shared by all"}
    assert {each["rlmm.config.remote.log.metadata.topic.replication.factor"] for each in given} == {"3"}
    plain, _ = services(tmp_path, ["broker"] * 3)
    assert "rsm.config.dir" not in plain[0]


def test_tiering_is_refused_where_nodes_share_no_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"broker\.properties\.j2:\d+: .*needs a directory that all nodes share"):
        tiered_services(tmp_path, "")


def test_tiering_is_refused_for_a_version_without_the_store(tmp_path: Path) -> None:
    settings = dict(TIERED["broker"].common)
    (wrong, right) = (Kraft(description(), version, cache=tmp_path) for version in ("4.1.1", "4.3.1"))
    complaint = wrong.check_node("broker", settings, "n1")
    assert complaint is not None
    assert "kafka-storage-4.1.1-test.jar" in complaint
    assert complaint.endswith("use version 4.3.1")
    assert right.check_node("broker", settings, "n1") is None
    assert wrong.check_node("broker", {}, "n1") is None
