"""Who decides who votes: the leader, through records of its log (KIP-853).

The first leader names the disks of all voters. Nothing at all is committed before each of them has that record: from
there on a log without it is that of an empty disk, and can win no election (H22).

A disk that replaces another is taken in by itself, as Apache Kafka 4 does it with `controller.quorum.auto.join.enable`
(KIP-1186): first the voter that is gone leaves the set, then the new one joins it once it has the leader's log. One
voter at a time, each change committed before the next: two majorities that follow each other have a voter in common.
"""

from __future__ import annotations

from broker.protocol.schema import NO_ID
from broker.quorum.core import Core
from broker.quorum.roles import Leader, ReplicaProgress
from broker.quorum.voters import VoterSet


class VoterChanges:
    """The part of a leader that changes the voter set."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def settled(self) -> bool:
        """Whether the first set that names disks is committed, and so on the disks of all voters."""
        history = self._core.history
        return self._core.voters.keyed and self._core.high_watermark > history.first_offset

    def missing(self, role: Leader) -> tuple[int, ...]:
        """The voters for which a new quorum waits; none once it is settled."""
        if self.settled():
            return ()
        first = max(0, self._core.history.first_offset)
        return tuple(voter for voter, replica in role.voters.items() if (replica.fetch_offset or 0) <= first)

    def may_settle(self, role: Leader, own_durable_end: int) -> bool:
        """Whether every voter has the first set that names disks."""
        return self._core.voters.keyed and role.everywhere(own_durable_end) > self._core.history.first_offset

    def due(self, now: float, role: Leader) -> VoterSet | None:
        """The set that shall be in force next; None while there is nothing to change, or the last change is not
        committed, or nothing of this leader's own epoch is."""
        voters = self._core.voters
        if not voters.keyed:
            return self._first(role)
        if role.high_watermark is None or role.high_watermark <= self._core.history.offset or self._core.ignores_keys:
            return None
        for replica, newcomer in role.observers.items():
            if replica not in self._core.settings.voters or not self._has_the_log(now, newcomer):
                continue
            if replica not in role.voters:
                return voters.with_voter(replica, newcomer.directory)
            if self._is_gone(now, role, role.voters[replica]):
                return voters.without(replica)
        return None

    def _first(self, role: Leader) -> VoterSet | None:
        own = self._core.settings
        disks = {voter: progress.directory for voter, progress in role.voters.items()}
        if NO_ID in disks.values():
            return None
        return VoterSet(tuple(sorted({**disks, own.node_id: own.directory_id}.items())))

    def _has_the_log(self, now: float, newcomer: ReplicaProgress) -> bool:
        caught_up = newcomer.last_caught_up_at
        within = self._core.settings.fetch_timeout_s
        return newcomer.directory != NO_ID and caught_up is not None and now - caught_up <= within

    def _is_gone(self, now: float, role: Leader, voter: ReplicaProgress) -> bool:
        heard_at = role.began_at if voter.last_fetch_at is None else voter.last_fetch_at
        return now - heard_at > self._core.settings.check_quorum_timeout_s
