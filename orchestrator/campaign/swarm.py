"""Swarm: each run draws from its seed what the campaign leaves open: cluster, settings, load and faults.

A campaign of constant shape keeps finding the same bugs. Here each run leaves out most of the possible features, so
that the remaining ones combine in unforeseen ways. A run draws a profile first (`campaign.profiles`), then the rest
around it: independent draws seldom have what a rare bug needs at the same time. Faults last about as long as the
drawn time-outs. `run.toml` records what was drawn; the same seed draws the same, so a run can be repeated as any other.

Any system can be drawn whose description has ranges (`[roles.ROLE.draws]`). Of our own broker more is drawn: what
depends on these settings, its voters, its durability, its replicas and its tiered storage. Of other systems the
campaign states these.

Invariant: a draw keeps the system's promises, except where unclean elections are drawn (`UNCLEAN`). The replicas and
disks that an acknowledged write rests on are always more than the drawn faults can take away. Faults that take a disk,
or what is not flushed, are drawn for clusters with three replicas and are apart: each starts after the cluster had the
time to be whole again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from msgspec import structs

from analysis.checkers.partition_logs import LOST
from analysis.evidence.run_toml import SIMULATION
from analysis.verdict import FAIL, Expectation
from history.damage import Damage
from nemeses import KINDS
from nemeses.schedule import ScheduleError, plan_schedule
from orchestrator.campaign import model
from orchestrator.campaign.profiles import LEASE, MEMBER_SESSION, PROFILES, Profile
from systems import Settings
from systems.description import Draws
from workloads.kind import Workload
from workloads.kinds import KINDS as WORKLOADS
from workloads.kinds.log import COMPRESSION

ROLE: Final = "broker"
GROUP: Final = "group"
"""The kind of workload whose clients are members of a group."""
LOG: Final = "log"
TIERED: Final = "tiered"
"""The kind `log` with consumers that jump, to a partition's start or by timestamp."""
JUMPS_SHARE: Final = (0.002, 0.05)
"""The share of polls before which a consumer jumps. Each jump reads a part of a log again."""
MOST_KINDS: Final = 6
"""The most kinds of fault in one run: with more, each would happen once and meet no other."""
MOST_PARTITIONS: Final = 4
MOST_CLIENTS: Final = 6
MOST_KEYS: Final = 6
LENGTHS: Final = (0.3, 2.2)
"""How long a fault lasts, as a share of a drawn time-out."""
DELETING_SHARE: Final = 0.3
"""The share of runs whose producers delete records."""
DELETES_EVERY: Final = (0.01, 0.06)
"""The time between two deletions, as a share of the load: one is certainly answered."""
ADMINISTERS_EVERY: Final = (0.01, 0.04)
"""The time between two operations of an administrator, as a share of the load."""
RETENTION_S: Final = (0.5, 8.0)
RETAINED: Final = (0.05, 0.5)
"""A retention by size, as a share of the bytes that are written to a partition."""
KNOBS_SHARE: Final = 0.2
"""The share of its knobs that a run draws."""
LEAST_SEGMENT: Final = 4_096
FEWEST_SEGMENTS: Final = 8
"""How many segments each partition of a run with tiered storage should have at least, without faults."""
BATCH_OVERHEAD: Final = 70
"""Bytes of a batch besides the value of its one record."""
MOST_STORE_KINDS: Final = 2
"""The most kinds of fault of the object store in one run."""
SAFE_LEASE: Final = (0.4, 0.72)
"""Share of a session: a lease must end before the session, on clocks that differ by the drift of `clock-drift`."""

UNCLEAN: Final = Expectation(
    verdict=FAIL,
    anomaly=LOST.name,
    at_least=1,
    must_hold=(
        *("no-replica-divergence", "no-replica-order-mismatch", "no-epoch-regression", "no-epoch-start-mismatch"),
        *("ORC", "2L", "DUP", "SEQ", "GAP"),
    ),
)
"""The expectation of runs with unclean elections: they pass, or lose records, and nothing else is wrong."""

LONGEST_SESSION_MS: Final = 8_000

LEAST_SESSION_S: Final = 6.0
"""The session of a group's member: brokers grant no shorter one."""

