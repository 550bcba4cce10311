"""Builds the content of `run.toml` for a run that is about to be made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrator.campaign.description import RunWorld, described, settled
from orchestrator.campaign.plan import PlannedRun
from orchestrator.running.versions import versions
from orchestrator.worlds.base import World
from systems import Deployed


def describe(planned: PlannedRun, world: World, deployed: Deployed, reason: str) -> dict[str, Any]:
    """The content of `run.toml`. `reason`: why this world was chosen."""
    campaign = planned.campaign
    around = RunWorld(
        world=world.name,
        reason=reason,
        time_scale=world.time_scale,
        limits=tuple(world.limits),
        left_out=campaign.nemesis.left_out(world.capabilities),
    )
    common = settled(campaign, planned.cell, deployed, world.time_scale)
    content = described(common, run=planned.id, seed=planned.seed, replay=planned.replay, around=around)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    defaults = {role: dict(deployed.system.defaults(role)) for role in dict.fromkeys(deployed.roles)}
    return {**content, "started": started, "versions": versions(), "defaults": defaults}
