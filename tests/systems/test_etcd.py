"""etcd as a system: its members' command lines, the settings of a campaign, and the leader by the members' own
answers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.campaign.systems import programs_of
from systems import Deployed, InputError, Member, Settings, load_system
from systems.etcd.etcd import EtcdObserver
from systems.service import Place
from tests.orchestrator.campaigns import campaign
from tests.systems.fake_etcd import FakeEtcd


def node(number: int) -> Place:
    ports = {"client": 2379, "peer": 2380}
    return Place(f"n{number}", number, f"10.0.0.{number}", ports, "/data", "/etc", "/var")


NODES = [node(1), node(2)]


def command(settings: Mapping[str, str], time_scale: float = 1.0, nodes: Sequence[Place] = NODES) -> list[str]:
    deployed = Deployed(
        load_system("etcd"),
        ("member", "member"),
        "run-7",
        {"member": Settings(dict(settings), {"n2": {"pre-vote": "true"}})},
    )
    return list(deployed.service(nodes[1], nodes, time_scale).command)


def test_a_members_command_names_its_cluster_and_where_it_listens() -> None:
    words = command({})
    assert words[:3] == ["etcd", "--name=n2", "--data-dir=/data/etcd"]
    assert "--initial-cluster=n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380" in words
    assert "--initial-cluster-token=run-7" in words
    assert "--listen-client-urls=http://10.0.0.2:2379" in words
    assert "--initial-advertise-peer-urls=http://10.0.0.2:2380" in words


def test_templates_have_ipv6_addresses_in_brackets() -> None:
    words = command({}, nodes=[replace(place, address=f"fd77::{place.id}") for place in NODES])
    assert "--initial-cluster=n1=http://[fd77::1]:2380,n2=http://[fd77::2]:2380" in words
    assert "--listen-client-urls=http://[fd77::2]:2379" in words


def test_settings_are_flags_and_times_are_scaled() -> None:
    assert command({"snapshot-count": "50"})[-4:] == [
        "--heartbeat-interval=100",
        "--election-timeout=1000",
        "--snapshot-count=50",
        "--pre-vote=true",
    ]
    assert command({"election-timeout": "1500"}, 4.0)[-3:] == [
        "--heartbeat-interval=400",
        "--election-timeout=6000",
        "--pre-vote=true",
    ]


def test_only_times_that_are_numbers_are_scaled() -> None:
    words = command({"heartbeat-interval": "²", "election-timeout": "9" * 5000}, 4.0)
    assert "--heartbeat-interval=²" in words
    assert "--election-timeout=" + "9" * 5000 in words


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ('name = "other"', "name: the run sets this flag itself; leave it out"),
        ('"--pre-vote" = true', "--pre-vote: write etcd's flag without the hyphens before it: 'pre-vote'"),
        ('heartbeat-interval = "0.1s"', "heartbeat-interval: '0.1s' is not a whole number of milliseconds"),
        ('heartbeat-interval = "²"', "heartbeat-interval: '²' is not a whole number of milliseconds"),
        (
            f'heartbeat-interval = "{"9" * 5000}"',
            f"heartbeat-interval: '{'9' * 5000}' is not a whole number of milliseconds",
        ),
        ("election-timeout = 0", "election-timeout: 0 is not a whole number of milliseconds"),
        (
            "election-timeout = 499",
            "n1 in cell main: election-timeout 499 is less than five times heartbeat-interval 100",
        ),
    ],
)
def test_an_invalid_member_setting_is_refused(setting: str, wrong: str) -> None:
    text = f'[system]\nname = "etcd"\n[workload]\nkind = "register"\n[member]\n{setting}\n'
    with pytest.raises(InputError) as caught:
        campaign(text)
    assert str(caught.value).endswith(f"[member] {wrong}")


def test_etcd_refuses_the_log_workload() -> None:
    with pytest.raises(InputError, match="etcd cannot be tested with 'log'; it takes: register"):
        campaign('[system]\nname = "etcd"\n')


@pytest.mark.parametrize(
    ("line", "fatal"),
    [
        ('{"level":"panic","caller":"raft/raft.go:1","msg":"tocommit(9) is out of range"}', True),
        ('{"level":"fatal","caller":"etcdmain/etcd.go:1","msg":"discovery failed"}', True),
        ("panic: runtime error: index out of range", True),
        ("fatal error: concurrent map writes", True),
        ('{"level":"warn","msg":"failed to send out heartbeat on time; a panic: no"}', False),
        ('{"level":"info","msg":"stopped remote peer"}', False),
    ],
)
def test_lines_that_no_healthy_member_writes(line: str, fatal: bool) -> None:
    assert any(re.search(pattern, line) for pattern in load_system("etcd").description.log.fatal) == fatal


@pytest.fixture
def cluster() -> Iterator[list[FakeEtcd]]:
    fakes = [FakeEtcd(id=str(number), leader="2", term=5) for number in (1, 2, 3)]
    for fake in fakes:
        fake.start()
    yield fakes
    for fake in fakes:
        fake.stop()


def observer(cluster: list[FakeEtcd]) -> EtcdObserver:
    members = [Member(f"n{n}", n, fake.address, fake.port, "member") for n, fake in enumerate(cluster, 1)]
    made: Any = load_system("etcd").observe(members, "", 10.0)
    assert isinstance(made, EtcdObserver)
    return made


def test_a_member_that_follows_the_leader_is_alive(cluster: list[FakeEtcd]) -> None:
    looking = observer(cluster)
    seen = looking.view()
    assert (seen.controller, seen.epoch, set(seen.unfenced)) == ("n2", 5, {"n1", "n2", "n3"})
    assert (dict(seen.partitions), seen.complaints) == ({}, ())
    assert looking.create_topic([], 1.0) is None
    looking.close()


def test_the_leader_of_the_newest_term_counts(cluster: list[FakeEtcd]) -> None:
    cluster[0].leader = cluster[2].leader = "3"
    cluster[0].term = cluster[2].term = 6
    seen = observer(cluster).view()
    assert (seen.controller, seen.epoch, set(seen.unfenced)) == ("n3", 6, {"n1", "n3"})


def test_a_member_without_a_leader_is_not_counted_in_any_term(cluster: list[FakeEtcd]) -> None:
    cluster[2].leader, cluster[2].term = "", 9
    seen = observer(cluster).view()
    assert (seen.controller, seen.epoch, set(seen.unfenced)) == ("n2", 5, {"n1", "n2"})


def test_without_a_leader_no_member_counts_as_alive(cluster: list[FakeEtcd]) -> None:
    for fake in cluster:
        fake.leader = "0"
    seen = observer(cluster).view()
    assert (seen.controller, set(seen.unfenced)) == (None, set())


def test_a_leader_that_does_not_answer_is_still_named(cluster: list[FakeEtcd]) -> None:
    looking = observer(cluster)
    looking.view()
    cluster[1].stop()
    seen = looking.view()
    assert (seen.controller, set(seen.unfenced)) == ("n2", {"n1", "n3"})
    (complaint,) = seen.complaints
    assert complaint.startswith("n2 does not answer (")


def test_the_package_of_etcd_is_required_before_a_run() -> None:
    read = campaign('[system]\nname = "etcd"\n[workload]\nkind = "register"\n')
    assert programs_of(read, ()) == programs_of(read, ["main"]) == {"etcd": "etcd-server"}
    assert programs_of(read, ["another"]) == programs_of(campaign(""), ()) == {}
