"""What a checker is, what it is given, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.core.anomaly import Anomaly, AnomalyKind
from analysis.plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analysis.plan import Plan
    from analysis.rundir import RunDescription
    from history import History


@dataclass(frozen=True)
class Run:
    """A run to be judged: its directory, in which `tables/` has been written, and what was read of it.

    `spark`: the session to spread work over, None to judge in this process.
    """

    directory: Path
    description: RunDescription
    history: History
    spark: SparkSession | None = None

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    @property
    def plan(self) -> Plan:
        return plan_of(self.description, self.history)


@dataclass(frozen=True)
class Outcome:
    """What a checker says of a run: a verdict (`pass`, `fail`, `unknown`, `n/a`), a sentence of detail, the anomalies
    that it found, and whatever else speaks against believing a pass."""

    verdict: str
    detail: str
    anomalies: tuple[Anomaly, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checker:
    """One checker.

    `question`: what it answers, for the documentation. `place`: checkers run in ascending order of it. `judge`: it
    applies to runs whose workload names it so (`[workload] judge` in run.toml) and judges their operations; None: it
    judges something else, and applies to every run. `check` may raise anything: that makes the run unknown.
    `certify`: writes a proof of its pass and has it confirmed; called when no checker has found anything.
    """

    name: str
    question: str
    place: int
    anomalies: tuple[AnomalyKind, ...]
    check: Callable[[Run], Outcome]
    judge: str | None = None
    certify: Callable[[Run], Outcome] | None = None

    def applies(self, run: Run) -> bool:
        return self.judge is None or run.description.judge == self.judge
