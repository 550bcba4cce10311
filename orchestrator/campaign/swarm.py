"""Swarm: each run draws from its seed what the campaign leaves open: cluster, settings, load and faults.

A campaign of constant shape keeps finding the same bugs. Here each run leaves out most of the possible features, so
that the remaining ones combine in unforeseen ways. `run.toml` records what was drawn; the same seed draws the same, so
a run can be repeated as any other.

Invariant: a draw keeps the system's promises. The replicas and disks that an acknowledged write rests on are always
more than the drawn faults can take away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from msgspec import structs

from nemeses import KINDS
from nemeses.schedule import ScheduleError, plan_schedule
from orchestrator.campaign.model import FILESYSTEMS, STRICT, Campaign, NemesisSettings, Swarm, Topology
from systems import Settings
from workloads.kind import Workload
from workloads.kinds.log import COMPRESSION

ROLE: Final = "broker"
GROUP: Final = "group"
"""The kind of workload whose clients are members of a group."""
MOST_KINDS: Final = 6
"""The most kinds of fault in one run: with more, each would happen once and meet no other."""
MOST_PARTITIONS: Final = 4
TIERED_SHARE: Final = 0.3
"""The share of runs with tiered storage, if the campaign has faults of the object store and enough is written."""
LEAST_SEGMENT: Final = 4_096
FEWEST_SEGMENTS: Final = 5
"""How many segments each partition of a run with tiered storage should have at least, without faults."""
BATCH_OVERHEAD: Final = 70
"""Bytes of a batch besides the value of its one record."""
MOST_STORE_KINDS: Final = 2
"""The most kinds of fault of the object store in one run."""
SAFE_LEASE: Final = (0.4, 0.72)
"""Share of a session: a lease must end before the session, on clocks that differ by the drift of `clock-drift`."""

LONGEST_SESSION_MS: Final = 8_000
"""Share of runs in which one broker's configuration differs from the others'."""

LEAST_SESSION_S: Final = 6.0
"""The session of a group's member: brokers grant no shorter one."""

_DISKS_LOST: Final = frozenset({"disk-flip"})
"""Kinds that take records from a disk: another disk must have them, too."""
_OF_STORE: Final = "objects"
"""What kinds need that affect the object store: they are drawn for clusters with tiered storage only."""
_ALONE: Final = frozenset({"network", "netem", "wire"})
"""Kinds that affect pairs of nodes: there must be two nodes."""


@dataclass(frozen=True)
class _Times:
    """Timeouts in milliseconds, from short to long."""

    session: int
    lag: int
    fetch: int
    election: int


def draw(campaign: Campaign, seed: int) -> Campaign:
    """The campaign as the run of this seed has it; unchanged if it leaves nothing open."""
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
    tiering, checks = Random(f"{seed}/tiered"), campaign.checks
    if store_faults := _store_faults(tiering, campaign.nemesis.faults, nemesis, workload):
        nemesis = structs.replace(nemesis, faults=(*nemesis.faults, *store_faults))
        topic = _tiered_topic(tiering, _bytes_of_partition(workload))
        workload = structs.replace(workload, topic_settings={**topic, **workload.topic_settings})
        common = {**_tiered(tiering, topology.nodes), **common}
        if checks.min_remote_segments is None:
            # Faults can prevent that a segment becomes complete. The replicas then have all records.
            checks = structs.replace(checks, min_remote_segments=0)
    return replace(
        campaign,
        checks=checks,
        topology=topology,
        workload=workload,
        nemesis=nemesis,
        settings={**campaign.settings, ROLE: Settings(common, {**one, **given.per_node})},
        swarm=None,
    )


def faults_of(faults: Sequence[str], nodes: int, replication_factor: int) -> list[str]:
    """The kinds of fault that a cluster of this size can have without breaking its promises, with or without tiered
    storage. A draw is possible only if the smallest cluster, with one replica per partition, has some."""
    return [
        name
        for name in faults
        if (nodes > 1 or not KINDS[name].needs & _ALONE)
        and (replication_factor > 2 or name not in _DISKS_LOST)
        and _OF_STORE not in KINDS[name].needs
    ]


def _topology(chance: Random, given: Topology, swarm: Swarm) -> Topology:
    # Three is the most common size, and the one with the narrowest majorities.
    nodes = 3 if chance.random() < 0.4 and swarm.nodes[0] <= 3 <= swarm.nodes[1] else chance.randint(*swarm.nodes)
    return structs.replace(given, nodes=nodes, filesystem=chance.choice((*FILESYSTEMS, STRICT)))


def _workload(chance: Random, clients: Random, given: Workload, swarm: Swarm, nodes: int) -> Workload:
    factor = min(nodes, chance.choice((1, 2, 3, 3, 3)))
    drawn: dict[str, int | float | str] = {
        "producers": chance.randint(1, 4),
        "consumers": chance.randint(1, 2),
        "record_bytes": round(_even(chance, 16, 4_000)),
        **_of_clients(clients),
    }
    # Workload kinds share some of these parameters; each has those that its clients support.
    parameters = {key: drawn.get(key, value) for key, value in given.parameters.items()}
    return structs.replace(
        given,
        partitions=chance.randint(1, MOST_PARTITIONS),
        replication_factor=factor,
        rate=round(_even(chance, *swarm.rate)),
        duration_s=float(round(chance.uniform(*swarm.duration_s))),
        parameters=parameters,
    )


