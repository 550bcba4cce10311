"""Reads `gate.toml`: a project's demands on its campaigns beyond each run's expectation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from analysis.checker_registry import CLASSES as ANOMALIES
from nemeses import KINDS
from orchestrator.campaign.figures import FIGURES
from orchestrator.errors import UsageError
from orchestrator.world_kinds import WORLDS
from systems.toml_tables import Table, TomlSource

FILE_NAME = "gate.toml"
MEASURES = ("latency", "throughput")
"""What a baseline compares if it names nothing else. Not every campaign has nodes that join."""


@dataclass(frozen=True)
class KnownFailure:
    """A failure that is allowed until `expires`; an empty `cell` or `system` matches any."""

    anomaly: str
    reason: str
    expires: date
    cell: str = ""
    system: str = ""

    def fits(self, anomaly: str, system: str, cell: str) -> bool:
        return self.anomaly == anomaly and self.cell in ("", cell) and self.system in ("", system)


@dataclass(frozen=True)
class Baseline:
    """Runs to compare with: in the campaign's directory `path`, or below it. `alpha`: the significance level. `effect`:
    the allowed worsening, as a share (0.1: a tenth)."""

    path: Path
    alpha: float = 0.05
    effect: float = 0.1
    measures: tuple[str, ...] = MEASURES


@dataclass(frozen=True)
class Policy:
    """None and empty: no demand. `campaigns`: those that the policy applies to, empty for all. `faults`: by kind, how
    often it must be confirmed over all runs. `seeds`: of each cell. `mutation_score`: a share."""

    path: Path
    campaigns: tuple[str, ...] = ()
    worlds: tuple[str, ...] = ()
    faults: Mapping[str, int] = field(default_factory=dict)
    seeds: int | None = None
    clean_build: bool = False
    mutation_score: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    outage_s: float | None = None
    baseline: Baseline | None = None
    known: tuple[KnownFailure, ...] = ()

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
    found = [_policy(TomlSource.read_stored(path), path) for path in beside if os.path.lexists(path)]
    for other in found[1:]:
        if not found[0].path.samefile(other.path):
            raise UsageError(
                f"{found[0].path} and {other.path}: the store is a link, and there is a policy beside it and one "
                "beside its "
                "target; remove one of them, or give one with --policy"
            )
    return found[0] if found else None


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
    root = source.root()
    required, budget = root.table("require"), root.table("budget")
    policy = Policy(
        path=path,
        campaigns=root.texts("campaigns", ()),
        worlds=required.texts("worlds", (), choices=list(WORLDS)),
        faults=_faults(required.table("faults")),
        seeds=required.integer("seeds", minimum=1) if _given(required, "seeds") else None,
        clean_build=required.boolean("clean_build", False),
        mutation_score=_share(required, "mutation_score") if _given(required, "mutation_score") else None,
        latency_p50_ms=_limit(budget, "latency_p50_ms"),
        latency_p99_ms=_limit(budget, "latency_p99_ms"),
        outage_s=_limit(budget, "outage_s"),
        baseline=_baseline(root.table("baseline"), path) if _given(root, "baseline") else None,
        known=tuple(_known(table) for table in root.tables("known")),
    )
    for table in (required, budget, root):
        table.done()
    return policy


def _given(table: Table, key: str) -> bool:
    """Whether a key without default is present."""
    return table.raw(key, None) is not None


def _faults(table: Table) -> dict[str, int]:
    for kind in table.data:
        if kind not in KINDS:
            table.refuse(f"{kind!r} is not a kind of fault; known: {', '.join(sorted(KINDS))}", kind)
    return {kind: table.integer(kind, minimum=1) for kind in table.data}


def _limit(table: Table, key: str) -> float | None:
    return table.number(key, minimum=0) if _given(table, key) else None


def _share(table: Table, key: str, default: float = 1.0) -> float:
    value = table.number(key, default, minimum=0)
    if value > 1:
        table.refuse(f"{key}: {value:g} is not a share; write a number from 0 to 1", key)
    return value


def _baseline(table: Table, policy: Path) -> Baseline:
    baseline = Baseline(
        path=policy.parent / table.text("path"),
        alpha=_share(table, "alpha", Baseline.alpha),
        effect=table.number("effect", Baseline.effect, minimum=0),
        measures=table.texts("measures", MEASURES, choices=[each.measure for each in FIGURES]),
    )
    table.done()
    if not baseline.path.is_dir():
        table.refuse(f"path: {baseline.path} is not a directory; name a campaign's directory, or a store", "path")
    return baseline


def _known(table: Table) -> KnownFailure:
    expires = table.raw("expires", None)
    if not isinstance(expires, date) or isinstance(expires, datetime):
        table.refuse(
            "expires is a date without quotes, such as expires = 2030-01-31",
            "expires" if "expires" in table else None,
        )
    known = KnownFailure(
        anomaly=table.text("anomaly", choices=ANOMALIES),
        reason=table.text("reason"),
        expires=expires,
        cell=table.text("cell", ""),
        system=table.text("system", ""),
    )
    table.done()
    if not known.reason.strip():
        table.refuse("reason is empty; say why this failure is allowed", "reason")
    return known
