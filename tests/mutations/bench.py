"""Judges mutated runs: each copied from its base, changed, sealed anew or not, and judged by either engine."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from analysis.pipeline import analyze
from analysis.rundir import RunDirectoryError
from analysis.spark import SparkHandle
from history import HistoryError
from tests.mutations.mutation import Judgement, Mutation
from tests.mutations.stored import Stored

DERIVED = ("plots", "report.html", "spark")
"""What the mutants do without: nothing that judges a run reads it."""


@dataclass
class Bench:
    """`bases`: the runs to mutate, by name; `directory`: where the mutants are made, one at a time and judge."""

    bases: dict[str, Path]
    directory: Path
    _resealed: dict[str, Judgement] = field(default_factory=dict)

    def resealed(self, mutation: Mutation) -> Judgement:
        """What is said of a run that ended with this change; judged in this process, once."""
        if mutation.name not in self._resealed:
            self._resealed[mutation.name] = self.judged(mutation)
        return self._resealed[mutation.name]

    def judged(self, mutation: Mutation, *, session: SparkHandle | None = None, sealed: bool = True) -> Judgement:
        mutant = self.directory / ("spark" if session else "in-process") / self.bases[mutation.base].name
        shutil.copytree(self.bases[mutation.base], mutant, ignore=shutil.ignore_patterns(*DERIVED))
        try:
            mutation.apply(Stored(mutant))
            return judge(mutant, session)
        finally:
            shutil.rmtree(mutant)


def judge(run: Path, session: SparkHandle | None = None) -> Judgement:
    """What `analyze` says of a run; a run that it refuses to read is as good as unknown."""
    try:
        verdict = analyze(run, session=session, engine="spark" if session else "in-process", pictures=False)
    except (RunDirectoryError, HistoryError) as error:
        return Judgement("unknown", (str(error),), (), stored_verdict(run))
    anomalies = tuple(sorted({anomaly.name for anomaly in verdict.anomalies}))
    return Judgement(verdict.verdict, verdict.reasons, anomalies, stored_verdict(run))


def stored_verdict(run: Path) -> str | None:
    path = run / "verdict.json"
    return str(json.loads(path.read_text())["verdict"]) if path.exists() else None
