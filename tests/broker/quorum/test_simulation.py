"""Many schedules of whole quorums: invariants, and recovery after the faults."""

import pytest

from tests.broker.quorum.simulation import CALM, Chaos, Simulation

SEEDS_OF_THREE = 150
SEEDS_OF_FIVE = 75
TROUBLE = 6.0
RECOVERY = 4.0


def trouble(simulation: Simulation, seconds: float) -> None:
    """Keep appending, cutting, crashing and restarting for a while."""
    rng = simulation.rng
    nodes = list(simulation.members)
    end = simulation.now + seconds
    while simulation.now < end:
        choice = rng.random()
        if choice < 0.15:
            leader = simulation.leader()
            alone = leader is not None and rng.random() < 0.5
            simulation.partition({leader or 0} if alone else set(rng.sample(nodes, rng.randrange(1, len(nodes)))))
        elif choice < 0.35:
            simulation.cut = set()
        elif choice < 0.5:
            victim = simulation.leader() or rng.choice(nodes)
            if simulation.members[victim].process is not None:
                simulation.crash(victim, power=rng.random() < 0.5)
        if rng.random() < 0.5:
            simulation.start_all()
        for node in nodes:
            simulation.append(node)
        simulation.run(rng.uniform(0.02, 0.4))


def heal(simulation: Simulation) -> None:
    simulation.chaos = CALM
    simulation.cut = set()
    simulation.start_all()
    simulation.run(RECOVERY)


@pytest.mark.rotating(3, among="random schedules")
@pytest.mark.conforms("K595-54", "K595-13", "K595-14", "K595-18", "K595-21", "K595-36", "K595-43", "H18", "H25")
@pytest.mark.parametrize(("voters", "observers", "seeds"), [(3, 1, SEEDS_OF_THREE), (5, 0, SEEDS_OF_FIVE)])
def test_no_schedule_breaks_a_promise_and_every_quorum_recovers(voters: int, observers: int, seeds: int) -> None:
    elections = commits = acknowledged = 0
    for seed in range(seeds):
        simulation = Simulation(seed, voters, observers, Chaos())
        simulation.start_all()
        trouble(simulation, TROUBLE)
        heal(simulation)
        leader = simulation.leader()
        assert leader is not None, f"seed {seed}: no leader after healing"
        last = simulation.append(leader)
        simulation.run(1.0)
        assert last in simulation.acknowledged, f"seed {seed}: no progress after healing"
        committed = simulation.oracle.committed
        logs = [member.log.entries for member in simulation.members.values()]
        assert all(log == committed for log in logs), f"seed {seed}: not every node has caught up"
        assert all(member.high_watermark == len(committed) for member in simulation.members.values())
        values = [value for _, value in committed]
        assert all(value in values for value in simulation.acknowledged), f"seed {seed}: an acknowledged append is gone"
        assert simulation.failures == [], f"seed {seed}"
        elections += len(simulation.oracle.leaders)
        commits += len(committed)
        acknowledged += len(simulation.acknowledged)
    assert elections > 3 * seeds, "the schedules are too tame: hardly any elections"
    assert acknowledged > 5 * seeds, "the schedules are too wild: hardly any progress"


def test_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> tuple[object, ...]:
        simulation = Simulation(seed, 3, 1, Chaos())
        simulation.start_all()
        trouble(simulation, TROUBLE)
        return simulation.steps, simulation.oracle.leaders, simulation.oracle.committed, simulation.acknowledged

    assert digest(7) == digest(7)
    assert digest(7) != digest(8)


@pytest.mark.conforms("K595-12", "K595-48")
def test_fresh_nodes_elect_a_leader_within_a_third_of_a_second() -> None:
    for seed in range(100):
        simulation = Simulation(seed, 3)
        simulation.start_all()
        simulation.run(0.35)
        leader = simulation.leader()
        assert leader is not None, f"seed {seed}"
        process = simulation.members[leader].process
        assert process is not None
        assert process.high_watermark > 0, f"seed {seed}: not established"


def led(seed: int) -> tuple[Simulation, int]:
    """Three nodes, one of which leads."""
    simulation = Simulation(seed, 3)
    simulation.start_all()
    simulation.run(1.0)
    leader = simulation.leader()
    assert leader is not None
    return simulation, leader


@pytest.mark.conforms("K595-12")
def test_a_killed_leader_is_replaced_within_two_seconds() -> None:
    for seed in range(100):
        simulation, old = led(seed)
        simulation.crash(old, power=True)
        simulation.run(2.0)
        new = simulation.leader()
        assert new not in (None, old), f"seed {seed}"


@pytest.mark.conforms("H18", "K595-12")
def test_a_bounced_leader_hands_over_at_once() -> None:
    """It restarts inside the fetch timeout, so that only its EndQuorumEpoch can inform the others."""
    for seed in range(50):
        simulation, old = led(seed)
        epoch = max(simulation.oracle.leaders)
        simulation.crash(old, power=True)
        simulation.start(old)
        simulation.run(0.3)
        assert max(simulation.oracle.leaders) > epoch, f"seed {seed}"
        assert simulation.leader() not in (None, old), f"seed {seed}"


@pytest.mark.conforms("H20", "K595-43")
def test_a_node_that_was_cut_off_does_not_depose_the_leader() -> None:
    for seed in range(50):
        simulation, leader = led(seed)
        epoch = max(simulation.oracle.leaders)
        simulation.partition({next(node for node in simulation.members if node != leader)})
        simulation.run(8.0)
        simulation.cut = set()
        simulation.run(3.0)
        assert simulation.leader() == leader, f"seed {seed}"
        assert max(simulation.oracle.leaders) == epoch, f"seed {seed}"
        assert len({member.high_watermark for member in simulation.members.values()}) == 1


@pytest.mark.conforms("K595-43", "H19")
def test_a_leader_that_was_cut_off_resigns_and_later_follows() -> None:
    for seed in range(50):
        simulation, old = led(seed)
        simulation.partition({old})
        simulation.run(1.6)
        role = simulation.members[old].process
        assert role is not None
        assert role.role.leader_id is None, f"seed {seed}: still leads"
        simulation.run(2.0)
        simulation.cut = set()
        simulation.run(3.0)
        assert simulation.leader() is not None
        assert len({member.log.log_end_offset for member in simulation.members.values()}) == 1, f"seed {seed}"
