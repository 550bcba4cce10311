"""What a checker is, what it is given, and what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.core.anomaly import Anomaly, AnomalyKind
from analysis.doubt import EVIDENCE_CHANGED, MAY_BE_FORGOTTEN, TESTER_SHORT, UNDECIDED, Reason
from analysis.tester import cause_of, shortages
from analysis.verdict import UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analysis.plan import Plan
    from analysis.run_directory import NodeEvents, RunDescription
    from history.reader import History


@dataclass(frozen=True)
class CheckedRun:
    """A run to be judged: its directory, in which `tables/` has been written, and what was read of it.

    `events`: what its nodes told, read once for all who look at it. `spark`: the session to spread work over, None to
    judge in this process.
    """

    directory: Path
    description: RunDescription
    history: History
    events: NodeEvents
    spark: SparkSession | None = None

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    @property
    def plan(self) -> Plan:
        # What brings Arrow is imported when a run is judged: a campaign's file is read with the checkers' names alone.
        from analysis.plan import plan_of

        return plan_of(self.description, self.history)

    @cached_property
    def changed(self) -> Mapping[str, str]:
        """What of the evidence is known to have been changed since the run, or a client of it, left it: by name, each
        with a sentence."""
        from history import seal

        left = {
            f"history/operations/{name}": why for each in self.history.records for name, why in each.changed.items()
        }
        return left | seal.changed(self.directory)

    @property
    def forgetting(self) -> tuple[str, ...]:
        """The settings by which the system may remove what was committed: what it does not show then need not be lost.
        Those of a system whose files nobody reads are not understood, and excuse nothing."""
        from analysis.replicafiles.formats import FORMATS

        format = FORMATS.get(self.description.replica_format)
        if format is None:
            return ()
        settings = dict.fromkeys(pair for each in self.description.settings for pair in each.items())
        return tuple(
            f"{name} = {value}"
            for name, value in settings
            if format.may_delete({name: value}) or format.compacts({name: value})
        )

    @property
    def may_lack_writes(self) -> bool:
        """Whether some client may have written what is not on record."""
        return self._lacks_clients or any(not record.announced for record in self.history.records)

    def may_have_written(self, value: int) -> bool:
        """Whether a value of which the record says nothing may have been written all the same, by a client whose record
        is missing or not whole: then it is no proof of anything that somebody was shown it."""
        return self._lacks_clients or self.history.may_have_written(value)

    @property
    def _lacks_clients(self) -> bool:
        """Of clients that are in no journal nothing is known, and not which values were theirs."""
        known = {record.client for record in self.history.records}
        return bool(self.history.journal_defects) or not known >= set(self.plan.clients)


PLAN: Final = r"run\.toml"
JOURNAL: Final = r"history/journal\.jsonl"
OPERATIONS: Final = r"history/operations(/.*)?"
"""What of a run's evidence checkers read, as the seal names it."""


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
    `may_rest`: whether `n/a` is a lawful answer for a run of this description; everywhere else it is no answer.
    `certify`: writes a proof of its pass and has it confirmed; called when no checker has found anything. `reasons`:
    for which it leaves a run unknown; the first is that of every doubt that names none.
    """

    name: str
    question: str
    place: int
    anomalies: tuple[AnomalyKind, ...]
    check: Callable[[CheckedRun], Outcome]
    reasons: tuple[Reason, ...] = (UNDECIDED,)
    judge: str | None = None
    certify: Callable[[CheckedRun], Outcome] | None = None
    may_rest: Callable[[RunDescription], bool] = lambda _: False
    reads: str = ".*"

    def applies(self, run: CheckedRun) -> bool:
        return self.judge is None or run.description.judge == self.judge

    def judged(self, run: CheckedRun) -> Outcome:
        """What it says of a run. Evidence that was changed behind the run's back proves nothing, whatever it shows now:
        what would be an anomaly by it is a doubt. So is what the tester itself may have caused."""
        outcome = without_the_testers(self._with_promises(self.check(run)), run)
        if not outcome.anomalies:
            return outcome
        changed = [sentence for name, sentence in run.changed.items() if re.fullmatch(self.reads, name, re.DOTALL)]
        if not changed:
            return outcome
        doubts = EVIDENCE_CHANGED.say(
            f"{each.name}, by evidence that was changed: {each.sentence}" for each in outcome.anomalies
        )
        detail = f"{len(outcome.anomalies)} anomalies that prove nothing: {first_of(changed)}"
        return Outcome(UNKNOWN, detail, (), (*outcome.doubts, *doubts))

    def _with_promises(self, outcome: Outcome) -> Outcome:
        """The outcome, each anomaly with the code of its promise. Raises KeyError for an undeclared anomaly."""
        codes = {kind.name: kind.breaks.code for kind in self.anomalies}
        return replace(outcome, anomalies=tuple(replace(each, promise=codes[each.name]) for each in outcome.anomalies))


def without_the_testers(outcome: Outcome, run: CheckedRun) -> Outcome:
    """Doubts in the place of the anomalies that the tester may have caused when it ran out of something."""
    found = shortages(run.history.journal)
    causes = [(each, cause_of(each, found)) for each in outcome.anomalies]
    doubts = TESTER_SHORT.say(f"{each.name}: {each.sentence}; but {why}" for each, why in causes if why)
    if not doubts:
        return outcome
    proven = tuple(each for each, why in causes if not why)
    verdict = outcome.verdict if proven else UNKNOWN
    detail = outcome.detail if proven else f"{len(doubts)} anomalies that the tester may have caused"
    return Outcome(verdict, detail, proven, (*outcome.doubts, *doubts))


def apart_from_forgotten(
    found: Sequence[Anomaly], name: str, forgetting: Sequence[str]
) -> tuple[tuple[Anomaly, ...], tuple[str, ...]]:
    """The anomalies that are proven, and doubts in the place of those called `name`: where a log may lawfully forget,
    a record that was passed over may have been gone by then. Without such settings all are proven."""
    if not forgetting:
        return tuple(found), ()
    why = f"the system may have forgotten it lawfully: {first_of(forgetting, ', ')}"
    doubts = MAY_BE_FORGOTTEN.say(f"{each.name}: {each.sentence}; {why}" for each in found if each.name == name)
    return tuple(each for each in found if each.name != name), doubts


MOST_NAMED: Final = 3


def first_of(items: Sequence[str], separator: str = "; ") -> str:
    """The first few of them, and how many more there are, for a sentence."""
    more = len(items) - MOST_NAMED
    return separator.join(items[:MOST_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")
