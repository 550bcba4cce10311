"""The `min.insync.replicas` of topics without their own: the cluster's value in the metadata log, not a broker's."""

import pytest

from broker.controller.image import Changes, MetadataImage, MetadataImageError
from broker.controller.image_records import records_of
from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.metadata_records import ConfigRecord, NoOpRecord, encode_record
from broker.protocol.schema import Message
from tests.broker.controller.world import World, configuration

MINIMUM = "min.insync.replicas"
BROKER, SET, DELETE, APPEND = 4, 0, 1, 2


def record(value: str | None, name: str = MINIMUM) -> ConfigRecord:
    return ConfigRecord(BROKER, "", name, value)


def apply(world: World, value: str | None, name: str = MINIMUM) -> Changes:
    changes = world.image.apply(record(value, name), world.offset)
    world.offset += 1
    world.check()
    return changes


def alone(minimum: int, own: str | None = None) -> World:
    """Topics `t`, which may have a minimum of its own, and `u`: of each only broker 1 is in sync. The files say one."""
    world = World(min_insync_replicas=1)
    world.start(1, 2)
    apply(world, str(minimum))
    world.create("t", [1, 2], configs={} if own is None else {MINIMUM: own})
    world.create("u", [1, 2])
    world.fence(2)
    return world


def eligible(world: World) -> dict[str, tuple[int, ...]]:
    return {topic.name: partition.elr for topic, _, partition in world.image.partitions()}


def test_only_the_first_controller_writes_the_number_of_its_file() -> None:
    first, second = World(min_insync_replicas=2), World(min_insync_replicas=3)
    first.decide(first.rules.first_records(first.image))
    assert first.image.defaults == {MINIMUM: "2"}
    assert second.rules.first_records(first.image).records == [NoOpRecord()]


def test_a_log_of_before_there_was_one_gets_the_number_of_the_next_controller() -> None:
    world = World(min_insync_replicas=2)
    world.image.apply(record("brownout-cluster", "cluster.id"), 0)
    assert record("2") in world.rules.first_records(world.image).records


@pytest.mark.conforms("H16")
def test_the_clusters_minimum_decides_eligibility_and_the_file_does_not() -> None:
    assert eligible(alone(2)) == {"t": (2,), "u": (2,)}
    assert eligible(alone(1)) == {"t": (), "u": ()}
    assert alone(2).image.topics["u"].settings(configuration(min_insync_replicas=7)).min_insync_replicas == 2


@pytest.mark.conforms("H16")
@pytest.mark.parametrize(("cluster", "own", "elr"), [(2, "1", {"t": (), "u": (2,)}), (1, "2", {"t": (2,), "u": ()})])
def test_a_topics_own_value_takes_precedence(cluster: int, own: str, elr: dict[str, tuple[int, ...]]) -> None:
    assert eligible(alone(cluster, own)) == elr


@pytest.mark.conforms("H16")
@pytest.mark.parametrize("value", ["1", "3", None])
def test_a_changed_minimum_resets_eligibility_and_reaches_the_leaders(value: str | None) -> None:
    """As a change of a topic's own minimum does; a topic with its own minimum is unchanged."""
    world = alone(2, own="2")
    assert apply(world, value).partitions == {("u", 0)}
    assert eligible(world) == {"t": (2,), "u": ()}


@pytest.mark.conforms("H16")
def test_a_complete_replica_stays_eligible_without_a_leader() -> None:
    world = alone(2)
    world.fence(1)
    apply(world, "1")
    assert eligible(world) == {"t": (2, 1), "u": (2, 1)}
    world.heartbeat(2)
    assert eligible(world) == {"t": (), "u": ()}, "from here on 2 commits alone"