FLUSH: Final = "log.flush.interval.messages"
_SESSION: Final = "broker.session.timeout.ms"
_LEASE: Final = "broker.lease.ms"
_LAG: Final = "replica.lag.time.max.ms"
_FETCH_WAIT: Final = "replica.fetch.wait.max.ms"
_SEGMENT: Final = "log.segment.bytes"
_UNCLEAN: Final = "unclean.leader.election.enable"
_MEMBER_SESSION_KEY: Final = "session_timeout_s"
"""The parameter of a workload."""
_LOSSES: Final = frozenset({Damage.SYNCED, Damage.DISK})
"""Damage that takes records from a disk: other disks must have them, too."""
_ALL_AT_ONCE: Final = "power-loss-all"
REST_S: Final = 1.0
"""How long a cluster needs to be whole after a fault, besides its time-outs."""
_AT_REST: Final = "store"
"""The need of kinds that damage an object at rest."""
_OF_STORE: Final = frozenset({"objects", _AT_REST})
"""What kinds need that affect the object store or its objects: they are drawn for clusters with tiered storage only."""
_ALONE: Final = frozenset({"network", "netem", "wire"})
"""Kinds that affect pairs of nodes: there must be two nodes."""


def draw(campaign: model.Campaign, seed: int) -> model.Campaign:
    """The campaign as the run of this seed has it; unchanged if it leaves nothing open."""
    swarm = campaign.swarm
    if swarm is None:
        return campaign
    name = _profile(Random(f"{seed}/profile"), campaign, swarm)
    profile = PROFILES[name]
    chance = Random(f"{seed}/swarm")
    is_own = is_own_broker(campaign.system)
    topology = _topology(chance, campaign.topology, profile, swarm)
    workload = _workload(chance, Random(f"{seed}/clients"), campaign.workload, profile, swarm, topology.nodes, is_own)
    if is_own and topology.world == SIMULATION:
        workload = _administered(Random(f"{seed}/administration"), workload, profile)
        workload = _retaining(Random(f"{seed}/retention"), workload, profile)
    parameters = _jumping(Random(f"{seed}/jumps"), _of_objects(Random(f"{seed}/objects"), workload.parameters))
    workload = structs.replace(workload, parameters=parameters)
    drawn = {role: _in_ranges(chance, draws, name) for role, draws in campaign.draws.items()}
    if is_own:
        drawn[ROLE] = _of_own_broker(chance, drawn[ROLE], name, topology, profile, swarm, campaign.draws[ROLE])
    for role, draws in campaign.draws.items():
        drawn[role] |= _knobs(Random(f"{seed}/knobs/{role}"), draws, name)
    settings = {
        role: Settings({**drawn.get(role, {}), **given.common}, given.per_node)
        for role, given in {**dict.fromkeys(drawn, Settings()), **campaign.settings}.items()
    }
    timeouts_s = _timeouts_s(campaign.draws, settings, workload)
    flushes = not is_own or _flushes(settings[ROLE].common)
    nemesis = _nemesis(
        chance,
        campaign.nemesis,
        profile,
        topology.nodes,
        workload,
        timeouts_s,
        flushes=flushes,
        may_overlap=all(draws.starts_alone for draws in campaign.draws.values()),
    )
    # Faults that are apart need a load in which one of them fits.
    least_s = float(math.ceil(nemesis.interval_s[0] + nemesis.duration_s[0]))
    workload = structs.replace(workload, duration_s=max(workload.duration_s, least_s))
    made = replace(
        campaign,
        cells=tuple(map(_that_may_lose, campaign.cells)) if profile.unclean else campaign.cells,
        topology=topology,
        workload=workload,
        nemesis=nemesis,
        settings=settings,
        swarm=None,
        profile=name,
        timeouts_s=timeouts_s,
    )
    return _with_own_features(made, campaign, seed, profile) if is_own else made


def _that_may_lose(cell: model.Cell) -> model.Cell:
    """A cell that must pass, with the promise that unclean elections leave: a run may lose what was acknowledged, and
    clients may see that, but replicas agree, the oracles find nothing, and a record has one offset."""
    return replace(cell, expect=UNCLEAN) if cell.expect == Expectation() else cell


def is_own_broker(system: model.SystemUnderTest) -> bool:
    """Whether a campaign tests our own broker in its usual roles. More of it is drawn than its ranges."""
    return system == model.SystemUnderTest()


