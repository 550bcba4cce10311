"""The broker's configuration: refused values, and their messages."""

import pytest

from broker.config import BrokerConfig, setting_texts
from broker.errors import StartupError
from broker.properties import MAX_INT32, MAX_INT64, parse_properties
from broker.topic_settings import BROKER_KEYS, CLUSTER_WIDE, FROM_LAST_TIERED, KEYS, LEAD_LAST

LEAST = "node.id=1\nlisteners=n:9092\nquorum.voters=1@n:9092\nlog.dir=log\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "num.partitions=" + "9" * 5000,
            "num.partitions: '" + "9" * 57 + "...' does not",
        ),
        ("num.partitions=9223372036854775808", "num.partitions: '9223372036854775808' does not fit into 64 bits"),
        ("num.partitions=\u00b2", "num.partitions: '\u00b2' is not a whole number"),
        ("num.partitions=--1", "num.partitions: '--1' is not a whole number"),
        ("num.partitions=0", "num.partitions: 0 is smaller than 1"),
    ],
)
def test_an_invalid_or_overlong_number_is_refused(line: str, words: str) -> None:
    with pytest.raises(StartupError) as caught:
        BrokerConfig.from_properties(parse_properties(LEAST + line, "p"), "p")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.conforms("K595-1")
@pytest.mark.parametrize(
    ("voters", "words"),
    [
        ("1", "quorum.voters: '1' is not of the form id@host:port"),
        ("1@n", "quorum.voters: '1@n' is not of the form id@host:port"),
        ("n:9092", "quorum.voters: 'n:9092' is not of the form id@host:port"),
        ("one@n:9092", "quorum.voters: 'one@n:9092' is not of the form id@host:port"),
        ("-1@n:9092", "quorum.voters: '-1@n:9092' is not of the form id@host:port"),
        ("1@:9092", "quorum.voters: '1@:9092' is not of the form id@host:port"),
        ("1@n:9092,", "quorum.voters: '' is not of the form id@host:port"),
        ("1@n:9092,1@m:9092", "quorum.voters: an id is given twice in '1@n:9092,1@m:9092'"),
    ],
)
def test_an_invalid_list_of_voters_is_refused(voters: str, words: str) -> None:
    with pytest.raises(StartupError) as caught:
        BrokerConfig.from_properties(parse_properties(LEAST.replace("1@n:9092", voters), "p"), "p")
    assert words in str(caught.value)


@pytest.mark.conforms("K595-1")
@pytest.mark.parametrize(("node", "votes"), [(1, True), (3, True), (2, False)])
def test_a_broker_is_the_voter_of_its_own_id(node: int, votes: bool) -> None:
    properties = {
        "node.id": str(node),
        "listeners": "n:9092,CONTROLLER://n:9093",
        "controller.listener.names": "CONTROLLER",
        "quorum.voters": "3@c:9093, 1@a:9093",
        "log.dir": "log",
    }
    config = BrokerConfig.from_properties(properties)
    assert [(voter.id, voter.host, voter.port) for voter in config.voters] == [(3, "c", 9093), (1, "a", 9093)]
    assert config.is_voter is votes


@pytest.mark.parametrize("port", ["0", "65536", "\u00b9", "9" * 5000, "-1", ""])
def test_an_invalid_port_is_refused(port: str) -> None:
    for text in (LEAST.replace("n:9092\nq", f"n:{port}\nq"), LEAST.replace("1@n:9092", f"1@n:{port}")):
        with pytest.raises(StartupError, match="is not of the form"):
            BrokerConfig.from_properties(parse_properties(text, "p"), "p")


def test_an_ipv6_address_is_in_brackets() -> None:
    config = BrokerConfig.from_properties(parse_properties(LEAST.replace("n:9092", "[fd77::1]:9092"), "p"), "p")
    assert config.listeners[0].address == (config.voters[0].host, 9092) == ("fd77::1", 9092)
    with pytest.raises(StartupError, match="is not of the form"):
        BrokerConfig.from_properties(parse_properties(LEAST.replace("=n:9092", "=[]:9092"), "p"), "p")


def test_policies_and_ratios_are_read_and_invalid_ones_are_refused() -> None:
    given = "log.cleanup.policy=compact,delete\nlog.cleaner.min.cleanable.ratio=0.25"
    config = BrokerConfig.from_properties(parse_properties(LEAST + given, "p"), "p")
    assert (config.log_cleanup_policy, config.log_cleaner_min_cleanable_ratio) == ("compact,delete", 0.25)
    for line, words in (
        ("log.cleanup.policy=burn", "'burn' is not delete, compact or compact,delete"),
        ("log.cleanup.policy=delete,delete", "'delete,delete' is not delete"),
        ("log.cleaner.min.cleanable.ratio=1.5", "'1.5' is not a number from 0 to 1, such as 0.5"),
        ("log.cleaner.min.cleanable.ratio=", "'' is not a number from 0 to 1"),
    ):
        with pytest.raises(StartupError, match=words):
            BrokerConfig.from_properties(parse_properties(LEAST + line, "p"), "p")


def test_the_text_of_a_setting_is_the_one_below_its_field() -> None:
    texts = setting_texts()
    assert texts["quorum.retry.backoff.max.ms"] == "The longest of these delays."
    assert texts["metadata.log.max.record.bytes.between.snapshots"].startswith("A new snapshot is written after this")
    assert texts["node.id"].endswith("its id as a voter.")


def test_a_key_of_topics_has_the_bounds_and_the_default_of_its_setting() -> None:
    config = BrokerConfig.from_properties(
        {"node.id": "1", "listeners": "h:1", "quorum.voters": "1@h:1", "log.dir": "d", "log.roll.ms": "7"}
    )
    shown = {name: (key.kind, key.inherited, key.least, key.most, key.default(config)) for name, key in KEYS.items()}
    assert len(shown) == 21
    assert shown["segment.ms"] == ("long", "log.roll.ms", 1, MAX_INT64, "7")
    assert shown["flush.messages"] == ("long", "log.flush.interval.messages", 1, MAX_INT64, str(MAX_INT64))
    assert shown["max.message.bytes"] == ("int", "message.max.bytes", 0, MAX_INT32, str(8 << 20))
    assert shown["local.retention.ms"] == ("long", "log.local.retention.ms", -2, MAX_INT64, "-2")
    assert shown["unclean.leader.election.enable"][::4] == ("boolean", "false")
    assert [*CLUSTER_WIDE, *BROKER_KEYS] == ["min.insync.replicas", FROM_LAST_TIERED, LEAD_LAST]