@pytest.mark.conforms("H16")
def test_a_snapshot_has_the_minimum_and_keeps_eligibility() -> None:
    world, restored = alone(2), MetadataImage()
    restored.restore(world.offset, [encode_record(each) for each in records_of(world.image)])
    assert (restored.defaults, restored.topics) == (world.image.defaults, world.image.topics)
    assert eligible(world) == {"t": (2,), "u": (2,)}
    restored.apply(record("1"), world.offset)
    assert restored.topics["t"].settings(world.config).min_insync_replicas == 1
    restored.restore(world.offset + 2, [])
    assert restored.defaults == {}


def test_a_setting_outside_of_broker_defaults_is_refused_as_a_record() -> None:
    with pytest.raises(MetadataImageError, match=r"offset 0: retention\.ms does not apply to all brokers"):
        MetadataImage().apply(record("1", "retention.ms"), 0)


# --- requests


def incrementally(world: World, *changes: tuple[str, int, str | None], broker: str = "") -> tuple[int, str]:
    entries = [IncrementalAlterableConfig(*change) for change in changes]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(BROKER, broker, entries)])
    response: Message = world.decide(world.rules.alter_configs(world.image, request))
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code, response.responses[0].error_message or ""


def wholly(world: World, validate_only: bool = False, **configs: str) -> int:
    entries = [AlterableConfig(name.replace("_", "."), value) for name, value in configs.items()]
    request = AlterConfigsRequest([AlterConfigsResource(BROKER, "", entries)], validate_only)
    response: Message = world.decide(world.rules.alter_configs(world.image, request))
    assert isinstance(response, AlterConfigsResponse)
    return response.responses[0].error_code


def test_the_number_is_changed_for_all_brokers() -> None:
    world = alone(2)
    assert incrementally(world, (MINIMUM, SET, "1")) == (ErrorCode.NONE, "")
    assert (world.image.defaults, eligible(world)) == ({MINIMUM: "1"}, {"t": (), "u": ()})
    assert wholly(world, validate_only=True, min_insync_replicas="3") == ErrorCode.NONE
    assert world.image.defaults == {MINIMUM: "1"}
    assert wholly(world, min_insync_replicas="3") == ErrorCode.NONE
    assert world.image.defaults == {MINIMUM: "3"}


@pytest.mark.conforms("H16")
@pytest.mark.parametrize(
    ("change", "broker", "error", "message"),
    [
        ((MINIMUM, DELETE, None), "", ErrorCode.INVALID_CONFIG, "min.insync.replicas cannot be removed"),
        ((MINIMUM, SET, "1"), "1", ErrorCode.INVALID_CONFIG, "min.insync.replicas applies to the whole cluster"),
        ((MINIMUM, SET, "0"), "", ErrorCode.INVALID_REQUEST, "min.insync.replicas: '0' is not a number from 1"),
        ((MINIMUM, SET, "two"), "", ErrorCode.INVALID_REQUEST, "min.insync.replicas: 'two' is not a number"),
        ((MINIMUM, SET, None), "", ErrorCode.INVALID_REQUEST, "min.insync.replicas: a value is missing"),
        ((MINIMUM, APPEND, "1"), "", ErrorCode.INVALID_CONFIG, "operation 2 does not apply to a int"),
        (("retention.ms", SET, "1"), "", ErrorCode.INVALID_REQUEST, "a broker's configuration is in its file"),
        (("num.partitions", SET, "1"), "1", ErrorCode.INVALID_REQUEST, "a broker's configuration is in its file"),
    ],
)
def test_changes_that_give_brokers_separate_minimums_are_refused(
    change: tuple[str, int, str | None], broker: str, error: ErrorCode, message: str
) -> None:
    world = alone(2)
    code, said = incrementally(world, change, broker=broker)
    assert code == error
    assert message in said
    assert world.image.defaults == {MINIMUM: "2"}


def test_a_configuration_that_does_not_name_the_number_would_remove_it() -> None:
    world = alone(2)
    assert wholly(world) == ErrorCode.INVALID_CONFIG
    assert world.image.defaults == {MINIMUM: "2"}