def _with_own_features(drawn: model.Campaign, campaign: model.Campaign, seed: int, profile: Profile) -> model.Campaign:
    """A draw of our own broker with what depends on its faults: replicas in sync, groups, tiered storage, and one
    broker that differs."""
    workload, nemesis, checks, common = drawn.workload, drawn.nemesis, drawn.checks, drawn.settings[ROLE].common
    common = {**_in_sync(Random(f"{seed}/in-sync"), workload.replication_factor, profile, nemesis, common), **common}
    if workload.kind == GROUP:
        common = {**_of_groups(Random(f"{seed}/groups")), **common}
    one = _of_one_file(Random(f"{seed}/one-file"), drawn.topology.nodes, common)
    tiering = Random(f"{seed}/tiered")
    if store_faults := _store_faults(tiering, campaign.nemesis.faults, profile, nemesis, workload):
        nemesis = structs.replace(nemesis, faults=(*nemesis.faults, *store_faults))
        topic = _tiered_topic(tiering, _bytes_of_partition(workload), workload.topic_settings)
        workload = structs.replace(workload, topic_settings={**topic, **campaign.workload.topic_settings})
        common = {**_tiered(tiering, drawn.topology.nodes), **common}
        if checks.min_remote_segments is None:
            # Faults can prevent that a segment becomes complete. The replicas then have all records.
            checks = structs.replace(checks, min_remote_segments=0)
    settings = Settings(common, {**one, **drawn.settings[ROLE].per_node})
    return replace(
        drawn, workload=workload, nemesis=nemesis, checks=checks, settings={**drawn.settings, ROLE: settings}
    )


def must_be_apart(campaign: model.Campaign) -> bool:
    """Whether faults of a drawn campaign may each take a disk, or what is not flushed: two of them must not meet."""
    return _costs_a_disk(campaign.nemesis.faults, _flushes(campaign.settings[ROLE].common))


def _flushes(common: Mapping[str, str]) -> bool:
    return common.get(FLUSH) == "1"


def _costs_a_disk(faults: Sequence[str], flushes: bool) -> bool:
    lost = {Damage.DISK} if flushes else {Damage.DISK, Damage.UNSYNCED}
    return any(lost & KINDS[name].destroys for name in faults)


def _profile(chance: Random, campaign: model.Campaign, swarm: model.Swarm) -> str:
    """The name of a profile. Each draws by its weight, and the first that suits the campaign is used: the others' draws
    do not depend on it."""
    order = sorted(PROFILES, key=lambda name: chance.expovariate(PROFILES[name].weight))
    suitable = suitable_profiles(
        swarm, campaign.nemesis.faults, campaign.workload.kind, is_own=is_own_broker(campaign.system)
    )
    return next(name for name in order if name in suitable)


def suitable_profiles(swarm: model.Swarm, faults: Sequence[str], kind: str, *, is_own: bool) -> list[str]:
    """Those profiles of a swarm that suit its system (`is_own`: our own broker), its ranges, its kinds of fault and its
    kind of workload."""
    return [name for name in swarm.profiles if _suits(PROFILES[name], swarm, faults, kind, is_own=is_own)]


def _suits(profile: Profile, swarm: model.Swarm, faults: Sequence[str], kind: str, *, is_own: bool) -> bool:
    return (
        _shared(profile.nodes, swarm.nodes) is not None
        and (not is_own or _shared(profile.voters, swarm.voters) is not None)
        and (is_own or (profile.flushes and profile.administered < 1 and not profile.unclean))
        and profile.kind in ("", kind, *((LOG,) if kind == TIERED else ()))
        and (not profile.meets or not set(profile.meets).isdisjoint(faults))
        and (profile.tiered < 1 or any(_OF_STORE & KINDS[name].needs for name in faults))
    )


