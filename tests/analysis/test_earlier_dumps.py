"""The earlier dumps that a run must have, by its journal."""

from typing import Any

import pytest

from analysis.evidence.earlier_dumps import demanded

NODES = ("n1", "n2", "n3")
HEAL = {"t": 9, "wall": 9.0, "event": "heal_all"}


def dumped(*nodes: str, t: int = 8, **more: Any) -> dict[str, Any]:
    return {"t": t, "wall": float(t), "event": "note", "dumped": list(nodes), **more}


def fault(t: int, *targets: str, destroys: tuple[str, ...] = ("unsynced-bytes",)) -> dict[str, Any]:
    return {"t": t, "event": "fault_invoked", "id": str(t), "targets": list(targets), "may_destroy": list(destroys)}


def test_the_nodes_that_the_journal_names_are_demanded() -> None:
    found = demanded([dumped(*NODES), HEAL], NODES, "process")
    assert (found.nodes, found.at, found.doubts) == (NODES, 8, ())
    assert not found.lost | found.shortened


@pytest.mark.parametrize("world", ["process", "namespaces", "simulation"])
def test_a_node_with_power_is_dumped_where_the_world_reaches_it(world: str) -> None:
    (doubt,) = demanded([dumped("n1", "n3"), HEAL], NODES, world).doubts
    assert "no earlier dump of n2" in doubt
    assert len(demanded([dumped(), HEAL], NODES, world).doubts) == len(NODES)


def test_a_dump_of_a_node_after_a_power_loss_is_not_demanded() -> None:
    journal = [fault(3, "n2"), dumped("n1", "n3"), HEAL]
    assert demanded(journal, NODES, "simulation").doubts == ()
    healed = {"t": 5, "event": "fault_healed", "id": "3"}
    assert demanded([journal[0], healed, *journal[1:]], NODES, "simulation").doubts


def test_a_dump_of_a_killed_node_is_demanded() -> None:
    journal = [fault(3, "n2", destroys=("memory", "progress")), dumped("n1", "n3"), HEAL]
    assert demanded(journal, NODES, "simulation").doubts


def test_a_world_that_reaches_no_node_makes_no_dump() -> None:
    assert demanded([dumped(), HEAL], NODES, "vms") == demanded([dumped(), HEAL], NODES, "hosts")
    assert demanded([dumped(), HEAL], NODES, "vms").doubts == ()


def test_a_dump_that_failed_leaves_a_doubt_where_the_world_reaches_the_nodes() -> None:
    """Else a line of the journal could excuse dumps that were removed."""
    journal = [dumped(undumped="n2: its files cannot be read"), HEAL]
    found = demanded(journal, NODES, "process")
    assert found.failed
    assert "an earlier dump is missing" in " ".join(found.doubts)
    assert demanded(journal, NODES, "inventory").doubts == ()


@pytest.mark.parametrize("lines", [[], [dumped(*NODES), dumped(*NODES)]])
def test_a_healed_run_reports_its_dumps_once(lines: list[dict[str, Any]]) -> None:
    assert demanded([*lines, HEAL], NODES, "vms").doubts
    assert not demanded(lines[:1], NODES, "vms").doubts, "it was not healed"


@pytest.mark.parametrize(
    ("damage", "lost", "shortened"),
    [
        ("whole-disk", True, False),
        ("newer-state", True, False),
        ("synced-bytes", True, False),
        ("unsynced-bytes", False, True),
        ("memory", False, False),
    ],
)
def test_the_checker_does_not_demand_records_that_a_fault_may_have_destroyed(
    damage: str, lost: bool, shortened: bool
) -> None:
    found = demanded([fault(3, "n2", destroys=(damage,)), dumped(*NODES), HEAL], NODES, "simulation")
    assert ("n2" in found.lost, "n2" in found.shortened) == (lost, shortened)
    assert "n1" not in found.lost | found.shortened


def test_a_high_watermark_is_demanded_once_its_node_must_have_written_it() -> None:
    created = {"t": 1_000_000_000, "event": "assignment", "replicas": [[1, 2, 3]]}
    journal = [created, dumped(*NODES, t=9_000_000_000), HEAL]
    assert all(demanded(journal, NODES, "process", 3.0).marked(node, 0) for node in NODES)
    assert not any(demanded(journal, NODES, "process", 8.0).marked(node, 0) for node in NODES)


def test_a_replica_that_joins_later_has_one_interval_to_write_its_high_watermark() -> None:
    second = 10**9
    created = {"t": 0, "event": "assignment", "replicas": [[1, 2], [2, 3]]}
    moved = {"t": 10 * second, "event": "reassigned", "partition": 0, "replicas": [1, 2, 3]}
    in_sync = {"t": 12 * second, "event": "joined", "node": "n3", "partition": 0}
    for joined in ([moved], [moved, in_sync]):
        soon = demanded([created, *joined, dumped(*NODES, t=15 * second), HEAL], NODES, "process", 5.0)
        assert not soon.marked("n3", 0)
        assert all(soon.marked(node, 0) for node in ("n1", "n2")), "these replicas are older"
        assert soon.marked("n3", 1)
        late = demanded([created, *joined, dumped(*NODES, t=19 * second), HEAL], NODES, "process", 5.0)
        assert late.marked("n3", 0)


@pytest.mark.parametrize(
    ("damage", "delays"), [("progress", True), ("speed", True), ("memory", True), ("packets", False)]
)
def test_a_node_under_a_fault_need_not_write_its_high_watermark(damage: str, delays: bool) -> None:
    second = 10**9
    created = {"t": 0, "event": "assignment", "replicas": [[1, 2, 3]]}
    killed = fault(4 * second, "n2", destroys=(damage,))
    healed = {"t": 30 * second, "event": "fault_healed", "id": killed["id"], "targets": ["n2"]}
    found = demanded([created, killed, dumped(*NODES, t=20 * second), HEAL], NODES, "process", 5.0)
    assert (found.marked("n2", 0), found.marked("n1", 0)) == (not delays, True)
    for at, marked in ((33, not delays), (40, True)):
        found = demanded([created, killed, healed, dumped(*NODES, t=at * second), HEAL], NODES, "process", 5.0)
        assert found.marked("n2", 0) == marked


def test_the_checker_does_not_demand_records_acknowledged_during_dumps() -> None:
    """The load continues from the heal phase to the line that names the dumps."""
    journal = [
        {"t": 2, "event": "phase", "name": "main"},
        {"t": 5, "event": "phase", "name": "heal"},
        dumped(*NODES),
        HEAL,
    ]
    assert demanded(journal, NODES, "process").at == 5


def test_no_high_watermark_is_demanded_of_a_topic_that_was_just_created_under_load() -> None:
    second = 10**9
    journal = [
        {"t": 0, "event": "assignment"},
        {"t": 6 * second, "event": "note", "text": "topic_ready"},
        dumped(*NODES, t=9 * second),
        HEAL,
    ]
    assert not demanded(journal, NODES, "process", 5.0).marked("n1", 0)
    assert demanded(journal, NODES, "process", 1.0).marked("n1", 0)
