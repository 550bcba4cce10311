"""Swarm: the values that runs draw from their seeds, and the resulting campaigns."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from history.damage import Damage
from nemeses import KINDS, plan_schedule
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import load, parse
from orchestrator.campaign.plan import expand
from orchestrator.campaign.profiles import PROFILES
from orchestrator.campaign.swarm import draw, must_be_apart
from orchestrator.running.runner import require_faults
from orchestrator.worlds.selection import lab_named
from systems import InputError
from systems.toml_tables import TomlSource

SWARM = Path(__file__).resolve().parents[2] / "campaigns" / "swarm.toml"
SEEDS = range(300)
OF_STORE = frozenset({"objects", "store"})


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return load(SWARM)


@pytest.fixture(scope="module")
def drawn(campaign: Campaign) -> list[Campaign]:
    return [draw(campaign, seed) for seed in SEEDS]


def settings(campaign: Campaign) -> dict[str, str]:
    return dict(campaign.settings["broker"].common)


def test_the_same_seed_draws_the_same(campaign: Campaign, drawn: list[Campaign]) -> None:
    assert [draw(campaign, seed) for seed in SEEDS] == drawn
    assert len({str(each) for each in drawn}) == len(drawn), "and another one another cluster"


def test_runs_are_planned_as_they_are_drawn(campaign: Campaign, drawn: list[Campaign]) -> None:
    planned = expand(campaign, "stamp", seeds=[0, 7])
    assert [run.campaign for run in planned] == [drawn[0], drawn[7]]


def test_a_campaign_without_drawn_parts_is_unchanged(campaign: Campaign) -> None:
    fixed = draw(campaign, 1)
    assert draw(fixed, 2) == fixed


def test_every_size_and_every_kind_is_drawn(campaign: Campaign, drawn: list[Campaign]) -> None:
    assert {each.topology.nodes for each in drawn} == set(range(1, 8))
    assert {settings(each)["quorum.voters"] for each in drawn} == {"1", "2", "3", "4", "5"}
    assert {each.topology.filesystem for each in drawn} == {"ext4", "xfs", "strict"}
    assert {kind for each in drawn for kind in each.nemesis.faults} == set(campaign.nemesis.faults)
    assert {each.nemesis.overlap for each in drawn} == {True, False}
    assert any(each.nemesis.quiet_s for each in drawn)
    of_three = [each for each in drawn if each.workload.replication_factor == 3]
    assert {settings(each)["min.insync.replicas"] for each in of_three} == {"1", "2"}
    assert {len(each.settings["broker"].per_node) for each in drawn} == {0, 1}


def test_a_run_has_few_of_the_knobs(campaign: Campaign, drawn: list[Campaign]) -> None:
    draws = campaign.draws["broker"]
    rare = [
        {key for key, (low, high) in draws.knobs.items() if low <= int(settings(each).get(key, -1)) <= high}
        - draws.ranges.keys()
        for each in drawn
    ]
    assert set().union(*rare) == draws.knobs.keys() - draws.ranges.keys(), "each is drawn"
    assert 0.1 < sum(map(len, rare)) / len(rare) / len(set().union(*rare)) < 0.3


def lost_by(campaign: Campaign) -> frozenset[Damage]:
    """The damage of the drawn faults."""
    return frozenset[Damage]().union(*(KINDS[kind].destroys for kind in campaign.nemesis.faults))


def test_a_drawn_campaign_supports_its_promises(drawn: list[Campaign]) -> None:
    for each in drawn:
        given, workload = settings(each), each.workload
        assert 1 <= int(given["quorum.voters"]) <= each.topology.nodes
        assert 1 <= workload.replication_factor <= each.topology.nodes
        assert int(given["min.insync.replicas"]) <= workload.replication_factor
        for node in ("", *each.settings["broker"].per_node):
            its = each.settings["broker"].of(node)
            assert int(its["broker.lease.ms"]) * 1.1 < int(its["broker.session.timeout.ms"]) * 0.9, "on drifting clocks"
            assert int(its["broker.heartbeat.interval.ms"]) < int(its["broker.lease.ms"])
        if each.topology.nodes == 1:
            assert not any(KINDS[kind].takes == "groups" for kind in each.nemesis.faults)


def test_other_disks_have_each_record_that_the_drawn_faults_lose(drawn: list[Campaign]) -> None:
    for each in drawn:
        given, lost = settings(each), lost_by(each)
        assert Damage.NEWER_STATE not in lost, "a voter would vote again"
        unsynced = set() if given.get("log.flush.interval.messages") == "1" else {Damage.UNSYNCED}
        if lost & ({Damage.SYNCED, Damage.DISK} | unsynced):
            assert (each.workload.replication_factor, given["min.insync.replicas"]) == (3, "2")
        assert must_be_apart(each) == bool(lost & ({Damage.DISK} | unsynced))
        if must_be_apart(each):
            times = ("broker.session.timeout.ms", "replica.lag.time.max.ms", "quorum.election.timeout.ms")
            assert each.nemesis.interval_s[0] > sum(int(given[key]) for key in times) / 1000
            assert not each.nemesis.overlap
        if unsynced:
            assert "power-loss-all" not in each.nemesis.faults, "no page cache would be left"


@pytest.mark.parametrize("name", PROFILES)
def test_runs_of_a_profile_have_its_values(name: str) -> None:
    profile = PROFILES[name]
    file = SWARM.with_name("swarm-groups.toml" if profile.kind == "group" else "swarm.toml")
    text = file.read_text().replace("[swarm]", f"[swarm]\nprofiles = {json.dumps([name])}")
    alone = parse(TomlSource(file.name, text), file)
    for seed in range(50):
        each = draw(alone, seed)
        given = settings(each)
        assert each.profile == name
        assert profile.nodes[0] <= each.topology.nodes <= profile.nodes[1]
        assert int(given["quorum.voters"]) >= min(profile.voters[0], each.topology.nodes)
        assert each.workload.replication_factor in (*profile.factors, each.topology.nodes)
        assert not profile.meets or not set(profile.meets).isdisjoint(each.nemesis.faults)
        assert ("log.flush.interval.messages" in given) == profile.flushes
        bounds = {"record_bytes": profile.record_bytes, **alone.draws["broker"].profiles.get(name, {})}
        assert given.keys() >= alone.draws["broker"].profiles.get(name, {}).keys(), "also of a knob"
        for key, (low, high) in bounds.items():
            drawn = each.workload.parameters.get(key, given.get(key))
            assert drawn is None or low <= float(drawn) <= high


def test_rare_meetings_are_drawn_often(drawn: list[Campaign]) -> None:
    def share(is_met: Callable[[Campaign], bool]) -> float:
        return sum(map(is_met, drawn)) / len(drawn)

    def is_outlasted(each: Campaign) -> bool:
        return each.nemesis.duration_s[1] * 1000 > 1.5 * int(settings(each)["broker.session.timeout.ms"])

    def loses_power(each: Campaign) -> bool:
        return not {"power-loss", "power-loss-all"}.isdisjoint(each.nemesis.faults)

    assert share(lambda each: int(settings(each)["quorum.voters"]) >= 3) > 0.6
    assert share(lambda each: each.workload.replication_factor == 1) < 0.2
    assert share(is_outlasted) > 0.4
    assert share(lambda each: loses_power(each) and settings(each)["min.insync.replicas"] == "2") > 0.2


def is_tiered(campaign: Campaign) -> bool:
    return settings(campaign).get("remote.log.storage.system.enable") == "true"


def test_some_clusters_have_tiered_storage_and_only_these_have_faults_of_the_store(drawn: list[Campaign]) -> None:
    tiered = [each for each in drawn if is_tiered(each)]
    assert 0.15 < len(tiered) / len(drawn) < 0.4
    for each in drawn:
        of_store = [kind for kind in each.nemesis.faults if OF_STORE & KINDS[kind].needs]
        assert (
            bool(of_store) == is_tiered(each) == (each.workload.topic_settings.get("remote.storage.enable") == "true")
        )
    for each in tiered:
        topic, given = each.workload.topic_settings, settings(each)
        assert 4_096 <= int(topic["segment.bytes"]) <= 65_536
        for whole in (key for key in ("retention.ms", "retention.bytes") if topic[key] != "-1"):
            assert 0 <= int(topic[f"local.{whole}"]) <= int(topic[whole])
        factor = int(given["rlmm.config.remote.log.metadata.topic.replication.factor"])
        assert each.workload.replication_factor <= factor <= each.topology.nodes
        assert each.checks.min_remote_segments == 0, "its faults may prevent that a segment becomes complete"
    assert {settings(each)["follower.fetch.last.tiered.offset.enable"] for each in tiered} == {"true", "false"}


def test_some_topics_let_records_expire_by_time_or_by_size(drawn: list[Campaign]) -> None:
    limits = [
        [key for key in ("retention.ms", "retention.bytes") if each.workload.topic_settings.get(key, "-1") != "-1"]
        for each in drawn
    ]
    assert max(map(len, limits)) == 1, "each start of a log has one reason"
    assert {key for keys in limits for key in keys} == {"retention.ms", "retention.bytes"}
    assert 0.08 < sum(map(len, limits)) / len(drawn) < 0.25
    for each, keys in zip(drawn, limits, strict=True):
        if keys:
            assert int(settings(each)["log.retention.check.interval.ms"]) <= 5_000
            assert "store" not in {need for kind in each.nemesis.faults for need in KINDS[kind].needs}


def test_tiered_storage_leaves_the_other_draws_of_a_seed_unchanged(campaign: Campaign, drawn: list[Campaign]) -> None:
    local = [kind for kind in campaign.nemesis.faults if not OF_STORE & KINDS[kind].needs]
    without = replace(campaign, nemesis=structs.replace(campaign.nemesis, faults=tuple(local)))
    for seed, each in enumerate(drawn):
        if PROFILES[each.profile].tiered == 1:  # it suits only campaigns with faults of the object store
            continue
        plain = draw(without, seed)
        assert each.topology == plain.topology
        assert each.nemesis.faults[: len(plain.nemesis.faults)] == plain.nemesis.faults
        assert structs.replace(each.nemesis, faults=()) == structs.replace(plain.nemesis, faults=())
        assert structs.replace(each.workload, topic_settings={}) == structs.replace(plain.workload, topic_settings={})
        assert settings(plain).items() <= settings(each).items()


def test_a_drawn_schedule_is_valid(drawn: list[Campaign]) -> None:
    for seed, each in enumerate(drawn):
        nemesis = each.nemesis
        schedule = plan_schedule(
            seed,
            nemesis.faults,
            total_s=each.workload.duration_s,
            interval_s=nemesis.interval_s,
            duration_s=nemesis.duration_s,
            overlap=nemesis.overlap,
        ).without(nemesis.quiet_s)
        assert {plan.kind for plan in schedule} == set(nemesis.faults)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[topology]\nfilesystem = "strict"', "only world = \"simulation\" has 'strict'"),
        ('[broker]\n"quorum.voters" = 0', "0 is not a number from 1"),
        ('[broker]\n"quorum.voters" = "n1"', "'n1' is not a number from 1"),
    ],
)
def test_drawable_keys_can_be_given_and_others_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse(TomlSource("c.toml", f'name = "c"\n{text}'), Path("c.toml"))
    given = parse(
        TomlSource(
            "c.toml",
            'name = "c"\n[topology]\nworld = "simulation"\nfilesystem = "strict"\n[broker]\n"quorum.voters" = 2',
        ),
        Path("c.toml"),
    )
    assert (given.topology.filesystem, settings(given)) == ("strict", {"quorum.voters": "2"})
    with pytest.raises(InputError, match="make it one of ext4, xfs"):
        require_faults(given, lab_named("process"), "it was asked for")


def test_values_of_the_file_are_not_drawn() -> None:
    fixed = SWARM.read_text().replace("[workload]", '[broker]\n"min.insync.replicas" = 1\n[workload]')
    campaign = parse(TomlSource("swarm.toml", fixed), SWARM)
    assert {settings(draw(campaign, seed))["min.insync.replicas"] for seed in range(20)} == {"1"}


def with_faults(least: int, *faults: str) -> str:
    """The swarm of these kinds alone, with at least this number of nodes."""
    text = SWARM.read_text().replace("nodes = [1, 7]", f"nodes = [{least}, 7]")
    begin, end = text.index("faults = ["), text.index("interval_s")
    return text[:begin] + f"faults = {json.dumps(faults)}\n" + text[end:]


@pytest.mark.parametrize(
    ("least", "faults"),
    [(1, ["partition-one"]), (1, ["partition-one", "disk-flip"]), (2, ["disk-flip"]), (7, ["disk-flip"])],
)
def test_a_swarm_without_a_fault_for_its_smallest_cluster_is_refused(least: int, faults: list[str]) -> None:
    with pytest.raises(InputError, match=rf"^swarm.toml:\d+: \[nemesis\] faults: a cluster of {least} .* add one"):
        parse(TomlSource("swarm.toml", with_faults(least, *faults)), SWARM)


@pytest.mark.parametrize(
    ("least", "faults"), [(1, ["kill"]), (1, ["partition-one", "disk-flip", "pause"]), (2, ["partition-one"])]
)
def test_a_swarm_of_few_kinds_is_drawn_from_every_seed(least: int, faults: list[str]) -> None:
    campaign = parse(TomlSource("swarm.toml", with_faults(least, *faults)), SWARM)
    for seed in SEEDS:
        assert set(draw(campaign, seed).nemesis.faults) & set(faults)


@pytest.mark.parametrize(
    ("text", "instead", "complaint"),
    [
        ("nodes = 7", "nodes = 3", "the most that is drawn"),
        ("nodes = [1, 7]", "nodes = [0, 7]", "nodes: 0 is smaller than 1"),
        ("voters = [1, 5]", "voters = [1, 7]", "voters: 7 is larger than 5"),
        ("voters = [1, 5]", "voters = [1.5, 3]", "pair .low, high. of whole numbers"),
        ("rate = [20, 150]", "rate = [0, 150]", "rate: 0 is smaller than 0.1"),
        ("duration_s = [12, 40]", "duration_s = [1, 40]", "duration_s: 1 is smaller than 5"),
        ("rate = [20, 150]", "rate = [20, 1e7]", "rate: 1e\\+07 is larger than 1e\\+06"),
        ("duration_s = [12, 40]", "duration_s = [12, 1e6]", "duration_s: 1e\\+06 is larger than 10000"),
        ("[swarm]", "[swarm]\nzones = 3", "zones"),
        ("[swarm]", '[swarm]\nprofiles = ["rare"]', "profiles: 'rare' is not known"),
        ("[swarm]", '[swarm]\nprofiles = ["groups-in-motion"]', "profiles: none of these suits .* add 'anything'"),
        ("[swarm]", "[swarm]\nprofiles = []", "profiles: none of these suits"),
        ("converge_s = 120", "converge_s = 0", "converge_s"),
        ("converge_s = 120", 'required_faults = ["kill"]', "required_faults: each run of a .swarm. draws its faults"),
    ],
)
def test_a_swarm_that_cannot_be_is_refused(text: str, instead: str, complaint: str) -> None:
    given = SWARM.read_text()
    assert text in given
    with pytest.raises(InputError, match=complaint):
        parse(TomlSource("swarm.toml", given.replace(text, instead, 1)), SWARM)
