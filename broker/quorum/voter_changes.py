"""Changes of the voter set: the leader makes them, through records of its log (KIP-853).

The first leader names the disks of all voters. Nothing is committed before each voter has that record. Afterwards, a
log
without it belongs to an empty disk, and cannot win an election (H22).

A disk that replaces another joins automatically, as in Apache Kafka 4 with `controller.quorum.auto.join.enable`
(KIP-1186). First the lost voter leaves the set; then the new one joins it once it has the leader's log. Only one voter
changes at a time, and each change is committed before the next: two consecutive majorities have a voter in common.
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
        """Whether the first set that names disks is committed, and therefore on the disks of all voters."""
        history = self._core.history
        return self._core.voters.keyed and self._core.high_watermark > history.first_offset

    def missing(self, role: Leader) -> tuple[int, ...]:
        """The voters that a new quorum waits for; empty once the first set is committed."""
        if self.settled():
            return ()
        first = max(0, self._core.history.first_offset)
        return tuple(voter for voter, replica in role.voters.items() if (replica.fetch_offset or 0) <= first)

    def may_settle(self, role: Leader, own_durable_end: int) -> bool:
        """Whether every voter has the first set that names disks."""
        return self._core.voters.keyed and role.everywhere(own_durable_end) > self._core.history.first_offset

    def due(self, now: float, role: Leader) -> VoterSet | None:
        """The next voter set. None while there is nothing to change, while the last change is not committed, or while
        this
        leader has committed nothing in its own epoch."""
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
