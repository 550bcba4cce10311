"""The oracles of the controller get one decision after another: allowed and forbidden ones."""

from dataclasses import replace

import pytest

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.replica.leader import IsrProposal
from simulator.oracles.controller_rules import ControllerRules
from simulator.oracles.findings import OracleFindings

TOPIC_ID = b"t" * 16
FIRST = PartitionImage(leader=1, leader_epoch=4, partition_epoch=9, isr=(1, 2), replicas=(1, 2, 3))
EPOCHS = {1: 10, 2: 20, 3: 30}


def judged(*states: PartitionImage, asked: IsrProposal | None = None, fenced: tuple[int, ...] = ()) -> set[str]:
    """The oracles that fail when a partition goes through these states, each the next one's predecessor."""
    findings = OracleFindings(lambda: 0.0)
    rules, image = ControllerRules(findings), MetadataImage()
    for broker, epoch in EPOCHS.items():
        image.brokers[broker] = BrokerImage(broker, epoch, b"", (), broker in fenced)
    if asked is not None:
        rules.asked((TOPIC_ID, 0), asked)
    for state in states:
        image.topics["log"] = TopicImage("log", TOPIC_ID, {0: state})
        rules.look(image)
    return {finding.oracle for finding in findings.found}


def after(state: PartitionImage, **changes: object) -> PartitionImage:
    return replace(state, partition_epoch=state.partition_epoch + 1, **changes)  # type: ignore[arg-type]


def proposal(epoch_of_3: int = EPOCHS[3], partition_epoch: int = FIRST.partition_epoch) -> IsrProposal:
    return IsrProposal((1, 2, 3), (10, 20, epoch_of_3), FIRST.leader_epoch, partition_epoch)


GROWN = after(FIRST, isr=(1, 2, 3))
LEADERLESS = after(FIRST, leader=-1, leader_epoch=5, isr=(), elr=(1,))


@pytest.mark.conforms("H13", "H14", "H15")
def test_an_isr_grows_by_the_proposal_of_its_leader() -> None:
    assert judged(FIRST, GROWN, asked=proposal()) == set()


@pytest.mark.conforms("H13")
@pytest.mark.kills("stale_partition_epoch_ok")
def test_an_isr_without_a_proposal_on_this_state_is_a_finding() -> None:
    assert judged(FIRST, GROWN) == {"isr-not-granted"}
    assert judged(FIRST, GROWN, asked=proposal(partition_epoch=FIRST.partition_epoch - 1)) == {"isr-not-granted"}


@pytest.mark.conforms("H15")
@pytest.mark.kills("stale_broker_epoch_ok")
def test_an_isr_has_the_process_that_was_counted() -> None:
    assert judged(FIRST, GROWN, asked=proposal(epoch_of_3=29)) == {"isr-not-granted"}


@pytest.mark.conforms("H14")
@pytest.mark.kills("fenced_in_isr")
def test_an_isr_with_a_fenced_member_is_a_finding() -> None:
    assert judged(FIRST, GROWN, asked=proposal(), fenced=(3,)) == {"isr-not-granted"}


@pytest.mark.conforms("K704-1")
def test_an_eligible_replica_leads_without_recovery() -> None:
    assert judged(FIRST, after(FIRST, leader=2, leader_epoch=5, isr=(2,))) == set()
    assert judged(LEADERLESS, after(LEADERLESS, leader=1, leader_epoch=6, isr=(1,), elr=())) == set()


@pytest.mark.conforms("K704-1")
@pytest.mark.kills("unclean_keeps_isr")
def test_an_ineligible_leader_recovers_as_the_only_member() -> None:
    unclean = after(LEADERLESS, leader=3, leader_epoch=6, isr=(3,), elr=(), recovering=True)
    assert judged(LEADERLESS, unclean) == set()
    assert judged(LEADERLESS, replace(unclean, recovering=False)) == {"election-not-allowed"}
    assert judged(LEADERLESS, replace(unclean, elr=(1,))) == {"election-not-allowed"}


@pytest.mark.conforms("K704-4")
@pytest.mark.kills("isr_grows_while_recovering")
def test_a_leader_recovers_alone() -> None:
    alone = replace(FIRST, isr=(1,), recovering=True)
    assert judged(alone, after(alone, recovering=False)) == set()
    assert judged(after(alone, isr=(1, 2))) == {"election-not-allowed"}


@pytest.mark.conforms("K704-9")
@pytest.mark.kills("recovery_flag_lost")
def test_a_recovery_continues_in_the_next_epoch() -> None:
    alone = replace(FIRST, isr=(1,), recovering=True)
    again = after(alone, leader_epoch=5)
    assert judged(alone, again) == set()
    assert judged(alone, replace(again, recovering=False)) == {"election-not-allowed"}


def test_a_leader_is_in_its_isr_and_both_are_replicas() -> None:
    assert judged(replace(FIRST, isr=(2,))) == {"election-not-allowed"}
    assert judged(replace(FIRST, replicas=(1, 3))) == {"election-not-allowed"}


@pytest.mark.parametrize("state", [FIRST, after(FIRST, isr=(1,), elr=(2,))])
def test_members_of_the_isr_and_the_elr_may_be_elected(state: PartitionImage) -> None:
    rules, image = ControllerRules(OracleFindings(lambda: 0.0)), MetadataImage()
    assert not rules.electable((TOPIC_ID, 0))
    image.topics["log"] = TopicImage("log", TOPIC_ID, {0: state})
    rules.look(image)
    assert rules.electable((TOPIC_ID, 0)) == {1, 2}
