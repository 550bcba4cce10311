"""Runs shrink's candidates within a budget, and keeps the smallest one that still shows the anomaly."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from analysis.verdict import FAIL, UNKNOWN, first_reasons
from orchestrator.errors import UsageError
from orchestrator.search.campaign_document import Document, planned
from orchestrator.search.run_maker import Made, Maker
from orchestrator.store.directories import Store
from systems.errors import InputError

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


class TrialFinding(Enum):
    """What one run shows: nothing, or the anomaly, in a finished or unfinished run."""

    NOTHING = auto()
    UNFINISHED = auto()
    FINISHED = auto()


class SpentError(Exception):
    """The budget is used up."""


@dataclass
class Budget:
    """A number of runs, or seconds of this machine's time; None is unlimited."""

    runs: int | None = None
    seconds: float | None = None
    spent_runs: int = 0

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()

    @classmethod
    def of(cls, text: str) -> Budget:
        """`200`: runs; `90s`, `10m`, `1h`: time. Raises `UsageError`."""
        match = re.fullmatch(r"([1-9]\d*)([smh]?)", text)
        if match is None:
            raise UsageError(f"--budget {text}: give a number of runs, such as 200, or a time, such as 90s, 10m or 1h")
        if not match[2]:
            return cls(runs=int(match[1]))
        return cls(seconds=int(match[1]) * _UNITS[match[2]])

    def spend(self) -> None:
        """Call before each run. Raises `SpentError`."""
        by_runs = self.runs is not None and self.spent_runs >= self.runs
        if by_runs or (self.seconds is not None and time.monotonic() - self._began_s >= self.seconds):
            raise SpentError
        self.spent_runs += 1

    def __str__(self) -> str:
        return f"{self.spent_runs}" + (f" of {self.runs}" if self.runs is not None else "") + " runs"


class Trials:
    """Runs candidates in a temporary store. `best`: the last one that held, with a seed that showed it. `undecided`:
    the reason of each run that was not decided; such a run counts as not showing the anomaly.

    A run shows the anomaly when it finishes, fails, and its verdict names it. If no run of the first candidate
    finishes, because the failure prevents that, the others need not finish either (`to_the_end`). Each candidate is run
    with `tries` seeds, and holds when at least as many of them show it as for the first one: a reduction must not make
    it rarer."""

    def __init__(
        self,
        maker: Maker,
        scratch: Path,
        anomaly: str,
        budget: Budget,
        *,
        seed: int,
        tries: int,
        heard: Callable[[Document, Budget], None],
    ) -> None:
        self._maker = maker
        self._store = Store(scratch)
        self._anomaly = anomaly
        self._budget = budget
        self._seeds = [seed + number for number in range(tries)]
        self._heard = heard
        self._known: dict[str, bool] = {}
        self._needed = 0
        self.to_the_end = True
        self.best: Document | None = None
        self.undecided: list[str] = []

    def __call__(self, candidate: Document) -> bool:
        """Raises `SpentError` when the budget is used up, `Interrupted` when the user interrupts, and as `shows`."""
        text = candidate.text()
        if text not in self._known:
            self._known[text] = self._holds(candidate) if self._needed else self._settle(candidate)
        if self._known[text]:
            self.best = candidate.having("seeds", {"first": self._seeds[0], "count": 1})
            self._heard(candidate, self._budget)
        return self._known[text]

    def _settle(self, document: Document) -> bool:
        """Determine how many seeds must show it from now on, and put those that did first."""
        findings = {seed: self._finding(document, seed) for seed in self._seeds}
        self.to_the_end = TrialFinding.FINISHED in findings.values() or TrialFinding.UNFINISHED not in findings.values()
        shown = [seed for seed in self._seeds if self._counts(findings[seed])]
        self._seeds = [*shown, *(seed for seed in self._seeds if seed not in shown)]
        self._needed = len(shown)
        return bool(shown)

    def _holds(self, candidate: Document) -> bool:
        """Stops as soon as the result is certain."""
        shown = 0
        for remaining, seed in zip(range(len(self._seeds), 0, -1), self._seeds, strict=True):
            if shown == self._needed or shown + remaining < self._needed:
                break
            shown += self.shows(candidate, seed)
        return shown >= self._needed

    def shows(self, candidate: Document, seed: int, *, free: bool = False) -> bool:
        """Whether one run shows the anomaly. An invalid campaign shows nothing and costs nothing; a `free` one
        costs nothing. Raises `OSError`, or an error caused by one, when the machine cannot make runs, which says
        nothing about the candidate."""
        return self._counts(self._finding(candidate, seed, free=free))

    def _counts(self, finding: TrialFinding) -> bool:
        return finding is TrialFinding.FINISHED or (finding is TrialFinding.UNFINISHED and not self.to_the_end)

    def _finding(self, candidate: Document, seed: int, *, free: bool = False) -> TrialFinding:
        try:
            campaign = candidate.campaign(self._store.root / "candidate.toml")
        except InputError:
            return TrialFinding.NOTHING
        if not free:
            self._budget.spend()
        plan = planned(campaign, self._store.new_stamp(), seed)
        try:
            return self._found_in(self._maker.make(plan), seed)
        except Exception as error:
            if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                raise  # the disk may be full
            self.undecided.append(f"seed {seed}: {type(error).__name__}: {error}")
            return TrialFinding.NOTHING  # an error in the simulation or in the analysis proves nothing
        finally:
            shutil.rmtree(self._store.campaign_dir(campaign.name) / plan.id, ignore_errors=True)

    def _found_in(self, made: Made, seed: int) -> TrialFinding:
        if made.verdict.verdict == UNKNOWN:
            self.undecided.append(f"seed {seed}: {'; '.join(first_reasons(made.verdict.reasons, 2))}")
        if made.verdict.verdict != FAIL or self._anomaly not in made.anomalies:
            return TrialFinding.NOTHING
        return TrialFinding.FINISHED if made.finished else TrialFinding.UNFINISHED
