"""Analyzes mutated runs: each is copied from its base, changed, sealed again or not, and analyzed by either engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from analysis.engines.spark import SparkHandle
from analysis.evidence.run_directory import RunDirectoryError
from analysis.pipeline import analyze
from analysis.verdict import UNKNOWN
from history.errors import HistoryError
from history.regular_files import sha256_of
from history.seal import EVIDENCE, complaints, seal
from tests.analysis.python_literals import literals_in
from tests.mutations.mutation import Judgement, Mutation, Want, unknown
from tests.mutations.stored import Stored, event

DIRECTORY = "a directory"
DERIVED = ("plots", "report.html", "spark")
"""What the mutants do without: nothing that judges a run reads it."""


@dataclass
class Bench:
    """`bases`: the runs to mutate, by name; `directory`: where the mutants are made, one at a time for each engine."""

    bases: Mapping[str, Path]
    directory: Path
    _looked_at: dict[str, tuple[tuple[list[str], list[str]], Judgement]] = field(default_factory=dict)

    def resealed(self, mutation: Mutation) -> Judgement:
        """What is said of a run that ended with this change; judged in this process, once."""
        return self._look(mutation)[1]

    def resealed_on_spark(self, mutation: Mutation, session: SparkHandle) -> Judgement:
        with self._mutant(mutation, "spark") as mutant:
            self._ended_so(mutation, mutant)
            return judge(mutant, session)

    def _ended_so(self, mutation: Mutation, mutant: Path) -> None:
        """The run started with the plan that it has now, unless the mutation concerns that, and ended with it."""
        plan, stored = mutant / "run.toml", Stored(mutant)
        if (
            mutation.replans
            and plan.exists()
            and plan.read_bytes() != (self.bases[mutation.base] / "run.toml").read_bytes()
        ):
            stored.change_lines(event("run_started"), lambda line: line.update(plan=sha256_of(plan)))
        seal_again(mutant)

    def complaints(self, mutation: Mutation) -> tuple[list[str], list[str]]:
        """What the seal says of a run that was changed behind its back, and what was changed."""
        return self._look(mutation)[0]

    def _look(self, mutation: Mutation) -> tuple[tuple[list[str], list[str]], Judgement]:
        """`complaints` and `resealed`, of one mutant: making one takes as long as looking at it."""
        if mutation.name not in self._looked_at:
            with self._mutant(mutation, "in-process") as mutant:
                found = list(complaints(mutant)) if (mutant / "history").is_dir() else ["history is missing"]
                changed = changed_files(self.bases[mutation.base], mutant)
                self._ended_so(mutation, mutant)
                self._looked_at[mutation.name] = (found, changed), judge(mutant)
        return self._looked_at[mutation.name]

    def as_is(self, mutation: Mutation) -> tuple[Judgement, tuple[Want, ...]]:
        """What is said of a run that was changed behind its back, and what is honest then."""
        with self._mutant(mutation, "in-process") as mutant:
            names = changed_files(self.bases[mutation.base], mutant)
            if not names:  # no evidence was changed
                return judge(mutant), mutation.resealed
            reported = unknown("|".join(re.escape(name) for name in names))
            # Where the seal itself is gone, what else is missing may be all that is said.
            unjudged = [want for want in mutation.resealed if want.verdict == UNKNOWN]
            return judge(mutant), (*mutation.as_is, reported, *unjudged)

    @contextmanager
    def _mutant(self, mutation: Mutation, place: str) -> Iterator[Path]:
        base = self.bases[mutation.base]
        mutant = self.directory / place / base.name
        try:
            shutil.copytree(base, mutant, ignore=shutil.ignore_patterns(*DERIVED))
            mutation.apply(Stored(mutant))
            yield mutant
        finally:
            shutil.rmtree(mutant, ignore_errors=True)


def changed_files(base: Path, mutant: Path) -> list[str]:
    """The names of the evidence's files and directories that one of them lacks or in which they differ."""
    one, other = _contents_of_base(base), _contents(mutant)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


@cache
def _contents_of_base(base: Path) -> dict[str, bytes | str]:
    """Once: no test changes a base."""
    return _contents(base)


def _contents(run: Path) -> dict[str, bytes | str]:
    """What there is of the evidence, by its path below the run's directory."""
    found: dict[str, bytes | str] = {}
    left = [part for part in EVIDENCE if os.path.lexists(run / part)]
    while left:
        name = left.pop()
        found[name] = content = _content(f"{run}/{name}")
        if content == DIRECTORY:
            left += [f"{name}/{inside}" for inside in os.listdir(f"{run}/{name}")]
    return found


def _content(path: str) -> bytes | str:
    """What is there: a file's bytes, or what it is instead."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"a link to {os.readlink(path)}"
    if not stat.S_ISREG(mode):
        return DIRECTORY if stat.S_ISDIR(mode) else "something else"
    with open(path, "rb") as file:
        return file.read()


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