def _of_clients(chance: Random) -> dict[str, int | float | str]:
    """Parameters of clients: how they send, and how many share a topic."""
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
    intensity = _even(chance, 0.3, 3.0)  # seconds: a typical pause
    interval_s = (round(0.2 * intensity, 3), round(2 * intensity, 3))
    length = _even(chance, 0.3, 4.0)
    duration_s = (round(0.2 * length, 3), round(2 * length, 3))
    overlap = chance.random() < 0.4
    quiet_s = tuple(_quiet(chance, workload.duration_s))
    while wanted > 1 and not _fits(order[:wanted], workload.duration_s, interval_s, duration_s, overlap=overlap):
        wanted -= 1
    return structs.replace(
        given,
        faults=tuple(order[:wanted]),
        interval_s=interval_s,
        duration_s=duration_s,
        overlap=overlap,
        quiet_s=quiet_s,
    )


def _quiet(chance: Random, total_s: float) -> list[tuple[float, float]]:
    """Occasionally a time without faults, in which the effects of earlier ones show."""
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
    """A broker's properties, as texts. A write is on the disks of all replicas that count it before it is
    acknowledged."""
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
    """How many disks have a write before it counts: one is enough if no fault takes data from a disk."""
    most = max(1, replication_factor - 1)
    least = most if _DISKS_LOST & set(faults) else 1
    return {"min.insync.replicas": str(chance.randint(least, most))}


def _store_faults(
    chance: Random, given: Sequence[str], nemesis: NemesisSettings, workload: Workload
) -> tuple[str, ...]:
    """The faults of the object store, in a share of the runs; none: the run has no tiered storage. What a seed draws
    otherwise does not depend on them."""
    kinds = [name for name in given if _OF_STORE in KINDS[name].needs]
    if not kinds or workload.kind == GROUP or chance.random() >= TIERED_SHARE:
        return ()
    if _bytes_of_partition(workload) < FEWEST_SEGMENTS * LEAST_SEGMENT:
        return ()  # no segment would be complete, so none would be uploaded
    drawn = chance.sample(kinds, min(len(kinds), chance.randint(1, MOST_STORE_KINDS)))
    while drawn and not _fits(
        [*nemesis.faults, *drawn],
        workload.duration_s,
        nemesis.interval_s,
        nemesis.duration_s,
        overlap=nemesis.overlap,
    ):
        drawn.pop()
    return tuple(drawn)


def _bytes_of_partition(workload: Workload) -> float:
    """About how much is written to a partition if half of the operations are appends of one record each."""
    appended = workload.rate * workload.duration_s * (int(workload.parameters["record_bytes"]) + BATCH_OVERHEAD) / 2
    return appended / workload.partitions


def _tiered_topic(chance: Random, partition_bytes: float) -> Mapping[str, str]:
    """Settings of a topic in remote storage. No record expires: the checkers look for all of them. Segments are small
    enough that some are complete: only these are uploaded."""
    segment = min(round(_even(chance, LEAST_SEGMENT, 65_536)), round(partition_bytes / FEWEST_SEGMENTS))
    return {
        "remote.storage.enable": "true",
        "segment.bytes": str(segment),
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "local.retention.ms": "-1",
        "local.retention.bytes": str(round(segment * chance.uniform(0, 4))),
    }


def _tiered(chance: Random, nodes: int) -> Mapping[str, str]:
    """Properties of brokers with tiered storage, as texts. The metadata of remote segments is on as many brokers as the
    records."""
    drawn = {
        "rlmm.config.remote.log.metadata.topic.num.partitions": chance.randint(1, 3),
        "rlmm.config.remote.log.metadata.topic.replication.factor": min(3, nodes),
        "rsm.config.timeout.ms": round(_even(chance, 500, 5_000)),
        "remote.log.manager.task.interval.ms": round(_even(chance, 100, 2_000)),
        "remote.log.reader.chunk.bytes": round(_even(chance, 4_096, 1 << 20)),
        "log.retention.check.interval.ms": round(_even(chance, 100, 2_000)),
    }
    switches = ("follower.fetch.last.tiered.offset.enable", "tiered.replicas.lead.last.enable")
    return {
        "remote.log.storage.system.enable": "true",
        **{key: str(value) for key, value in drawn.items()},
        **{key: chance.choice(("true", "false")) for key in switches},
    }


def _of_one_file(chance: Random, nodes: int, common: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Occasionally one broker's configuration has longer times, as during a rolling change."""
    if nodes == 1 or chance.random() < 0.75:
        return {}
    usual = int(common["broker.session.timeout.ms"])
    session = round(max(usual, min(LONGEST_SESSION_MS, usual * chance.uniform(1.2, 4))))
    times = {"broker.session.timeout.ms": session, "broker.lease.ms": round(session * chance.uniform(*SAFE_LEASE))}
    return {f"n{chance.randint(1, nodes)}": {key: str(value) for key, value in times.items()}}


def _of_groups(chance: Random) -> Mapping[str, str]:
    """Properties of group coordinators, as texts; their log is small enough to be compacted sometimes."""
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
    """A number whose logarithm is evenly distributed between the bounds."""
    return math.exp(chance.uniform(math.log(least), math.log(most)))
