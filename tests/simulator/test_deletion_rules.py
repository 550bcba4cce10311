"""The oracle of deletions, on stories that hold and that break it: which start a leader has after which answer."""

import random
from types import SimpleNamespace
from typing import cast

import pytest

from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from history.damage import Damage
from simulator.disk import SimulatedDisk
from simulator.loop import new_loop
from simulator.oracles.deletion_rules import DeletionRules
from simulator.oracles.findings import OracleFindings
from simulator.oracles.machine_view import MachineView
from tests.broker.replica.test_leader import leader

TOPIC_ID = bytes(16)


def leads(epoch: int, start: int, *, recovering: bool = False) -> PartitionLeader:
    role = leader(replicas=(1, 2), isr=(1, 2), end=20, high_watermark=20)
    role.leader_epoch, role.log_start_offset, role.recovering = epoch, start, recovering
    return role


class Story:
    """One partition whose leaders the oracle sees."""

    def __init__(self) -> None:
        self.findings = OracleFindings(lambda: 0.0)
        self.rules = DeletionRules(self.findings)
        self.disk = SimulatedDisk(new_loop(), random.Random(0))

    def partition(self, role: object, start: int) -> Partition:
        log = SimpleNamespace(log_start_offset=start, directory="log-0")
        lock = SimpleNamespace(locked=lambda: False)
        made = SimpleNamespace(topic="log", topic_id=TOPIC_ID, index=0, role=role, log=log, lock=lock)
        return cast(Partition, made)

    def answered(self, start: int, epoch: int) -> None:
        event = {"low_watermark": start, "leader_epoch": epoch}
        self.rules.answered(self.partition(None, start), event)

    def led(self, name: str, epoch: int, start: int, *damage: Damage, recovering: bool = False) -> None:
        machine = MachineView(name, int(name[1:]), self.disk, "", {})
        for each in damage:
            machine.damaged(each)
        self.rules.look(machine, self.partition(leads(epoch, start, recovering=recovering), start))

    @property
    def found(self) -> list[str]:
        return [each.sentence for each in self.findings.found]


@pytest.mark.conforms("K107-1", "K107-2")
def test_leaders_that_start_at_the_answered_offset_or_above_are_lawful() -> None:
    story = Story()
    story.led("n1", 3, 0)
    story.answered(10, 3)
    for name, epoch, start in (("n1", 3, 10), ("n2", 4, 10), ("n1", 5, 17)):
        story.led(name, epoch, start)
    assert story.found == []
    assert story.findings.checks["answered-start-fell"] == 3


@pytest.mark.conforms("K107-1", "K107-2")
@pytest.mark.parametrize(("node", "epoch"), [("n1", 3), ("n2", 4), ("n2", 9)])
def test_a_later_leader_that_starts_below_the_answered_offset_is_found(node: str, epoch: int) -> None:
    story = Story()
    story.answered(10, 3)
    story.led(node, epoch, 9)
    (found,) = story.findings.found
    assert found.oracle == "answered-start-fell"
    assert f"{node} leads epoch {epoch} with a log that starts at 9, and DeleteRecords was answered with 10" in (
        found.sentence
    )


def test_a_deposed_leader_does_not_matter() -> None:
    story = Story()
    story.answered(10, 3)
    story.led("n2", 2, 0)
    assert story.found == []


def test_an_answer_after_the_first_look_is_compared_with_the_same_leader() -> None:
    story = Story()
    story.answered(5, 3)
    story.led("n1", 3, 5)
    story.answered(8, 3)
    story.led("n1", 3, 5)
    assert [each.oracle for each in story.findings.found] == ["answered-start-fell"]


def test_an_unclean_election_undoes_a_deletion_down_to_its_own_start() -> None:
    story = Story()
    story.answered(10, 3)
    story.led("n2", 4, 6, recovering=True)
    story.led("n2", 4, 6)
    assert story.found == []
    story.led("n1", 5, 5)
    assert len(story.found) == 1


def test_a_wiped_disk_excuses_the_start_and_a_kill_does_not() -> None:
    story = Story()
    story.answered(10, 3)
    story.led("n2", 4, 0, Damage.DISK)
    assert story.found == []
    story.led("n1", 4, 0, Damage.MEMORY)
    assert len(story.found) == 1
