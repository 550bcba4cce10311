"""Builds `run.toml`: one cell as it is run, so that a run's directory is self-explanatory.

Nearly all of it follows from the plan. `RunWorld` is the world's part. The orchestrator adds the time of the run, the
versions and the system's defaults.

The configuration files that the run's nodes must have are patterns: the system's templates are filled for places whose
properties (address, directory, port) are marks, and a pattern has `*` in the place of a mark. Each configuration file
is in the run's evidence, and the checker `configuration` compares it.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict, replace

from analysis.evidence.run_toml import Checks
from history.record.values import DERIVED, VALUE_FIRST
from orchestrator.campaign.load_targets import stake_of
from orchestrator.campaign.model import Campaign, NemesisSettings
from orchestrator.campaign.plan import PlannedRun, invocation_of
from orchestrator.campaign.systems import client_nodes
from systems import Deployed
from systems.service import Place, shown_as
from workloads.kind import Workload
from workloads.kinds import KINDS

PROBE = "probe"


@dataclass(frozen=True)
class RunWorld:
    """The world of a run.

    `reason`: why it was chosen.
    `time_scale`: the factor by which its times are longer.
    `limits`: sentences about what a run there does not show.
    `left_out`: the optional kinds of fault that it cannot inject.
    """

    name: str
    reason: str
    time_scale: float = 1.0
    limits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def run_description(planned: PlannedRun, deployed: Deployed, world: RunWorld) -> dict[str, Any]:
    """The content of `run.toml` without time, versions and defaults.

    `settings` are the campaign's. `configuration` has them as the nodes get them, with the times of the world. Required
    faults are listed as in the campaign. Optional faults that the world cannot inject are not scheduled; the limits
    mention them. `fault_kinds` and `workloads` have the texts of the campaign's own kinds, by file."""
    campaign, cell = planned.campaign, planned.cell
    promises, stake = deployed.system.description.promises, stake_of(campaign)
    own_faults = dict(kind.source for kind in campaign.nemesis.own_kinds.values())
    return {
        "run": planned.id,
        "invocation": invocation_of(planned.id),
        "seed": planned.seed,
        "world": world.name,
        "world_reason": world.reason,
        "time_scale": world.time_scale,
        "replay": planned.replay,
        "campaign": campaign.name,
        "cell": cell.name,
        "mutants": list(cell.mutants),
        **({"profile": campaign.profile} if campaign.profile else {}),
        "limits": [*world.limits, *_limits_of_choice(world), *stake.limits],
        "expect": cell.expect.to_toml(),
        "checks": _checks(replace(campaign.checks, min_ok=stake.min_ok, min_queries=stake.min_queries)),
        "topology": {
            "nodes": campaign.topology.nodes,
            "filesystem": campaign.topology.filesystem,
            "inventory": campaign.topology.inventory,
        },
        "system": {
            "name": deployed.system.name,
            "title": deployed.system.description.title,
            "version": deployed.system.version,
            "roles": dict(zip(campaign.topology.names, deployed.roles, strict=True)),
        },
        "replicas": {
            "format": promises.replicas,
            "records": _records(campaign.workload),
            "sequences": promises.sequences,
        },
        "metadata": {"format": promises.metadata, "traced": promises.events},
        "plan": {"clients": list(expected_clients(campaign.workload)), **stake.to_toml()},
        "workload": _workload(campaign, deployed),
        "nemesis": _nemesis(campaign.nemesis, world.left_out),
        **({"checkers": dict(campaign.checkers)} if campaign.checkers else {}),
        **({"fault_kinds": own_faults} if own_faults else {}),
        **({"workloads": {source.file: source.text}} if (source := campaign.workload.source) else {}),
        **({"timeouts_s": dict(campaign.timeouts_s)} if campaign.profile else {}),
        "settings": {role: {**settings.common, **settings.per_node} for role, settings in deployed.settings.items()},
        "configuration": expected_files(deployed, world.time_scale),
    }


_OF_OWN_WORKLOADS: Final = ("use", "model", "initial", "allow", "prohibit", "consistency_model")


def _checks(checks: Checks) -> dict[str, Any]:
    """The table [checks]. It has the keys of own checkers and models only if the campaign uses them."""
    return {key: value for key, value in asdict(checks).items() if key not in _OF_OWN_WORKLOADS or value}


def _limits_of_choice(world: RunWorld) -> list[str]:
    """The limits that follow from the choice of the world."""
    limits = [f"the {world.name} world was chosen because {world.reason}"]
    if world.left_out:
        limits.append(f"not exercised in the {world.name} world: {', '.join(sorted(world.left_out))}")
    return limits


