"""`run.toml`: one cell of the matrix as it was really run, so that the directory explains itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from history import DERIVED, VALUE_FIRST
from orchestrator.campaign.plan import PlannedRun, invocation_of
from orchestrator.campaign.stake import stake_of
from orchestrator.campaign.systems import client_nodes
from orchestrator.running.fleet import expected_clients
from orchestrator.running.versions import versions
from orchestrator.worlds.base import World
from systems import Deployed
from workloads.kinds import KINDS


def describe(planned: PlannedRun, world: World, deployed: Deployed, reason: str) -> dict[str, Any]:
    """The content of `run.toml`. `reason`: why this world was chosen.

    What is required stands there as the campaign has it. Optional faults that the world cannot inflict are not
    scheduled; the limits of the verdict say so.
    """
    campaign, cell, promises = planned.campaign, planned.cell, deployed.system.description.promises
    left_out, stake = campaign.nemesis.left_out(world.capabilities), stake_of(campaign)
    limits = [*world.limits, f"the {world.name} world was chosen because {reason}"]
    if left_out:
        limits.append(f"not exercised in the {world.name} world: {', '.join(sorted(left_out))}")
    limits += stake.limits
    return {
        "run": planned.id,
        "campaign": campaign.name,
        "invocation": invocation_of(planned.id),
        "cell": cell.name,
        "seed": planned.seed,
        "mutants": cell.mutants,
        "world": world.name,
        "world_reason": reason,
        "time_scale": world.time_scale,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "replay": planned.replay,
        "limits": limits,
        "expect": {"verdict": cell.expect.verdict, "anomaly": cell.expect.anomaly},
        "checks": {
            "upper_bound": campaign.checks.upper_bound,
            "min_ok": stake.min_ok,
            "min_queries": stake.min_queries,
            "min_share": stake.min_share,
            "required_faults": list(campaign.checks.required_faults),
            **({} if campaign.checks.converge_s is None else {"converge_s": campaign.checks.converge_s}),
        },
        "topology": {
            "nodes": campaign.topology.nodes,
            "filesystem": campaign.topology.filesystem,
            "inventory": campaign.topology.inventory,
        },
        "system": _system(deployed, world),
        "replicas": {"format": promises.replicas, "records": _records(planned)},
        "metadata": {"format": promises.metadata, "traced": promises.events},
        "plan": {"clients": list(expected_clients(campaign.workload)), **stake.to_toml()},
        "workload": _workload(planned, deployed),
        "nemesis": _nemesis(planned, world),
        "settings": {role: {**settings.common, **settings.per_node} for role, settings in deployed.settings.items()},
        "versions": versions(),
    }


def _system(deployed: Deployed, world: World) -> dict[str, Any]:
    return {
        "name": deployed.system.name,
        "title": deployed.system.description.title,
        "version": deployed.system.version,
        "roles": {node.name: deployed.roles[node.id - 1] for node in world.nodes},
    }


def _records(planned: PlannedRun) -> str:
    """What records are made of: our clients derive every byte, those that users bring need not."""
    return VALUE_FIRST if KINDS[planned.campaign.workload.kind].own_client else DERIVED


def _workload(planned: PlannedRun, deployed: Deployed) -> dict[str, Any]:
    workload, serving = planned.campaign.workload, client_nodes(planned.campaign, deployed.system)
    kind = KINDS[workload.kind]
    content: dict[str, Any] = {"kind": kind.name, "judge": kind.judge}
    if kind.partitioned:
        off = workload.placement == "off-controller"
        content |= {
            "topic": workload.topic,
            "partitions": workload.partitions,
            "placement": "assigned" if workload.assignment else workload.placement,
            "assignment": None if off else [list(ids) for ids in workload.assign(serving)],
        }
    content |= {"rate": workload.rate, "duration_s": workload.duration_s, "operations": workload.operations}
    return content | dict(workload.parameters)


def _nemesis(planned: PlannedRun, world: World) -> dict[str, Any]:
    nemesis = planned.campaign.nemesis
    content: dict[str, Any] = {"kind": nemesis.kind}
    if nemesis.kind == "random":
        content["faults"] = list(nemesis.scheduled(world.capabilities))
        content["left_out"] = list(nemesis.left_out(world.capabilities))
        content["interval_s"], content["duration_s"] = nemesis.interval_s, nemesis.duration_s
        content["overlap"], content["quiet_s"] = nemesis.overlap, [list(each) for each in nemesis.quiet_s]
    if nemesis.kind == "steps":
        content["steps"] = [step.title + (f" - {step.why}" if step.why else "") for step in nemesis.steps]
    return content
