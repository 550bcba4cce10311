"""Analyzes mutated runs: each is copied from its base, changed, sealed again, and analyzed by either engine."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from analysis.engines.spark import SparkHandle
from analysis.evidence.run_directory import RunDirectoryError
from analysis.pipeline import analyze
from history.errors import HistoryError
from history.seal import seal
from tests.analysis.python_literals import literals_in
from tests.mutations.mutation import Judgement, Mutation
from tests.mutations.stored import Stored

DERIVED = ("plots", "report.html", "spark")
"""What the mutants do without: nothing that judges a run reads it."""


@dataclass
class Bench:
    """`bases`: the runs to mutate, by name; `directory`: where the mutants are made, one at a time for each engine."""

    bases: Mapping[str, Path]
    directory: Path
    _judged: dict[str, Judgement] = field(default_factory=dict)

    def resealed(self, mutation: Mutation) -> Judgement:
        """The judgement on a run that ended with this change; judged in this process, once."""
        if mutation.name not in self._judged:
            with self._mutant(mutation, "in-process") as mutant:
                self._judged[mutation.name] = judge(mutant)
        return self._judged[mutation.name]

    def resealed_on_spark(self, mutation: Mutation, session: SparkHandle) -> Judgement:
        with self._mutant(mutation, "spark") as mutant:
            return judge(mutant, session)

    @contextmanager
    def _mutant(self, mutation: Mutation, place: str) -> Iterator[Path]:
        base = self.bases[mutation.base]
        mutant = self.directory / place / base.name
        try:
            shutil.copytree(base, mutant, ignore=shutil.ignore_patterns(*DERIVED))
            mutation.apply(Stored(mutant))
            seal_again(mutant)
            yield mutant
        finally:
            shutil.rmtree(mutant, ignore_errors=True)


def seal_again(run: Path) -> None:
    """The run had ended as it is now; one that has no history cannot be sealed."""
    if (run / "history").is_dir():
        seal(run)


def judge(run: Path, session: SparkHandle | None = None) -> Judgement:
    """What `analyze` says of a run; a run that it refuses to read is as good as unknown."""
    try:
        verdict = analyze(run, session=session, engine="spark" if session else "in-process", plots=False)
    except (RunDirectoryError, HistoryError) as error:
        return Judgement("unknown", (str(error).replace(str(run), run.name),), (), stored_verdict(run))
    texts = [*verdict.reasons, *(check.detail for check in verdict.checks), *(each.cause for each in verdict.anomalies)]
    assert not (found := literals_in(texts)), f"values in Python's notation: {found}"
    anomalies = tuple(sorted({anomaly.name for anomaly in verdict.anomalies}))
    reasons = tuple(reason.replace(str(run), run.name) for reason in verdict.reasons)
    return Judgement(verdict.verdict, reasons, anomalies, stored_verdict(run))


def stored_verdict(run: Path) -> str | None:
    path = run / "verdict.json"
    return str(json.loads(path.read_text())["verdict"]) if path.exists() else None