def expected_clients(workload: Workload) -> tuple[str, ...]:
    """The clients of every finished run of this workload: those under load, the probe, and the reader of everything.
    The steps of a script start further readers."""
    load = [planned.name for planned in KINDS[workload.kind].clients(workload.load)]
    return (*load, PROBE, reader_name(1))


def reader_name(number: int) -> str:
    return f"reader-{number}"


def _records(workload: Workload) -> str:
    """How records are made: built-in clients derive every byte, user-defined clients may not."""
    return VALUE_FIRST if KINDS[workload.kind].own_client else DERIVED


def _workload(campaign: Campaign, deployed: Deployed) -> dict[str, Any]:
    workload, serving = campaign.workload, client_nodes(campaign, deployed.system)
    kind = KINDS[workload.kind]
    content: dict[str, Any] = {"kind": workload.named, "judge": kind.judge}
    if kind.partitioned:
        off = workload.placement == "off-controller"
        content |= {
            "topic": workload.topic,
            "partitions": workload.partitions,
            "placement": "assigned" if workload.assignment else workload.placement,
            "topic_creation": workload.topic_creation,
            "topic_settings": dict(workload.topic_settings),
            "assignment": None if off else [list(ids) for ids in workload.assign(serving)],
        }
    content |= {"rate": workload.rate, "duration_s": workload.duration_s, "operations": workload.operations}
    return content | dict(workload.parameters)


def _nemesis(nemesis: NemesisSettings, left_out: Sequence[str]) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": nemesis.kind, **({"kinds": list(nemesis.kinds)} if nemesis.kinds else {})}
    if nemesis.kind == "random":
        content["faults"] = [kind for kind in nemesis.faults if kind not in left_out]
        content["left_out"] = list(left_out)
        content["interval_s"], content["duration_s"] = list(nemesis.interval_s), list(nemesis.duration_s)
        content["overlap"], content["quiet_s"] = nemesis.overlap, [list(each) for each in nemesis.quiet_s]
    if nemesis.kind == "schedule":
        content["faults"] = list(nemesis.faults)
        content["overlap"] = nemesis.overlap
        content["moments"] = [
            f"{moment.at_s:.3f} s: {moment.fault} {', '.join(moment.nodes) or moment.aim}" for moment in nemesis.moments
        ]
    if nemesis.kind == "steps":
        content["steps"] = [step.title + (f" - {step.why}" if step.why else "") for step in nemesis.steps]
    return content


_FIRST_PORT: Final = 47_311
_MARK: Final = re.compile(r"mark(?P<node>\d+)of(?P<what>[a-z]+)kram")


def _marked(number: int, ports: Mapping[str, int]) -> Place:
    """A place whose properties are marks. It has no files on this machine."""

    def mark(what: str) -> str:
        return f"mark{number}of{what}kram"

    paths = {f"{name}_dir": mark(name) for name in ("data", "etc", "var", "files", "shared")}
    programs = {"python": mark("python"), "python_path": mark("modules")}
    return Place(f"n{number}", number, mark("address"), ports, **paths, **programs, is_local=False)


def expected_files(deployed: Deployed, time_scale: float) -> dict[str, dict[str, list[str]]]:
    """By node and by the name of each configuration file in the evidence, its lines as glob patterns: `*` stands for
    what depends on the run's places and name. Times are those of a world with this scale. Raises `InputError` for a
    template that cannot be filled in here."""
    places = _places(deployed)
    unknown = _unknown(places)
    one, other = (
        dataclasses.replace(deployed, cluster_id=name) for name in ("one", "two")
    )  # what differs depends on the name
    found: dict[str, dict[str, list[str]]] = {}
    for place in places:
        others = other.configuration(place, places, time_scale)
        for path, text in one.configuration(place, places, time_scale).items():
            pairs = zip(text.splitlines(), others[path].splitlines(), strict=True)
            lines = [unknown.sub("*", _shared(*pair)) for pair in pairs]
            found.setdefault(place.name, {})[str(shown_as(Path(path)))] = lines
    return found


def _shared(line: str, other: str) -> str:
    """A glob pattern of two lines: of two that differ, at most the key that they set."""
    if line == other:
        return escape(line)
    key = "".join(line.partition("=")[:2])
    return f"{escape(key)}*" if other.startswith(key) else "*"


def _unknown(places: Sequence[Place]) -> re.Pattern[str]:
    """Finds what only a run's places settle: ports and marks."""
    ports = "|".join(str(port) for place in places for port in place.ports.values())
    return re.compile(f"{_MARK.pattern}|{ports}" if ports else _MARK.pattern)


def _places(deployed: Deployed) -> Sequence[Place]:
    places, port = [], _FIRST_PORT
    for number in range(1, len(deployed.roles) + 1):
        names = deployed.ports(number)
        places.append(_marked(number, {name: port + at for at, name in enumerate(names)}))
        port += len(names)
    return places