def _shared(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    """The numbers that two ranges have in common."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


def faults_of(faults: Sequence[str], nodes: int, replication_factor: int, *, flushes: bool = True) -> list[str]:
    """The kinds of fault that a cluster of this size can have without breaking its promises, with or without tiered
    storage. `flushes`: whether a record is on disk before it counts. A draw is possible only if the smallest cluster,
    with one replica per partition, has some."""
    losses = _LOSSES if flushes else _LOSSES | {Damage.UNSYNCED}
    return [
        name
        for name in faults
        if (nodes > 1 or not KINDS[name].needs & _ALONE)
        and (replication_factor > 2 or not losses & KINDS[name].destroys)
        and (flushes or name != _ALL_AT_ONCE)
        and Damage.NEWER_STATE not in KINDS[name].destroys
        and not _OF_STORE & KINDS[name].needs
    ]


def _topology(chance: Random, given: model.Topology, profile: Profile, swarm: model.Swarm) -> model.Topology:
    # Three is the most common size, and the one with the narrowest majorities.
    least, most = _shared(profile.nodes, swarm.nodes) or swarm.nodes
    nodes = 3 if chance.random() < 0.4 and least <= 3 <= most else chance.randint(least, most)
    filesystem = chance.choice((*model.FILESYSTEMS, model.STRICT))
    # A real disk has the filesystem that the machine was checked for.
    return structs.replace(given, nodes=nodes, filesystem=filesystem if given.world == SIMULATION else given.filesystem)


def _workload(
    chance: Random, clients: Random, given: Workload, profile: Profile, swarm: model.Swarm, nodes: int, is_own: bool
) -> Workload:
    factor = min(nodes, chance.choice(profile.factors))
    drawn: dict[str, int | float | str] = {
        "producers": chance.randint(1, 4),
        "consumers": chance.randint(1, 2),
        "record_bytes": round(_even(chance, *profile.record_bytes)),
        **_of_clients(clients),
    }
    partitions, rate = chance.randint(1, MOST_PARTITIONS), round(_even(chance, *swarm.rate))
    duration_s = float(round(chance.uniform(*swarm.duration_s)))
    if clients.random() < DELETING_SHARE and not profile.unclean:
        drawn["deletes_every_s"] = round(duration_s * clients.uniform(*DELETES_EVERY), 3)
    # Workload kinds share some of these parameters; each has those that its clients support.
    parameters = {key: drawn.get(key, value) for key, value in given.parameters.items()}
    return structs.replace(
        given,
        partitions=partitions if WORKLOADS[given.kind].partitioned else given.partitions,
        replication_factor=factor if is_own else given.replication_factor,
        rate=rate,
        duration_s=duration_s,
        parameters=parameters,
    )


def _administered(chance: Random, workload: Workload, profile: Profile) -> Workload:
    """The workload with an administrator in a share of the runs, if its kind has one."""
    key = "administers_every_s"
    if key not in workload.parameters or chance.random() >= profile.administered:
        return workload
    every_s = round(workload.duration_s * chance.uniform(*ADMINISTERS_EVERY), 3)
    return structs.replace(workload, parameters={**workload.parameters, key: every_s})


def _retaining(chance: Random, workload: Workload, profile: Profile) -> Workload:
    """The workload with a retention of its topic in a share of the runs, by time or by size. The kind `group` has none:
    its records may not be skipped."""
    written = _bytes_of_partition(workload)
    if workload.kind == GROUP or chance.random() >= profile.retaining:
        return workload
    by_time = {"retention.ms": str(round(1000 * _even(chance, *RETENTION_S)))}
    by_size = {"retention.bytes": str(round(written * chance.uniform(*RETAINED)))}
    segment = max(LEAST_SEGMENT, round(written / FEWEST_SEGMENTS / 4))
    drawn = {"segment.bytes": str(round(_even(chance, LEAST_SEGMENT, 4 * segment)))}
    topic = {**drawn, **(by_time if chance.random() < 0.5 else by_size), **workload.topic_settings}
    return structs.replace(workload, topic_settings=topic)


def _retains(workload: Workload) -> bool:
    """Whether records of the topic expire."""
    return any(workload.topic_settings.get(key, "-1") != "-1" for key in ("retention.ms", "retention.bytes"))


def _of_clients(chance: Random) -> dict[str, int | float | str]:
    """Parameters of clients: how they send, and how many share a topic."""
    return {
        "idempotent": chance.random() < 0.4,
        "compression": chance.choice(COMPRESSION.choices) if chance.random() < 0.5 else "none",
        "members": chance.randint(1, 5),
        _MEMBER_SESSION_KEY: round(chance.uniform(LEAST_SESSION_S, 2 * LEAST_SESSION_S), 3),
    }


def _of_objects(chance: Random, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a workload, with the numbers of its clients and objects."""
    drawn = {"clients": chance.randint(2, MOST_CLIENTS), "keys": chance.randint(1, MOST_KEYS)}
    return {key: drawn.get(key, value) for key, value in given.items()}


def _jumping(chance: Random, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a workload, with the share of jumps if its consumers jump."""
    return {key: round(_even(chance, *JUMPS_SHARE), 4) if key == "jumps_share" else given[key] for key in given}


def replicas_of(workload: Workload, nodes: int) -> int:
    """How many nodes have a copy of the data; without partitions: all."""
    return workload.replication_factor if WORKLOADS[workload.kind].partitioned else nodes


def _nemesis(
    chance: Random,
    given: model.NemesisSettings,
    profile: Profile,
    nodes: int,
    workload: Workload,
    timeouts_s: Mapping[str, float],
    *,
    flushes: bool,
    may_overlap: bool,
) -> model.NemesisSettings:
    possible = faults_of(given.faults, nodes, replicas_of(workload, nodes), flushes=flushes)
    ordinary = [name for name in possible if not _costs_a_disk([name], flushes)]
    first = chance.choice([name for name in possible if name in profile.meets] or ordinary or possible)
    others = [name for name in possible if name in profile.beside] if profile.beside else ordinary
    others = [name for name in others if name != first]
    order = [first, *chance.sample(others, len(others))]
    wanted = chance.randint(1, min(MOST_KINDS, len(order)))
    intensity = _even(chance, 0.3, 3.0)  # seconds: a typical pause
    interval_s = (round(0.2 * intensity, 3), round(2 * intensity, 3))
    length = timeouts_s[chance.choice([name for name in profile.lengths if name in timeouts_s] or list(timeouts_s))]
    duration_s = (round(LENGTHS[0] * length, 3), round(LENGTHS[1] * length, 3))
    overlap = chance.random() < 0.4 and may_overlap
    quiet_s = tuple(_quiet(chance, workload.duration_s))
    if _costs_a_disk(order, flushes):
        rest_s = REST_S + sum(timeouts_s[name] for name in timeouts_s if name != MEMBER_SESSION)
        interval_s, overlap = (round(rest_s, 3), round(rest_s + interval_s[1], 3)), False
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


def _timeouts_s(
    declared: Mapping[str, Draws], settings: Mapping[str, Settings], workload: Workload
) -> Mapping[str, float]:
    """The drawn time-outs by name, in seconds: of the system, of our own broker's leases, and of members of a group."""
    timeouts_s = {
        name: float(settings[role].common[key]) * draws.timeout_unit_s
        for role, draws in declared.items()
        for name, key in draws.timeouts.items()
    }
    if _LEASE in settings.get(ROLE, Settings()).common:
        timeouts_s[LEASE] = int(settings[ROLE].common[_LEASE]) / 1000
    if _MEMBER_SESSION_KEY in workload.parameters:
        timeouts_s[MEMBER_SESSION] = float(workload.parameters[_MEMBER_SESSION_KEY])
    return {name: round(seconds, 6) for name, seconds in timeouts_s.items()}


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


def _in_ranges(chance: Random, draws: Draws, profile: str) -> dict[str, str]:
    """Values of settings between their bounds in a profile, as texts."""
    narrowed = draws.profiles.get(profile, {})
    return {
        key: as_text(_even(chance, *(bounds := narrowed.get(key, usual))), bounds)
        for key, usual in draws.ranges.items()
    }


def _knobs(chance: Random, draws: Draws, profile: str) -> dict[str, str]:
    """Values of a few knobs, as texts: most runs have some, and few have the same. A range of a profile has
    precedence: its runs have a value in it."""
    narrowed = draws.profiles.get(profile, {})
    drawn = {
        key: (chance.random(), as_text(_even(chance, *(bounds := narrowed.get(key, usual))), bounds))
        for key, usual in draws.knobs.items()
    }
    return {
        key: value
        for key, (luck, value) in drawn.items()
        if (key not in draws.ranges if key in narrowed else luck < KNOBS_SHARE)
    }


def as_text(number: float, bounds: tuple[float, float]) -> str:
    """A number as a setting: a whole one if both bounds are whole."""
    low, high = bounds
    is_whole = low == int(low) and high == int(high)
    return str(round(number)) if is_whole else str(min(max(round(number, 6), low), high))


def _of_own_broker(
    chance: Random,
    ranged: Mapping[str, str],
    name: str,
    topology: model.Topology,
    profile: Profile,
    swarm: model.Swarm,
    draws: Draws,
) -> dict[str, str]:
    """A broker's properties with those that depend on others. If the profile flushes, a write is on the disks of all
    replicas that count it before it is acknowledged; else it is in their page caches."""
    session, lag, segment = (int(ranged[key]) for key in (_SESSION, _LAG, _SEGMENT))
    drawn = {
        "quorum.voters": min(topology.nodes, chance.randint(*_shared(profile.voters, swarm.voters) or swarm.voters)),
        "offsets.topic.replication.factor": min(3, topology.nodes),
        "broker.heartbeat.interval.ms": max(50, session // chance.randint(6, 12)),
        _LEASE: round(session * chance.uniform(*SAFE_LEASE)),
        _FETCH_WAIT: min(lag // 2, int(ranged[_FETCH_WAIT])),
        _SEGMENT: segment if _SEGMENT in draws.profiles.get(name, {}) else chance.choice((segment, 1 << 30)),
        **({FLUSH: 1} if profile.flushes else {}),
        **({_UNCLEAN: "true"} if profile.unclean else {}),
    }
    return {**ranged, **{key: str(value) for key, value in drawn.items()}}


def _in_sync(
    chance: Random, replication_factor: int, profile: Profile, nemesis: model.NemesisSettings, common: Mapping[str, str]
) -> Mapping[str, str]:
    """How many disks have a write before it counts: one is enough if no fault takes data from a disk."""
    most = max(1, replication_factor - 1)
    losses = _LOSSES if _flushes(common) else _LOSSES | {Damage.UNSYNCED}
    is_lossy = any(losses & KINDS[name].destroys for name in nemesis.faults)
    return {"min.insync.replicas": str(chance.randint(most if is_lossy else min(most, profile.least_in_sync), most))}


def _store_faults(
    chance: Random, given: Sequence[str], profile: Profile, nemesis: model.NemesisSettings, workload: Workload
) -> tuple[str, ...]:
    """The faults of the object store, in a share of the runs; none: the run has no tiered storage. What a seed draws
    otherwise does not depend on them."""
    removes = bool(workload.parameters.get("deletes_every_s")) or _retains(workload)
    kinds = [
        name
        for name in given
        if _OF_STORE & KINDS[name].needs
        and not (removes and _AT_REST in KINDS[name].needs)  # it needs an object, and all may be gone
    ]
    if not kinds or workload.kind == GROUP or chance.random() >= profile.tiered:
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


def _tiered_topic(chance: Random, partition_bytes: float, given: Mapping[str, str]) -> Mapping[str, str]:
    """Settings of a topic in remote storage. Segments are small enough that some are complete: only these are uploaded.
    `given`: the retention of the whole log, which keeps as much as the local one."""
    segment = min(round(_even(chance, LEAST_SEGMENT, 32_768)), round(partition_bytes / FEWEST_SEGMENTS))
    local, total = round(segment * chance.uniform(0, 3)), int(given.get("retention.bytes", "-1"))
    return {
        "remote.storage.enable": "true",
        "segment.bytes": str(segment),
        "retention.ms": given.get("retention.ms", "-1"),
        "retention.bytes": str(total),
        "local.retention.ms": given.get("retention.ms", "-1"),
        "local.retention.bytes": str(local if total < 0 else min(local, total)),
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
        **{key: chance.choice(("true", "true", "true", "false")) for key in switches},
    }


def _of_one_file(chance: Random, nodes: int, common: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Occasionally one broker's configuration has longer times, as during a rolling change."""
    if nodes == 1 or chance.random() < 0.75:
        return {}
    usual = int(common[_SESSION])
    session = round(max(usual, min(LONGEST_SESSION_MS, usual * chance.uniform(1.2, 4))))
    times = {_SESSION: session, _LEASE: round(session * chance.uniform(*SAFE_LEASE))}
    return {f"n{chance.randint(1, nodes)}": {key: str(value) for key, value in times.items()}}


def _of_groups(chance: Random) -> Mapping[str, str]:
    """Properties of group coordinators, as texts; their log is small enough to be compacted sometimes."""
    drawn = {
        "offsets.topic.num.partitions": chance.randint(1, 4),
        "offsets.topic.segment.bytes": round(_even(chance, 4_096, 1 << 16)),
        "offsets.commit.timeout.ms": round(_even(chance, 300, 5_000)),
        "group.initial.rebalance.delay.ms": round(_even(chance, 1, 3_000)),
        "log.cleaner.backoff.ms": round(_even(chance, 100, 5_000)),
        "log.cleaner.min.cleanable.ratio": round(chance.uniform(0.05, 0.5), 3),
    }
    return {key: str(value) for key, value in drawn.items()}


def _even(chance: Random, least: float, most: float) -> float:
    """A number whose logarithm is evenly distributed between the bounds."""
    return math.exp(chance.uniform(math.log(least), math.log(most)))
