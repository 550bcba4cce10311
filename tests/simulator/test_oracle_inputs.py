"""The inputs of oracles are from the campaign and from their own reading: a broker with a wrong input is found."""

import ast
import asyncio
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.log import append_validation
from broker.log.log import PartitionLog
from broker.producers import producer_state
from broker.producers.producer_state import ProducerState
from broker.protocol.records import parse_header
from broker.quorum.runner import QuorumRunner
from broker.replica.leader import PartitionLeader
from broker.topic_settings import TopicSettings
from simulator.cluster import SimulatedCluster
from simulator.disk import SimulatedDisk
from simulator.loop import new_loop
from simulator.oracles.findings import OracleFindings
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView
from simulator.oracles.settings import DEFAULTS
from tests.broker.log.making import SMALL, batch
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC, storm
from tests.simulator.test_idempotent_producers import FLUSHED, Producer

ROOT = Path(__file__).resolve().parents[2]

OBSERVED = {
    # The state that is judged: metadata, roles, logs, groups, and what a process is made of.
    "broker.controller.image": {"BrokerImage", "MetadataImage", "PartitionImage", "TopicImage"},
    "broker.coordinator.led_partition": {"LedPartition"},
    "broker.groups.shard": {"Shard"},
    "broker.log.log": {"PartitionLog"},
    "broker.producers.producer_state": {"ProducerState", "Sequenced"},
    "broker.quorum.raft_node": {"RaftNode"},
    "broker.quorum.roles": {"Candidate", "Follower", "Leader", "Prospective", "ReplicaProgress", "Resigned", "Role"},
    "broker.quorum.runner": {"QuorumRunner"},
    "broker.quorum.voters": {"VoterSet"},
    "broker.replica.follower": {"AskEpochEnd", "PartitionFollower", "Phase"},
    "broker.replica.leader": {"IsrProposal", "PartitionLeader"},
    "broker.replica.manager": {"ReplicaManager"},
    "broker.replica.partition": {"Partition"},
    "broker.server.broker_node": {"BrokerNode"},
    "broker.trace": {"Value"},
}
ASKED = {
    # What is asked how it would act, and the words in which it is asked and answers.
    "broker.controller.controller": {"Controller", "ControllerDecision"},
    "broker.controller.image_records": {"records_of"},
    "broker.protocol.messages.config_apis": {
        "DELETE",
        "IncrementalAlterConfigsRequest",
        "IncrementalAlterConfigsResource",
        "IncrementalAlterableConfig",
        "SET",
        "TOPIC",
    },
    "broker.protocol.messages.producer_apis": {"AllocateProducerIdsRequest"},
    "broker.protocol.messages.topic_apis": {
        "CreatableReplicaAssignment",
        "CreatableTopic",
        "CreatableTopicConfig",
        "CreatePartitionsRequest",
        "CreatePartitionsTopic",
        "CreateTopicsRequest",
        "DeleteTopicState",
        "DeleteTopicsRequest",
    },
    "broker.errors": {"ErrorCode", "ProtocolError", "StartupError"},
    "broker.groups.group_settings": {"GroupSettings"},
    "broker.groups.group_effects": {"AppendEffect", "Effect", "GroupReply"},
    "broker.protocol.messages.broker_apis": {"BrokerHeartbeatRequest", "BrokerRegistrationRequest", "Listener"},
    "broker.groups.group": {"ConnectedClient"},
    "broker.protocol.messages.group_apis": {
        "HeartbeatRequest",
        "JoinGroupRequest",
        "JoinGroupRequestProtocol",
        "JoinGroupResponse",
        "LeaveGroupRequest",
        "MemberIdentity",
        "SyncGroupRequest",
        "SyncGroupRequestAssignment",
        "SyncGroupResponse",
    },
    "broker.protocol.messages.partition_apis": {
        "AlterPartitionData",
        "AlterPartitionReassignmentsRequest",
        "AlterPartitionRequest",
        "AlterPartitionTopicData",
        "BrokerState",
        "ElectLeadersRequest",
        "ElectLeadersTopicPartitions",
        "PREFERRED",
        "ReassignablePartition",
        "UNCLEAN",
    },
    "broker.protocol.messages.offset_apis": {
        "OffsetCommitRequest",
        "OffsetCommitRequestPartition",
        "OffsetCommitResponse",
        "OffsetFetchRequestGroup",
    },
    "broker.protocol.messages.metadata_records": {
        "NO_LEADER",
        "MetadataRecord",
        "PartitionChangeRecord",
        "encode_record",
    },
    "broker.protocol.schema": {"NO_ID", "Message", "Topic"},
    "broker.quorum.effects": {
        "AppendAsFollower",
        "AppendVoters",
        "CommitEffect",
        "Effect",
        "Fail",
        "Flush",
        "Persist",
        "Reply",
        "Send",
        "TruncateEffect",
    },
    "broker.quorum.election_state": {"ElectionState"},
    "broker.quorum.leading": {"Leading"},
    "broker.quorum.messages": {
        "NO_EPOCH_FOLLOWS",
        "BeginRequest",
        "EndRequest",
        "FetchRequest",
        "FetchResponse",
        "OffsetAndEpoch",
        "Request",
        "Response",
        "VoteRequest",
        "VoteResponse",
    },
    "broker.quorum.settings": {"QuorumSettings"},
    "broker.quorum.snapshots": {"Snapshots"},
    "broker.replica.queries": {"EARLIEST", "EARLIEST_LOCAL", "EARLIEST_PENDING_UPLOAD", "epoch_end", "list_offset"},
    "broker.replica.reads": {"CONSUMER", "FetchLimits", "FetchPosition", "PartitionReader"},
    "broker.replica.log_view": {"UNDEFINED", "divergence"},
    "broker.replica.tiered_start": {
        "AskEarlierEpoch",
        "AskOffset",
        "Bootstrap",
        "KeepFetching",
        "LogPlace",
        "RetryLater",
        "StartAbove",
        "StartAt",
        "Step",
        "next_step",
    },
}
NAMES_AND_FORMATS = {
    # Names of topics and directories; the codecs of libraries; the schema of the records of groups.
    "broker.coordinator.offsets_topic": {"OFFSETS_TOPIC"},
    "broker.protocol.compression": {"open_records"},
    "broker.protocol.messages.group_records": {
        "GroupMetadataKey",
        "GroupMetadataValue",
        "MemberMetadata",
        "OffsetCommitKey",
        "OffsetCommitValue",
        "read_record",
        "record",
    },
    "broker.quorum.wire": {"METADATA_TOPIC", "PARTITION"},
    "broker.server.node_directory": {"METADATA_DIRECTORY"},
}
ALLOWED = OBSERVED | ASKED | NAMES_AND_FORMATS
YARDSTICKS = frozenset(
    {
        "config",  # of a broker: what it made of its configuration
        "enough_in_sync",
        "epoch_start_offset",
        "flush_before_commit",
        "is_available",
        "min_insync_replicas",
        "voter_ids",
        "walk",  # the broker's own reading of a segment
        "compaction",
    }
)
"""Attributes of the brokers' objects by which no oracle judges."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "simulator" / "oracles").glob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_oracles_import_only_allowed_names_of_the_broker() -> None:
    wrong = [
        f"{path.name}: {node.module}.{alias.name}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("broker")
        for alias in node.names
        if alias.name not in ALLOWED.get(str(node.module), ())
    ]
    assert wrong == []


def test_oracles_take_no_yardstick_from_the_brokers_objects() -> None:
    wrong = [
        f"{path.name}:{node.lineno}: {node.attr}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in YARDSTICKS
    ]
    assert wrong == []


def test_the_defaults_are_the_documented_ones() -> None:
    page = (ROOT / "docs" / "by-hand.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([a-z.]+)` \| ([^|]+?) \|", page, re.MULTILINE))
    assert {key: documented[key] for key in DEFAULTS} == DEFAULTS


# --- brokers that are wrong about a yardstick


def remembers_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "REMEMBERED", 3)


def takes_any_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "check", lambda *_, **__: None)


def forgets_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the key for seconds, and forgets each producer after a second."""
    read = vars(BrokerConfig)["from_properties"].__func__

    def wrong(cls: type[BrokerConfig], properties: Any, source: str) -> BrokerConfig:
        given = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"}
        config: BrokerConfig = read(cls, {**properties, **given}, source)
        return config

    monkeypatch.setattr(BrokerConfig, "from_properties", classmethod(wrong))


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize(
    ("broken", "sequences", "oracle"),
    [
        pytest.param(remembers_too_few, range(8), "producers-contradict-log", id="the window"),
        pytest.param(takes_any_sequence, [17], "sequence-gap", id="the first sequence in an empty log"),
        pytest.param(takes_any_sequence, [0, 2], "sequence-gap", id="a gap"),
        pytest.param(takes_any_sequence, [0, 1, 1], "sequence-gap", id="a batch twice"),
        pytest.param(forgets_too_soon, range(3), "producers-contradict-log", id="for how long a producer is known"),
    ],
)
@pytest.mark.parametrize("is_broken", [True, False])
def test_a_broker_with_wrong_producer_sequences_is_found(
    broken: Callable[[pytest.MonkeyPatch], None],
    sequences: list[int],
    oracle: str,
    is_broken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_broken:
        broken(monkeypatch)
    with SimulatedCluster(1, properties={**QUICK, **FLUSHED}, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            producer = await Producer.of(cluster, 3)
            for sequence in sequences:
                if is_broken or list(sequences) == list(range(len(sequences))):
                    await producer.send(sequence)
            await asyncio.sleep(3)
            leader = await producer.client.leader_of(TOPIC, 0)
            cluster.kill(f"n{leader}")
            await producer.client.leader_of(TOPIC, 0, unlike=leader)
            await asyncio.sleep(1)

        cluster.run(story())
    assert [it.oracle for it in cluster.watch.findings.found if it.oracle == oracle] == ([oracle] if is_broken else [])


def commits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLeader, "_effective", lambda *_: 1)


def flushes_never(monkeypatch: pytest.MonkeyPatch) -> None:
    read = TopicSettings.of

    def wrong(own: Any, broker: BrokerConfig) -> TopicSettings:
        settings = read(own, broker)
        object.__setattr__(settings, "flush_before_commit", False)
        return settings

    monkeypatch.setattr(TopicSettings, "of", wrong)


def asks_the_quorum_late(monkeypatch: pytest.MonkeyPatch) -> None:
    read = vars(BrokerConfig)["from_properties"].__func__

    def wrong(cls: type[BrokerConfig], properties: Any, source: str) -> BrokerConfig:
        config: BrokerConfig = read(cls, {**properties, "quorum.fetch.timeout.ms": "5000"}, source)
        return config

    monkeypatch.setattr(BrokerConfig, "from_properties", classmethod(wrong))


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize(
    ("broken", "oracle"),
    [
        pytest.param(commits_alone, "high-watermark-invalid", id="min.insync.replicas"),
        pytest.param(flushes_never, "committed-not-durable", id="whether records are flushed"),
        pytest.param(asks_the_quorum_late, "leads-unheard", id="how long a leader leads unheard"),
    ],
)
@pytest.mark.parametrize("is_broken", [True, False])
def test_a_broker_that_misreads_its_settings_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], oracle: str, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_broken:
        broken(monkeypatch)
    with SimulatedCluster(1, 5, properties={**QUICK, **FLUSHED}, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=3)
            leader = await client.leader_of(TOPIC, 0)
            for number in range(5):
                await client.produce(TOPIC, 0, [b"%d" % number])
            topic = cluster.node(f"n{leader}").image.topics[TOPIC]
            cluster.kill(*(f"n{replica}" for replica in topic.partitions[0].replicas if replica != leader))
            writing = asyncio.ensure_future(client.produce(TOPIC, 0, [b"alone"], timeout=10))
            await asyncio.sleep(6)
            writing.cancel()

        cluster.run(story())
    assert [it.oracle for it in cluster.watch.findings.found if it.oracle == oracle] == ([oracle] if is_broken else [])


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize("is_mutated", [True, False])
def test_a_broker_with_wrong_voters_is_found(is_mutated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minority that wins an election is checked by the voters of the log, not by the broker's own."""
    if is_mutated:
        monkeypatch.setattr(QuorumRunner, "voter_ids", property(lambda runner: (runner.member.settings.node_id,)))
    mutants = ["minority_wins"] if is_mutated else []
    found = {
        finding.oracle
        for seed in range(1, 7)
        for finding in storm(seed, *mutants, faults=["isolate"], writers=1, seconds=8).watch.findings.found
    }
    assert ("led-without-votes" in found) == is_mutated


@pytest.mark.parametrize("accepts", [True, False])
def test_a_log_that_accepts_an_incomplete_batch_is_found(accepts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop()
    disk, findings = SimulatedDisk(loop, random.Random(0)), OracleFindings(loop.time)
    rules, copy = LogRules(TOPIC, 0, findings), CopiedLog("n1")
    if accepts:
        monkeypatch.setattr(append_validation, "validate_batch", parse_header)

    async def life() -> None:
        log = await PartitionLog.open(disk, "n1", SMALL, clean_shutdown=False)
        await log.start_leader_epoch(1)
        sent = batch("whole") + batch("torn")
        if accepts:
            sent[-1] ^= 1
        log.append_as_leader(sent, 1)
        rules.follow(MachineView("n1", 1, disk, "", {}), copy, log)

    loop.run_until_complete(life())
    assert [it.oracle for it in findings.found] == (["batch-not-valid"] if accepts else [])
