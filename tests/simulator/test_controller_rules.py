"""The oracles of the controller get one decision after another: allowed and forbidden ones."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.replica.leader import IsrProposal
from simulator.oracles.controller_rules import ControllerRules
from simulator.oracles.findings import OracleFindings
from simulator.oracles.machine_view import MachineView

TOPIC_ID = b"t" * 16
FIRST = PartitionImage(leader=1, leader_epoch=4, partition_epoch=9, isr=(1, 2), replicas=(1, 2, 3))
EPOCHS = {1: 10, 2: 20, 3: 30}


def judged(
    *states: PartitionImage,
    asked: IsrProposal | None = None,
    fenced: tuple[int, ...] = (),
    lost: tuple[int, ...] = (),
    returned: tuple[int, ...] = (),
    machines: Mapping[int, MachineView] | None = None,
    minimum: int | None = None,
) -> set[str]:
    """The oracles that fail when a partition goes through these states, each the next one's predecessor. `fenced`:
    brokers that are so from the start; `lost`, `returned`: those that are fenced, or registered again, after the first
    state."""
    findings = OracleFindings(lambda: 0.0)
    rules, image = ControllerRules(machines or {}, findings), MetadataImage()
    for broker, epoch in EPOCHS.items():
        image.brokers[broker] = BrokerImage(broker, epoch, b"", (), broker in fenced)
    if asked is not None:
        rules.asked((TOPIC_ID, 0), asked)
    configs = {} if minimum is None else {"min.insync.replicas": str(minimum)}
    for number, state in enumerate(states):
        if number == 1:
            for broker in (*lost, *returned):
                image.brokers[broker] = replace(
                    image.brokers[broker], fenced=True, epoch=EPOCHS[broker] + 100 * (broker in returned)
                )
        image.topics["log"] = TopicImage("log", TOPIC_ID, {0: state}, configs)
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
    assert judged(FIRST, after(FIRST, leader=2, leader_epoch=5, isr=(2,)), lost=(1,)) == set()
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


BAD = {"election-not-allowed"}
ALONE = after(FIRST, isr=(1,), elr=(2,))
SHRUNK = IsrProposal((1,), (10,), FIRST.leader_epoch, FIRST.partition_epoch)


@pytest.mark.conforms("H16")
@pytest.mark.parametrize(
    ("state", "minimum", "expected"),
    [
        pytest.param(replace(FIRST, elr=(3,)), 2, BAD, id="two are enough to commit without the third"),
        pytest.param(replace(FIRST, elr=(3,)), 3, set(), id="three are needed"),
        pytest.param(replace(FIRST, elr=(3,)), 9, set(), id="all replicas are needed"),
        pytest.param(replace(FIRST, elr=(2,)), 3, BAD, id="in both sets"),
        pytest.param(replace(FIRST, elr=(3,), adding=(3,)), 2, set(), id="the number of replicas is changing"),
    ],
)
def test_eligible_replicas_are_needed_for_every_commit(state: PartitionImage, minimum: int, expected: set[str]) -> None:
    assert judged(state, minimum=minimum) == expected


@pytest.mark.conforms("H16")
@pytest.mark.parametrize(
    ("state", "options", "expected"),
    [
        pytest.param(ALONE, {"lost": (2,)}, set(), id="a lost member stays eligible"),
        pytest.param(ALONE, {"asked": SHRUNK}, set(), id="the leader has asked"),
        pytest.param(ALONE, {}, BAD, id="no request"),
        pytest.param(replace(ALONE, elr=()), {"lost": (2,)}, BAD, id="an eligible replica is forgotten"),
        pytest.param(replace(ALONE, elr=()), {"returned": (2,)}, set(), id="it may have lost its page cache"),
        pytest.param(replace(ALONE, elr=(3,)), {"lost": (2,)}, BAD, id="another one becomes eligible"),
        pytest.param(after(FIRST, leader=2), {}, BAD, id="another leader in the same epoch"),
        pytest.param(after(FIRST, leader=2, leader_epoch=6), {}, BAD, id="an epoch is left out"),
        pytest.param(after(FIRST, isr=(1, 2)), {"returned": (2,)}, {"isr-not-granted"}, id="fenced in the ISR"),
        pytest.param(
            after(FIRST, leader=3, leader_epoch=5, isr=(3,), recovering=True), {}, BAD, id="others could have led"
        ),
    ],
)
def test_members_leave_for_a_reason_and_stay_eligible_where_they_are_needed(
    state: PartitionImage, options: dict[str, tuple[int, ...]], expected: set[str]
) -> None:
    assert judged(FIRST, state, minimum=2, **options) == expected  # type: ignore[arg-type]


@pytest.mark.conforms("K101-10")
def test_a_leader_that_registers_again_does_not_lead_in_its_epoch() -> None:
    away = after(FIRST, leader=2, leader_epoch=5, isr=(2,), elr=(1,))
    assert judged(FIRST, away, returned=(1,), minimum=2) == set()
    assert judged(FIRST, FIRST, returned=(1,), minimum=2) == {"election-not-allowed", "isr-not-granted"}


def machine(*, was_clean: bool = True, offset: int = 1_000) -> MachineView:
    """The machine of a broker whose current process has registered."""
    node = SimpleNamespace(lifecycle=SimpleNamespace(incarnation_id=b""))
    view = SimpleNamespace(node=node, was_clean=was_clean, image=SimpleNamespace(offset=offset), registered_in=30)
    return cast(MachineView, view)


@pytest.mark.conforms("H16")
@pytest.mark.kills("elect_unclean_shutdown_isr")
@pytest.mark.parametrize("was_clean", [True, False])
def test_a_process_that_was_killed_is_not_eligible(was_clean: bool) -> None:
    machines = {2: machine(was_clean=was_clean)}
    assert judged(FIRST, ALONE, returned=(2,), machines=machines, minimum=2) == (set() if was_clean else BAD)


@pytest.mark.conforms("H31")
@pytest.mark.parametrize(("offset", "expected"), [(30, set()), (29, BAD)])
def test_a_broker_leads_again_after_it_has_applied_its_fencing(offset: int, expected: set[str]) -> None:
    findings = OracleFindings(lambda: 0.0)
    rules, image = ControllerRules({3: machine(offset=offset)}, findings), MetadataImage()
    for is_fenced in (True, False):
        image.brokers[3] = BrokerImage(3, EPOCHS[3], b"", (), is_fenced)
        rules.look(image)
    assert {finding.oracle for finding in findings.found} == expected


@pytest.mark.parametrize("state", [FIRST, after(FIRST, isr=(1,), elr=(2,))])
def test_members_of_the_isr_and_the_elr_may_be_elected(state: PartitionImage) -> None:
    rules, image = ControllerRules({}, OracleFindings(lambda: 0.0)), MetadataImage()
    assert not rules.electable((TOPIC_ID, 0))
    image.topics["log"] = TopicImage("log", TOPIC_ID, {0: state})
    rules.look(image)
    assert rules.electable((TOPIC_ID, 0)) == {1, 2}
