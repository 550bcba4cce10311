"""The type of a mutation: one change of a stored run, and the verdicts that are honest after it.

A module of mutations declares them in a `Catalog`. The tests need only the union of the catalogs.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from analysis.verdict import FAIL, PASS, UNKNOWN
from tests.mutations.stored import Stored


@dataclass(frozen=True)
class Judgement:
    """The result for a run: the verdict, its reasons, and the names of its anomalies, sorted.

    `stored`: the verdict in the run's directory afterwards, None without one.
    """

    verdict: str
    reasons: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    stored: str | None = None

    def __str__(self) -> str:
        named = f" ({', '.join(self.anomalies)})" if self.anomalies else ""
        return self.verdict + named + "".join(f"\n    {reason}" for reason in self.reasons[:8])


@dataclass(frozen=True)
class Want:
    """An honest verdict. `words`: regular expressions that one reason of an unknown run must all hold, in any case;
    `anomalies`: one of these names must be among those of a failed run."""

    verdict: str
    words: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()

    def met_by(self, found: Judgement) -> bool:
        if found.verdict != self.verdict:
            return False
        if self.anomalies and not set(self.anomalies) & set(found.anomalies):
            return False
        return not self.words or any(
            all(re.search(word, reason, re.IGNORECASE) for word in self.words) for reason in found.reasons
        )

    def __str__(self) -> str:
        more = " or ".join(self.anomalies) or " + ".join(self.words)
        return self.verdict + (f" ({more})" if more else "")


PASSES = Want(PASS)


def unknown(*words: str) -> Want:
    """Not judged, for a reason that holds all of these words."""
    return Want(UNKNOWN, words=words)


def fails(*anomalies: str) -> Want:
    """A contradiction, by one of these names."""
    return Want(FAIL, anomalies=anomalies)


@dataclass(frozen=True)
class Mutation:
    """One change of a stored run.

    `file`: the module that declares it, relative to the project's root. `wants`: the honest verdicts when the run had
    ended with this change.
    """

    name: str
    base: str
    file: str
    apply: Callable[[Stored], object]
    wants: tuple[Want, ...]

    def __str__(self) -> str:
        return self.name


Change = Callable[[Stored], object]


@dataclass
class Catalog:
    """The mutations of one subject, all of the base run called `base`."""

    subject: str
    base: str = "log"
    mutations: list[Mutation] = field(default_factory=list)

    def __call__(self, *wants: Want) -> Callable[[Change], Change]:
        """Declares a mutation that is called as its function; any of the wants is honest."""

        def declare(change: Change) -> Change:
            self.add(change.__name__, change, *wants)
            return change

        return declare

    def add(self, name: str, change: Change, *wants: Want) -> None:
        name = f"{self.subject}: {name.replace('_', ' ')}"
        file = change.__module__.replace(".", "/") + ".py"
        self.mutations.append(Mutation(name, self.base, file, change, wants))

    def __iter__(self) -> Iterator[Mutation]:
        return iter(self.mutations)
