"""Writes the trace events of a quorum member about elections and its log: evidence for the analysis of a run."""

from __future__ import annotations

from broker.protocol.messages.control_records import LeaderChangeMessage
from broker.protocol.uuids import id_text
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import OffsetAndEpoch, Request, Response, VoteRequest, VoteResponse
from broker.quorum.roles import Role
from broker.quorum.wire import METADATA_TOPIC, NO_NODE, PARTITION
from broker.trace import Tracer


class QuorumTrace:
    """Writes those events of the quorum that need more than one line in the runner."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._role: tuple[str, int, int | None] | None = None

    def restored(self, state: ElectionState, directory: bytes) -> None:
        """The content of the quorum-state file at a start, and the id of its disk."""
        self._tracer.emit("quorum_restored", **_elections(state), directory=id_text(directory))

    def persisted(self, state: ElectionState) -> None:
        """The content of the quorum-state file, which is durable now."""
        self._tracer.emit("quorum_persisted", **_elections(state))

    def role(self, role: Role) -> bool:
        """Write the role after an event if it differs from the last one written. Returns whether it did."""
        state = (role.name, role.epoch, role.leader_id)
        if state == self._role:
            return False
        self._role = state
        leader = NO_NODE if role.leader_id is None else role.leader_id
        self._tracer.emit("quorum_role", role=role.name, epoch=role.epoch, leader=leader)
        return True

    def vote(self, request: Request, response: Response) -> None:
        """Write a vote before it leaves, so that no node counts a vote that is missing in the trace."""
        if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse):
            return
        if response.granted and not request.pre_vote:
            self._tracer.emit("quorum_vote", epoch=request.epoch, candidate=request.candidate_id)

    def leader_change(self, change: LeaderChangeMessage, offset: int, epoch: int) -> None:
        """A leader's epoch is committed. The log loses the names of its voters once a snapshot replaces these
        records."""
        self._tracer.emit(
            "quorum_leader_change",
            offset=offset,
            epoch=epoch,
            leader=change.leader_id,
            voters=[voter.voter_id for voter in change.voters],
            granting=[voter.voter_id for voter in change.granting_voters],
        )

    def truncation(self, end: int, offset: int) -> None:
        """The metadata log, which ended at `end`, is truncated to `offset`."""
        self._tracer.emit(
            "truncated", topic=METADATA_TOPIC, partition=PARTITION, from_offset=end, to_offset=offset, rule="K595-40"
        )

    def snapshot_damaged(self, snapshot: OffsetAndEpoch, error: Exception) -> None:
        """The bytes of a snapshot are not those that were written."""
        self._tracer.emit("quorum_snapshot_damaged", offset=snapshot.offset, epoch=snapshot.epoch, error=str(error))


def _elections(state: ElectionState) -> dict[str, int]:
    leader, voted = (NO_NODE if each is None else each for each in (state.leader_id, state.voted_id))
    return {"epoch": state.epoch, "leader": leader, "voted": voted}
