"""Hypothetical proposals to a controller at states of its metadata: it refuses forbidden ones, except for a mutant."""

import pytest

from broker.protocol.messages.partition_apis import UNCLEAN
from simulator.oracles.findings import BAD_ELECTION, WOULD_GRANT, OracleFindings
from simulator.oracles.hypothetical_requests import would_elect, would_grant
from tests.broker.controller.world import World


def led(*mutants: str) -> World:
    """Broker 1 leads with 2 in sync, and 3 not."""
    world = World(*mutants)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    world.alter(world.proposal(1, [1, 2], "t"))
    return world


def recovering(*mutants: str) -> World:
    """Broker 2 leads, elected uncleanly, and has not recovered; the one before it is back, and 3 as well."""
    world = World(*mutants)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    world.alter(world.proposal(1, [1], "t"))
    world.fence(1)
    world.elect(UNCLEAN)
    world.heartbeat(1)
    return world


def asked(world: World) -> tuple[int, list[str]]:
    """How often the controller was asked of the partition, and what it would have granted."""
    findings, topic = OracleFindings(lambda: 0.0), world.image.topics["t"]
    would_grant(findings, world.rules, world.image, topic, 0, topic.partitions[0])
    return findings.checks[WOULD_GRANT], [finding.sentence for finding in findings.found]


@pytest.mark.conforms("H13", "H14", "H15", "K704-4")
def test_the_rules_refuse_every_forbidden_proposal() -> None:
    assert asked(led()) == (5, [])
    world = led()
    world.fence(3)
    assert asked(world) == (5, [])
    assert asked(recovering()) == (6, [])


@pytest.mark.conforms("K704-4")
@pytest.mark.kills("isr_grows_while_recovering")
def test_a_controller_that_would_add_a_member_in_recovery_is_found() -> None:
    (sentence,) = asked(recovering("isr_grows_while_recovering"))[1]
    assert sentence.endswith("the leader recovers, and does so alone")


@pytest.mark.conforms("H13")
@pytest.mark.kills("stale_partition_epoch_ok")
def test_a_controller_that_would_grant_a_stale_proposal_is_found() -> None:
    (sentence,) = asked(led("stale_partition_epoch_ok"))[1]
    assert sentence.endswith("the state has changed since")


@pytest.mark.conforms("H14")
@pytest.mark.kills("fenced_in_isr")
def test_a_controller_that_would_accept_a_fenced_broker_is_found() -> None:
    world = led("fenced_in_isr")
    world.fence(3)
    (sentence,) = asked(world)[1]
    assert sentence.endswith("the ISR [1, 2, 3] on top of partition epoch 1: 3 cannot be reached")


@pytest.mark.conforms("H15")
@pytest.mark.kills("stale_broker_epoch_ok")
def test_a_controller_that_would_accept_an_earlier_process_is_found() -> None:
    (sentence,) = asked(led("stale_broker_epoch_ok"))[1]
    assert "is another process than the one of epoch" in sentence


def test_without_a_leader_no_proposal_is_tested() -> None:
    world = led()
    for broker in (1, 2, 3):
        world.fence(broker)
    assert asked(world) == (0, []), "no partition has a leader"


def losses(world: World) -> tuple[int, list[str]]:
    """How often the controller was asked about a loss, and what it would have done wrong."""
    findings, topic = OracleFindings(lambda: 0.0), world.image.topics["t"]
    would_elect(findings, world.rules, world.image, [(topic, 0, topic.partitions[0])])
    return findings.checks[BAD_ELECTION], [finding.sentence for finding in findings.found]


@pytest.mark.conforms("H14", "H16", "K101-10", "K704-1")
def test_the_rules_keep_their_invariants_after_every_possible_loss() -> None:
    assert losses(led()) == (9, []), "each of three brokers is fenced, returns cleanly, and returns uncleanly"
    assert losses(recovering()) == (9, [])
    world = led()
    world.fence(2)
    assert losses(world) == (8, [])


@pytest.mark.conforms("H16")
@pytest.mark.kills("elect_unclean_shutdown_isr")
def test_a_controller_that_would_answer_a_loss_wrongly_is_found() -> None:
    world = World("elect_unclean_shutdown_isr")
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    world.alter(world.proposal(1, [1], "t"))
    (sentence,) = losses(world)[1]
    assert "has lost its page cache" in sentence
