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
            schedule="a follower truncates to its own high watermark instead of asking for the epoch's end; "
            "campaigns/kip101-scenario2.toml, and with bounce_unseen campaigns/kip101-scenario1.toml",
        ),
        Mutant(
            name="bounce_unseen",
            rule="H12",
            anomaly="lost-acknowledged-write",
            schedule="a broker that comes back after a power loss stays in the ISR without its data; "
            "campaigns/bounce-unseen.toml",
        ),
        Mutant(
            name="hw_below_min_isr",
            rule="H16",
            anomaly="lost-acknowledged-write",
            schedule="a leader that is alone in its ISR commits what waits for a second replica, then loses power; "
            "campaigns/kip966-min-isr.toml",
        ),
        Mutant(
            name="elect_unclean_shutdown_isr",
            rule="H16",
            anomaly="lost-acknowledged-write",
            schedule="the last replica standing loses power and is elected again, though another was only killed; "
            "campaigns/kip966-last-replica.toml",
        ),
        Mutant(
            name="last_known_leader_leads",
            rule="K101-15",
            anomaly="lost-acknowledged-write",
            schedule="all that were eligible have shut down uncleanly, and the last leader leads again whatever its "
            "log has lost",
        ),
        Mutant(
            name="isr_grows_while_recovering",
            rule="K704-4",
            anomaly="replica-divergence",
            schedule="a leader that recovers from an unclean election asks for a second member of its ISR, and gets it",
        ),
        Mutant(
            name="serve_while_recovering",
            rule="K704-5",
            anomaly="an answer out of a log that may not stay",
            schedule="clients produce to and consume from a leader that recovers from an unclean election",
        ),
        Mutant(
            name="recovery_flag_lost",
            rule="K704-9",
            anomaly="a recovery that is skipped",
            schedule="a leader is stopped in the middle of its recovery, and leads again",
        ),
        Mutant(
            name="unclean_keeps_isr",
            rule="K704-1",
            anomaly="lost-acknowledged-write",
            schedule="C is elected uncleanly and acknowledges writes; it dies, and who was eligible before is elected",
        ),
        Mutant(
            name="vote_not_persisted",
            rule="K595-19",
            anomaly="vote-not-on-disk, election-state-regression, two-votes, two-leaders",
            schedule="a voter grants its vote without writing it down, and votes again after a restart that comes "
            "before it knows the leader; campaigns/vote-not-persisted.toml",
        ),
        Mutant(
            name="refused_is_dead",
            rule="H31",
            anomaly="stale-read",
            schedule="a firewall rejects what passes between a leader and the controller; the refused connection "
            "counts as proof of death, and another leads while the first one's lease goes on; campaigns/lease.toml",
        ),
        Mutant(
            name="leave_under_lease",
            rule="H31",
            anomaly="stale-read",
            schedule="a leader that is stopped keeps its lease until the controller's answer, which a one-way cut "
            "takes away; tests/simulator/test_leases.py",
        ),
        Mutant(
            name="sequence_unchecked",
            rule="K98-2",
            anomaly="duplicate, duplicate-on-replica, producer-order, append-reorder",
            schedule="a leader appends an idempotent producer's batch as often as it comes; the answer to one that was "
            "appended is lost, and it is sent again; campaigns/sequence-unchecked.toml",
        ),
        Mutant(
            name="no_producer_snapshot",
            rule="K98-6",
            anomaly="duplicate, duplicate-on-replica, producer-order, append-reorder",
            schedule="a broker starts without what its log knew of producers; a batch that was appended before is sent "
            "again; campaigns/no-producer-snapshot.toml",
        ),
        Mutant(
            name="producer_state_survives_truncation",
            rule="K98-7",
            anomaly="lost-acknowledged-write, offset-mismatch",
            schedule="a deposed leader cuts a batch off and still takes it for written when it leads again and the "
            "batch is sent again; campaigns/producer-state-survives-truncation.toml",
        ),
        Mutant(
            name="commit_acked_before_hw",
            rule="CG-3",
            anomaly="lost-acknowledged-commit",
            schedule="a group coordinator answers OffsetCommit once it has appended it itself, and dies before the "
            "others have it; campaigns/commit-acked-before-hw.toml",
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
