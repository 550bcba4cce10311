"""Named, switchable faults of the protocol code: how a campaign shows that it would have seen the bug.

A mutant is a branch at the exact line of the rule that it breaks. The table below is read by the docs and the tests; an
object resolves `active(name)` once, when it is built, so that a mutant that is off costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug: the rule it breaks, the anomaly that it must cause, and the shortest known schedule."""

    name: str
    rule: str
    anomaly: str
    schedule: str


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            name="truncate_to_hw",
            rule="K101-7",
            anomaly="lost-acknowledged-write, replica-divergence",
            schedule="a follower truncates to its own high watermark instead of asking for the epoch's end, and a "
            "bounced broker stays in the ISR as it did when KIP-101 was written; "
            "campaigns/kip101-scenario1.toml, campaigns/kip101-scenario2.toml",
        ),
        Mutant(
            name="bounce_unseen",
            rule="H12",
            anomaly="lost-acknowledged-write",
            schedule="a broker that comes back after a power loss stays in the ISR without its data; "
            "campaigns/bounce-unseen.toml",
        ),
        Mutant(
            name="vote_not_persisted",
            rule="K595-19",
            anomaly="vote-not-on-disk, election-state-regression, two-votes, two-leaders",
            schedule="a voter grants its vote without writing it down, and votes again after a restart that comes "
            "before it knows the leader; campaigns/vote-not-persisted.toml",
        ),
    )
}


class UnknownMutantError(ValueError):
    """A mutant that is not in the table; the message lists those that are."""


class Mutants:
    """The mutants that are switched on in one broker."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._active = frozenset(names)
        unknown = sorted(self._active - MUTANTS.keys())
        if unknown:
            raise UnknownMutantError(f"unknown mutant {', '.join(unknown)}; known: {', '.join(sorted(MUTANTS))}")

    def active(self, name: str) -> bool:
        """Whether a mutant is on. Call it when an object is built, not on a hot path."""
        if name not in MUTANTS:
            raise UnknownMutantError(f"unknown mutant {name}; known: {', '.join(sorted(MUTANTS))}")
        return name in self._active

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._active))
