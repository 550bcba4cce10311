"""In a slower world brokers, clients and the run have longer timeouts."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.properties import parse_properties
from history.time_scale import scaled
from orchestrator.campaign.plan import expand
from orchestrator.campaign.systems import deploy
from orchestrator.running.runner import describe
from orchestrator.worlds.base import Node, WorldSpec
from orchestrator.worlds.process.lab import ProcessWorld
from systems import Deployed, Settings, load_system
from tests.orchestrator.campaigns import campaign
from workloads.settings import ClientSettings, consumer_config, producer_config

SETTINGS = Settings({"broker.lease.ms": "1299", "min.insync.replicas": "2", "log.segment.bytes": "4096"})


def configured(time_scale: float) -> BrokerConfig:
    ports = {"client": 9092, "controller": 9093}
    node = Node("n1", 1, "10.0.0.1", ports, "/data", "/etc/b", "/var/b", record_dir=Path("records"))
    deployed = Deployed(load_system(), ("broker",), "c", {"broker": SETTINGS})
    (text,) = deployed.service(node, [node], time_scale).files.values()
    return BrokerConfig.from_properties(parse_properties(text, "p"))


def test_only_times_of_a_broker_are_scaled() -> None:
    usual, slow = configured(1.0), configured(4.0)
    assert usual == replace(
        BrokerConfig(1, usual.listeners, usual.voters, "/data/log", "/var/b/events.jsonl", "c"),
        broker_lease_ms=1299,
        min_insync_replicas=2,
        log_segment_bytes=4096,
        offsets_topic_num_partitions=4,
        controller_listener_names="CONTROLLER",
    )
    # A negative value, None and the largest one stand for no limit.
    names = [each.name for each in fields(usual) if each.compare]
    times = {name for name in names if name.endswith("_ms") and 0 < getattr(usual, name) < 2**63 - 1}
    assert {name for name in names if getattr(usual, name) != getattr(slow, name)} == times
    assert all(getattr(slow, name) == 4 * getattr(usual, name) for name in times)


@pytest.mark.parametrize(
    ("value", "time_scale", "expected"),
    [
        (1500, 1.0, 1500),
        (1500, 4.0, 6000),
        (1, 1.5, 1),
        (0, 4.0, 0),
        (-1, 4.0, -1),
        (604_800_000, 12.0, 7_257_600_000),
        (2**31 - 1, 4.0, 2**31 - 1),
        (2**63 - 1, 12.0, 2**63 - 1),
    ],
)
def test_a_value_without_a_limit_is_not_multiplied(value: int, time_scale: float, expected: int) -> None:
    assert scaled(value, time_scale) == expected


@pytest.mark.parametrize("scale", [1.1, 1.5, 2.25])
def test_a_lease_stays_shorter_than_a_session(scale: float) -> None:
    slow = configured(scale)
    assert 0 < slow.broker_lease_ms < slow.broker_session_timeout_ms


def test_clients_wait_longer_for_answers() -> None:
    usual = ClientSettings("p", 1, 1, 1, 1, "n:1", "log", 4, "d", rate=7.0)
    slow = ClientSettings.from_json(replace(usual, time_scale=3.0).to_json())
    assert slow.rate == usual.rate, "the load is the same"
    assert (slow.append_timeout_s, slow.query_timeout_s) == (3 * usual.append_timeout_s, 3 * usual.query_timeout_s)
    for made in (lambda its: producer_config(its, -1), consumer_config):
        changed = {key: (value, made(slow)[key]) for key, value in made(usual).items() if made(slow)[key] != value}
        assert {"socket.timeout.ms", "socket.connection.setup.timeout.ms"} <= set(changed)
        assert set(changed) <= {
            *("socket.timeout.ms", "socket.connection.setup.timeout.ms", "message.timeout.ms", "request.timeout.ms")
        }
        assert all(after == 3 * before for before, after in changed.values())


def test_the_record_of_a_run_states_its_pace(tmp_path: Path) -> None:
    (planned,) = expand(campaign(""), "s")
    deployed = deploy(planned)
    world = ProcessWorld(WorldSpec("r", tmp_path, 3, deployed))
    world.time_scale = 2.5
    assert describe(planned, world, deployed, "of a reason")["time_scale"] == 2.5
