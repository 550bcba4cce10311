"""Reads `gate.toml`: a project's demands on its campaigns beyond each run's expectation."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from analysis.checker_registry import CLASSES as ANOMALIES
from analysis.core.anomaly import BROKEN
from history.field_types import COMPUTED, AtLeastZero, Positive, Share, one_of
from orchestrator.campaign.model import FaultName
from orchestrator.errors import UsageError
from orchestrator.store.figures import FIGURES
from orchestrator.world_kinds import WORLDS
from systems.declared_tables import Problem, read_file
from systems.toml_tables import TomlSource

FILE_NAME = "gate.toml"


class Required(msgspec.Struct, frozen=True):
    """[require] of a policy."""

    worlds: tuple[Annotated[str, one_of(WORLDS)], ...] = ()
    """Every cell needs a run that meets its expectation in each of these."""
    seeds: Positive | None = None
    """How many seeds of every cell must have been analyzed."""
    clean_build: bool = False
    """All runs were made by one commit, without uncommitted changes or modules outside of it."""
    mutation_score: Share | None = None
    """Of the cells whose mutants are expected to fail, the share that failed in each of their runs."""
    faults: Mapping[FaultName, Positive] = {}
    """`[require.faults]`: how often each kind of fault must have been confirmed, over all runs with valid faults."""


class RunBudget(msgspec.Struct, frozen=True):
    """[budget] of a policy: limits for every run that passed, multiplied by the time scale of its world."""

    latency_p50_ms: AtLeastZero | None = None
    """The median latency of acknowledged operations."""
    latency_p99_ms: AtLeastZero | None = None
    """Their 99th percentile."""
    outage_s: AtLeastZero | None = None
    """The longest time without an acknowledgement."""


class Baseline(msgspec.Struct, frozen=True):
    """[baseline] of a policy: a result that is worse by more than chance, and by more than is allowed, fails."""

    path: str
    """Needed: a campaign's directory, or a store; relative to this file."""
    alpha: Share = 0.05
    """The largest probability that the difference is chance: the significance level."""
    effect: AtLeastZero = 0.1
    """The allowed worsening, as a share: 0.1 is a tenth."""
    measures: tuple[Annotated[str, one_of(figure.measure for figure in FIGURES)], ...] = ("latency", "throughput")
    """The figures that are compared. Not every campaign has nodes that join, so the default has no `join`."""


class KnownFailure(msgspec.Struct, frozen=True):
    """[[known]] of a policy: a failure that is accepted for a while."""

    anomaly: Annotated[str, one_of(ANOMALIES)]
    """Needed: the [anomaly](anomalies.md); `own-promise-broken` for those of your own checkers, and of models."""
    reason: Annotated[str, Meta(pattern=r".*\S.*", title="a reason; say why this failure is allowed")]
    """Needed: why the failure is allowed."""
    expires: date
    """Needed: the last day on which it is allowed, without quotes."""
    cell: str = ""
    """Only in this cell. Default: in any."""
    system: str = ""
    """Only of this system. Default: of any."""

    def fits(self, anomaly: str, system: str, cell: str) -> bool:
        kind = anomaly if anomaly in ANOMALIES else BROKEN.name
        return self.anomaly in (anomaly, kind) and self.cell in ("", cell) and self.system in ("", system)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and tables of a policy. What is missing demands nothing."""

    path: Annotated[Path, COMPUTED]
    campaigns: tuple[str, ...] = ()
    """The campaigns that this policy covers, and that must be in the store. Default: any."""
    require: Required = Required()
    """Demands on the runs."""
    budget: RunBudget = RunBudget()
    """Limits of single runs."""
    baseline: Baseline | None = None
    """Earlier runs to compare with."""
    known: tuple[KnownFailure, ...] = ()
    """Failures that are accepted for a while."""

    def speaks_of(self, campaign: str) -> bool:
        return not self.campaigns or campaign in self.campaigns


def find_policy(stores: Sequence[Path], given: Path | None) -> Policy | None:
    """The given policy, else the one beside the store, if any. `stores`: the paths of the store; a file beside a link
    to it counts as well as one beside the link's target. Raises `InputError`, also if both exist, and for a policy
    inside the store, where it has no effect."""
    if given is not None:
        return read_policy(given)
    beside = dict.fromkeys(store.parent / FILE_NAME for store in stores)  # the store `/` is beside itself
    for path in (path for store in stores for path in _inside(store) if path not in beside):
        raise UsageError(
            f"{path}: a policy inside the store is not read; move it to {stores[0].parent / FILE_NAME}, beside the "
            "store, or give it with --policy"
        )
    policies = [_policy(TomlSource.read_stored(path), path) for path in beside if os.path.lexists(path)]
    for other in policies[1:]:
        if not policies[0].path.samefile(other.path):
            raise UsageError(
                f"{policies[0].path} and {other.path}: the store is a link, and there is a policy beside it and one "
                "beside its "
                "target; remove one of them, or give one with --policy"
            )
    return policies[0] if policies else None


def _inside(store: Path) -> list[Path]:
    """The policies in a store, and in the directories of its campaigns, their plans and their runs."""
    plans = sorted(store.glob("*/plans"))
    runs = [run.parent for path in plans for run in sorted(path.parent.glob("*/run.toml"))]
    places = [store, *(path.parent for path in plans), *plans, *runs]
    return [place / FILE_NAME for place in places if os.path.lexists(place / FILE_NAME)]


def read_policy(path: Path) -> Policy:
    """Raises `InputError`, which names file, line and key."""
    return _policy(TomlSource.read_stored(path), path)


def _policy(source: TomlSource, path: Path) -> Policy:
    policy = read_file(source, Policy, _problems, path=path)
    if policy.baseline is None:
        return policy
    return replace(policy, baseline=replace(policy.baseline, path=str(path.parent / policy.baseline.path)))


def _problems(policy: Policy) -> Iterator[Problem]:
    """What is wrong with the policy though each of its keys is right."""
    if policy.baseline is not None and not (directory := policy.path.parent / policy.baseline.path).is_dir():
        yield ("baseline", "path"), f"{directory} is not a directory; name a campaign's directory, or a store"
