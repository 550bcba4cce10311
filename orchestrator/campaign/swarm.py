"""Swarm: what a campaign leaves open its runs draw, each from its seed: cluster, settings, load and what goes wrong.

A campaign that always has the same shape finds the same mistakes. Here each run leaves out most of what it might have,
so that what is left meets in ways that nobody thought of. What was drawn stands in the run's `run.toml`; the same seed
draws the same, so a run is made again as every other is.

Invariant: only what keeps the promises is drawn. What an acknowledged write rests on (how many replicas, on whose
disks) is never less than what the faults that are drawn with it can take away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from nemeses import KINDS
from nemeses.schedule import ScheduleError, plan_schedule
from orchestrator.campaign.model import FILESYSTEMS, STRICT, Campaign, NemesisSettings, Swarm, Topology, Workload
from systems import Settings
from workloads.kinds.log import COMPRESSION

ROLE: Final = "broker"
GROUP: Final = "group"
"""The kind of workload whose clients are members of a group."""
MOST_KINDS: Final = 6
"""So many kinds of fault meet in one run at most: more would leave each of them once, and nothing to meet it."""
MOST_PARTITIONS: Final = 4
SAFE_LEASE: Final = (0.4, 0.72)
"""Of a session: a lease must be over before the session is, on clocks that differ by the drift of `clock-drift`."""

LONGEST_SESSION_MS: Final = 8_000
"""Of a broker whose file is not like the others'."""

LEAST_SESSION_S: Final = 6.0
"""Of a group's member: brokers grant no shorter one."""

_DISKS_LOST: Final = frozenset({"disk-flip"})
"""Kinds that take records from a disk that had them: another one must have them too."""
_ALONE: Final = frozenset({"network", "netem", "wire"})
"""What kinds need that come between nodes: there must be two."""


@dataclass(frozen=True)
class _Times:
    """Timeouts in milliseconds, from hasty to slow."""

    session: int
    lag: int
    fetch: int
    election: int


def draw(campaign: Campaign, seed: int) -> Campaign:
    """The campaign as the run of this seed has it; the same where nothing is left open."""
    swarm = campaign.swarm
    if swarm is None:
        return campaign
    chance = Random(f"{seed}/swarm")
    topology = _topology(chance, campaign.topology, swarm)
    workload = _workload(chance, Random(f"{seed}/clients"), campaign.workload, swarm, topology.nodes)
    nemesis = _nemesis(chance, campaign.nemesis, topology.nodes, workload)
    settings = {
        **_settings(chance, topology, swarm),
        **_in_sync(Random(f"{seed}/in-sync"), workload.replication_factor, nemesis.faults),
    }
    if workload.kind == GROUP:
        settings = {**settings, **_of_groups(Random(f"{seed}/groups"))}
    given = campaign.settings.get(ROLE, Settings())
    common = {**settings, **given.common}
    one = _of_one_file(Random(f"{seed}/one-file"), topology.nodes, common)
    return replace(
        campaign,
        topology=topology,
        workload=workload,
        nemesis=nemesis,
        settings={**campaign.settings, ROLE: Settings(common, {**one, **given.per_node})},
        swarm=None,
    )


def faults_of(faults: Sequence[str], nodes: int, replication_factor: int) -> list[str]:
    """Those of these kinds of fault that a cluster of this size may suffer and keep its promises. There is a draw only
    where the smallest cluster, of one replica for each partition, has some."""
    return [
        name
        for name in faults
        if (nodes > 1 or not KINDS[name].needs & _ALONE) and (replication_factor > 2 or name not in _DISKS_LOST)
    ]


def _topology(chance: Random, given: Topology, swarm: Swarm) -> Topology:
    # Three is what most clusters have, and where majorities are closest.
    nodes = 3 if chance.random() < 0.4 and swarm.nodes[0] <= 3 <= swarm.nodes[1] else chance.randint(*swarm.nodes)
    return replace(given, nodes=nodes, filesystem=chance.choice((*FILESYSTEMS, STRICT)))


def _workload(chance: Random, clients: Random, given: Workload, swarm: Swarm, nodes: int) -> Workload:
    factor = min(nodes, chance.choice((1, 2, 3, 3, 3)))
    drawn: dict[str, int | float | str] = {
        "producers": chance.randint(1, 4),
        "consumers": chance.randint(1, 2),
        "record_bytes": round(_even(chance, 16, 4_000)),
        **_of_clients(clients),
    }
    # Kinds have some of these in common, and each has those that its clients know.
    parameters = {key: drawn.get(key, value) for key, value in given.parameters.items()}
    return replace(
        given,
        partitions=chance.randint(1, MOST_PARTITIONS),
        replication_factor=factor,
        rate=round(_even(chance, *swarm.rate)),
        duration_s=float(round(chance.uniform(*swarm.duration_s))),
        parameters=parameters,
    )


def _of_clients(chance: Random) -> dict[str, int | float | str]:
    """How clients send, and how many share a topic."""
    return {
        "idempotent": chance.random() < 0.4,
        "compression": chance.choice(COMPRESSION.choices) if chance.random() < 0.5 else "none",
        "members": chance.randint(1, 5),
        "session_timeout_s": round(chance.uniform(LEAST_SESSION_S, 2 * LEAST_SESSION_S), 3),
    }


