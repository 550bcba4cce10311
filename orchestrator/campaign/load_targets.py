"""Computes the planned load of a campaign's runs, and the least load that a verdict needs."""

from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from analysis.evidence.run_toml import LEAST_SHARE
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.steps import ProduceStep, Step
from workloads.kinds import KINDS
from workloads.settings import ALL

LEAST_QUERIES_SHARE = 0.25
LONGEST_LOAD = 1.5
"""The longest load relative to the planned duration, while `operations` are not completed."""
PROBES = 20
"""The most operations per place outside of the load: the probe's and the final reads'."""


@dataclass(frozen=True)
class Stake:
    """`changes`, `queries`: planned operations of a run's load. `changes` are those that the system promises to keep;
    appends with acks other than -1 are not among them (`analysis.evidence.load` counts them separately). `min_ok`,
    `min_queries`: the least numbers that must be acknowledged and answered; `min_share`: the least share of the changes
    under load. `lacks`: phrases for what most campaigns have and this one does not."""

    changes: int
    queries: int
    min_ok: int
    min_queries: int
    min_share: float
    lacks: tuple[str, ...]

    @property
    def limits(self) -> tuple[str, ...]:
        """Sentences for the limits of a verdict."""
        return tuple(filter(None, (self._at_stake, self._throttled)))

    @property
    def _throttled(self) -> str:
        if not self.changes or self.min_share >= LEAST_SHARE:
            return ""
        return f"the campaign expects its load to be throttled: {self.min_share:.0%} of the planned changes are enough"

    @property
    def _at_stake(self) -> str:
        if not self.lacks:
            return ""
        nothing = "no load" in self.lacks and ("no minimum" in self.lacks or "no fault" in self.lacks)
        return f"{'nothing' if nothing else 'little'} was at stake: {', '.join(self.lacks)}"

    def to_toml(self) -> dict[str, Any]:
        """The entries of run.toml's table [plan]."""
        return {"changes": self.changes, "queries": self.queries}


@dataclass(frozen=True)
class Most:
    """The most changes and queries that a run of a campaign can reach."""

    changes: int
    queries: int


def most_of(campaign: Campaign) -> Most | None:
    """The maximum that the clients' rates allow, with the longest load and one probe of each place; None for a script
    that runs beside a load, because its duration is unknown."""
    workload, nemesis = campaign.workload, campaign.nemesis
    kind = KINDS[workload.kind]
    asked = len(kind.places(workload.load)) * PROBES
    probes = asked if workload.parameters.get("probe_acks", ALL) == ALL else 0
    scripted = sum(map(_kept_changes, nemesis.steps))
    mix = kind.mix(workload.load)
    if nemesis.steps and mix.changes + mix.queries:
        return None
    duration_s = workload.duration_s * (LONGEST_LOAD if workload.operations else 1.0)
    if nemesis.steps:
        duration_s = 0.0
    return Most(ceil(mix.changes * duration_s) + scripted + probes, ceil(mix.queries * duration_s) + asked)


def has_weak_steps(campaign: Campaign) -> bool:
    """Whether a script appends with acks other than -1."""
    return any(isinstance(step, ProduceStep) and step.acks != ALL for step in campaign.nemesis.steps)


def _kept_changes(step: Step) -> int:
    """The number of changes of a step that the system promises to keep: appends with acks = -1."""
    return step.count if isinstance(step, ProduceStep) and step.acks == ALL else 0


def stake_of(campaign: Campaign) -> Stake:
    """The stake of each of a campaign's runs. The duration of a script, and so its load, is unknown in advance."""
    workload, nemesis, checks = campaign.workload, campaign.nemesis, campaign.checks
    mix = KINDS[workload.kind].mix(workload.load)
    duration_s = 0.0 if nemesis.kind == "steps" else workload.duration_s
    changes, queries = floor(mix.changes * duration_s), floor(mix.queries * duration_s)
    least = floor(changes * min(LEAST_SHARE, checks.min_share))
    min_ok = max(1, least) if checks.min_ok is None else checks.min_ok
    share = LEAST_QUERIES_SHARE
    if changes:  # with few expected changes, few answers are expected, too
        share = min(share, LEAST_SHARE * min(min_ok / changes, checks.min_share / LEAST_SHARE))
    min_queries = floor(queries * share) if checks.min_queries is None else checks.min_queries
    loaded = changes + queries > 0 or any(map(_kept_changes, nemesis.steps))
    loaded = loaded or bool(nemesis.steps and KINDS[workload.kind].clients(workload.load))
    lacks = (("no load", not loaded), ("no fault", not nemesis.possible_faults), ("no minimum", min_ok == 0))
    return Stake(
        changes, queries, min_ok, min_queries, checks.min_share, tuple(what for what, missing in lacks if missing)
    )
