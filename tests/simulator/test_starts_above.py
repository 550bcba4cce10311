"""The excuse of a follower that drops its log to start it again above remote records (KIP-1023)."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.replica.follower import PartitionFollower
from simulator.disk import SimulatedDisk
from simulator.loop import new_loop
from simulator.oracles.findings import OracleFindings
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView
from tests.broker.log.making import SMALL, batch, write
from tests.simulator.storm import TOPIC

FEW = LogConfig(segment_bytes=200, index_interval_bytes=100)
FOLLOWER, LEADER = 1, 2
SAFE: dict[str, Any] = {"electable": (LEADER,), "tiered": True, "local_start": 4, "locked": True, "follows": True}


def node(*, tiered: bool, locked: bool, follows: bool) -> SimpleNamespace:
    """What the oracle looks at in a broker that runs on the follower's machine. Its own metadata is older than the
    follower's removal from the ISR."""
    role = PartitionFollower(leader_id=LEADER, leader_epoch=1, partition_epoch=0, high_watermark=0) if follows else None
    settings, lock = SimpleNamespace(remote_storage=tiered), SimpleNamespace(locked=lambda: locked)
    partition = SimpleNamespace(settings=settings, role=role, lock=lock)
    state = SimpleNamespace(isr=(LEADER, FOLLOWER), elr=())
    return SimpleNamespace(
        replicas=SimpleNamespace(partition=lambda *_: partition), image=SimpleNamespace(partition=lambda *_: state)
    )


@pytest.mark.conforms("K1023-6")
@pytest.mark.parametrize(
    ("changed", "is_excused"),
    [
        ({}, True),
        ({"electable": (LEADER, FOLLOWER)}, False),
        ({"tiered": False}, False),
        ({"local_start": 3}, False),
        ({"locked": False}, False),
        ({"follows": False}, False),
    ],
)
def test_a_follower_that_cannot_be_elected_may_drop_records_below_another_local_start(
    changed: dict[str, Any], is_excused: bool
) -> None:
    case = SAFE | changed
    local_start, electable = case.pop("local_start"), case.pop("electable")
    loop = new_loop()
    disk, findings = SimulatedDisk(loop, random.Random(0)), OracleFindings(loop.time)
    rules, copies = LogRules(TOPIC, 0, findings), {name: CopiedLog(name) for name in ("n1", "n2")}
    rules.electable = frozenset(electable)
    views = {name: MachineView(name, int(name[1:]), disk, "", {}) for name in copies}

    async def life() -> None:
        follows = await PartitionLog.open(disk, "n1", SMALL, clean_shutdown=False)
        leads = await PartitionLog.open(disk, "n2", FEW, clean_shutdown=False)
        await write(leads, 1, *"abcdefgh")
        await follows.replicate(b"".join(batch(value, base=at, epoch=1) for at, value in enumerate("abcd")), 1)
        for name, log in (("n1", follows), ("n2", leads)):
            rules.follow(views[name], copies[name], log)
        rules.commit(copies["n2"], 8, 1)
        await leads.delete_segments_before(local_start, keeps_start=True)
        rules.start_moved("n2", copies["n2"], leads)
        views["n1"].node = cast(Any, node(**case))
        await follows.truncate_fully_and_start_at(0)
        rules.follow(views["n1"], copies["n1"], follows)

    loop.run_until_complete(life())
    assert [finding.oracle for finding in findings.found] == ([] if is_excused else ["committed-prefix-changed"])