def _nemesis(chance: Random, given: NemesisSettings, nodes: int, workload: Workload) -> NemesisSettings:
    possible = faults_of(given.faults, nodes, workload.replication_factor)
    order = chance.sample(possible, len(possible))
    wanted = chance.randint(1, min(MOST_KINDS, len(order)))
    intensity = _even(chance, 0.3, 3.0)  # seconds: of a typical pause
    interval_s = (round(0.2 * intensity, 3), round(2 * intensity, 3))
    length = _even(chance, 0.3, 4.0)
    duration_s = (round(0.2 * length, 3), round(2 * length, 3))
    overlap = chance.random() < 0.4
    quiet_s = tuple(_quiet(chance, workload.duration_s))
    while wanted > 1 and not _fits(order[:wanted], workload.duration_s, interval_s, duration_s, overlap=overlap):
        wanted -= 1
    return replace(
        given,
        faults=tuple(order[:wanted]),
        interval_s=interval_s,
        duration_s=duration_s,
        overlap=overlap,
        quiet_s=quiet_s,
    )


def _quiet(chance: Random, total_s: float) -> list[tuple[float, float]]:
    """Now and then a time without faults, in which what went wrong before shows."""
    if chance.random() < 0.5:
        return []
    start = chance.uniform(0.3, 0.7) * total_s
    return [(round(start, 3), round(start + chance.uniform(0.1, 0.3) * total_s, 3))]


def _fits(
    kinds: list[str], total_s: float, interval_s: tuple[float, float], duration_s: tuple[float, float], *, overlap: bool
) -> bool:
    try:
        plan_schedule(0, kinds, total_s=total_s, interval_s=interval_s, duration_s=duration_s, overlap=overlap)
    except ScheduleError:
        return False
    return True


def _settings(chance: Random, topology: Topology, swarm: Swarm) -> Mapping[str, str]:
    """A broker's properties, as texts. Each write is on the disks of those that have it before it counts."""
    times = _Times(
        session=round(_even(chance, 1_000, 6_000)),
        lag=round(_even(chance, 500, 6_000)),
        fetch=round(_even(chance, 500, 3_000)),
        election=round(_even(chance, 300, 2_000)),
    )
    voters = min(topology.nodes, chance.randint(*swarm.voters))
    drawn: dict[str, int] = {
        "log.flush.interval.messages": 1,
        "offsets.topic.replication.factor": min(3, topology.nodes),
        "broker.session.timeout.ms": times.session,
        "broker.heartbeat.interval.ms": max(50, times.session // chance.randint(6, 12)),
        "broker.lease.ms": round(times.session * chance.uniform(*SAFE_LEASE)),
        "replica.lag.time.max.ms": times.lag,
        "quorum.fetch.timeout.ms": times.fetch,
        "quorum.election.timeout.ms": times.election,
        "replica.fetch.wait.max.ms": min(times.lag // 2, round(_even(chance, 20, 1_000))),
        "replica.fetch.backoff.ms": round(_even(chance, 10, 500)),
        "replica.fetch.max.bytes": round(_even(chance, 4_096, 1 << 20)),
        "replica.high.watermark.checkpoint.interval.ms": round(_even(chance, 50, 5_000)),
        "log.segment.bytes": chance.choice((round(_even(chance, 8_192, 1 << 20)), 1 << 30)),
        "log.index.interval.bytes": round(_even(chance, 256, 65_536)),
        "metadata.log.max.record.bytes.between.snapshots": round(_even(chance, 1_000, 20 << 20)),
    }
    return {"quorum.voters": str(voters)} | {key: str(value) for key, value in drawn.items()}


def _in_sync(chance: Random, replication_factor: int, faults: Sequence[str]) -> Mapping[str, str]:
    """How many disks have a write before it counts: one is enough where no fault takes away what a disk had."""
    most = max(1, replication_factor - 1)
    least = most if _DISKS_LOST & set(faults) else 1
    return {"min.insync.replicas": str(chance.randint(least, most))}


def _of_one_file(chance: Random, nodes: int, common: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Now and then one broker's file has longer times, as while files are changed one after the other."""
    if nodes == 1 or chance.random() < 0.75:
        return {}
    usual = int(common["broker.session.timeout.ms"])
    session = round(max(usual, min(LONGEST_SESSION_MS, usual * chance.uniform(1.2, 4))))
    times = {"broker.session.timeout.ms": session, "broker.lease.ms": round(session * chance.uniform(*SAFE_LEASE))}
    return {f"n{chance.randint(1, nodes)}": {key: str(value) for key, value in times.items()}}


def _of_groups(chance: Random) -> Mapping[str, str]:
    """What coordinators of groups go by, as texts; their log is small enough to be compacted now and then."""
    drawn = {
        "offsets.topic.num.partitions": chance.randint(1, 4),
        "offsets.topic.segment.bytes": round(_even(chance, 4_096, 1 << 20)),
        "offsets.commit.timeout.ms": round(_even(chance, 300, 5_000)),
        "group.initial.rebalance.delay.ms": round(_even(chance, 1, 3_000)),
        "log.cleaner.backoff.ms": round(_even(chance, 100, 15_000)),
        "log.cleaner.min.cleanable.ratio": round(chance.uniform(0.05, 0.5), 3),
    }
    return {key: str(value) for key, value in drawn.items()}


def _even(chance: Random, least: float, most: float) -> float:
    """A number whose logarithm is even between bounds."""
    return math.exp(chance.uniform(math.log(least), math.log(most)))
