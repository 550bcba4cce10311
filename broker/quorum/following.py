"""The follower's part: finds the leader, fetches from it, truncates divergent records.

Source: KIP-595, BeginQuorumEpoch, EndQuorumEpoch and Fetch.
"""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.protocol.schema import NO_ID
from broker.quorum.core import Core
from broker.quorum.effects import (
    AppendAsFollower,
    CommitEffect,
    Flush,
    InstallSnapshot,
    KeepPiece,
    Reply,
    Send,
    TruncateEffect,
)
from broker.quorum.messages import (
    BeginRequest,
    BeginResponse,
    EndRequest,
    EndResponse,
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    SnapshotRequest,
    SnapshotResponse,
)
from broker.quorum.roles import Follower, Prospective, Unattached, Voted


class Following:
    """The part of the state machine that copies the leader's log."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._truncates_committed = core.mutants.active("truncate_below_hw")

    # --- announcements of leaders

    def receive_begin(self, now: float, ticket: int, request: BeginRequest) -> None:
        """Follow a newly elected leader, unless the request contradicts the known leader of its epoch (K595-24,
        K595-25)."""
        error = self._begin(now, request)
        role = self._core.role
        self._core.emit(Reply(ticket, BeginResponse(error, role.leader_id, role.epoch)))

    def _begin(self, now: float, request: BeginRequest) -> ErrorCode:
        core = self._core
        if not core.is_meant(request.voter_directory):
            named = request.voter_directory != NO_ID
            return ErrorCode.INVALID_VOTER_KEY if named else ErrorCode.INCONSISTENT_VOTER_SET
        if request.leader_id not in core.settings.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.epoch < core.role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.leader_id == core.settings.node_id:
            return ErrorCode.INVALID_REQUEST
        if request.epoch == core.role.epoch and core.role.elected_id is not None:
            return ErrorCode.NONE if core.role.elected_id == request.leader_id else ErrorCode.INVALID_REQUEST
        core.become_follower(now, request.epoch, request.leader_id)
        return ErrorCode.NONE

    def receive_end(self, now: float, ticket: int, request: EndRequest) -> None:
        """Stand in the order of the successors when this epoch's leader or candidate resigns (K595-12, K595-29,
        K595-30)."""
        error = self._end(now, request)
        role = self._core.role
        self._core.emit(Reply(ticket, EndResponse(error, role.leader_id, role.epoch)))

    def _end(self, now: float, request: EndRequest) -> ErrorCode:
        core = self._core
        role = core.role
        if not core.is_voter:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.leader_id is not None and request.leader_id not in core.settings.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.epoch < role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > role.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if request.leader_id != role.leader_id:
            return ErrorCode.INVALID_REQUEST
        if core.settings.node_id not in request.preferred_successors:
            return ErrorCode.INCONSISTENT_VOTER_SET
        position = request.preferred_successors.index(core.settings.node_id)
        stand_at = now + core.settings.successor_delay(position)
        if isinstance(role, Follower) or (
            isinstance(role, Unattached | Voted) and role.election_at is not None and stand_at < role.election_at
        ):
            role.stand_at(stand_at)
        return ErrorCode.NONE

    # --- fetching

    def poll(self, now: float) -> None:
        """Send the next fetch if it is due and everything that was fetched before is on disk."""
        core = self._core
        role = core.role
        if not isinstance(role, Unattached | Voted | Follower) or core.log_in_motion:
            return
        loop = role.fetching
        if loop.inflight is not None or now < loop.not_before:
            return
        voter = loop.next_voter()
        if voter is None:
            return
        if isinstance(role, Follower) and role.download is not None and voter == role.leader:
            loop.inflight = SnapshotRequest(
                cluster_id=core.cluster_id,
                replica_id=core.settings.node_id,
                epoch=role.epoch,
                snapshot=role.download.snapshot,
                position=role.download.position,
                max_bytes=core.settings.fetch_max_bytes,
                directory=core.settings.directory_id,
            )
            core.emit(Send(voter, loop.inflight))
            return
        loop.inflight = FetchRequest(
            cluster_id=core.cluster_id,
            replica_id=core.settings.node_id,
            epoch=role.epoch,
            fetch_from=core.log_end(),
            max_wait=core.settings.fetch_max_wait_s,
            max_bytes=core.settings.fetch_max_bytes,
            directory=core.settings.directory_id,
        )
        core.emit(Send(voter, loop.inflight))

    def deadline(self) -> float | None:
        """The time of the next fetch."""
        role = self._core.role
        if not isinstance(role, Unattached | Voted | Follower) or self._core.log_in_motion:
            return None
        if not self._core.settings.other_voters:
            return None  # the only voter is this node
        return role.fetching.not_before if role.fetching.inflight is None else None

    def unanswered(self, now: float, request: FetchRequest | SnapshotRequest) -> None:
        """The request failed or timed out, or its records were rejected."""
        role = self._core.role
        loop = role.fetching if isinstance(role, Unattached | Voted | Follower | Prospective) else None
        if loop is not None and loop.inflight is request:
            loop.failed(now)

    def refused(self, now: float, voter: int) -> None:
        """The leader's host refused the connection: the leader's process has ended, so do not wait for the fetch
        timeout.

        Pre-votes keep this safe: a leader that is still alive is not disturbed.
        """
        role = self._core.role
        if not isinstance(role, Follower) or voter != role.leader or role.fetch_deadline is None:
            return
        if not role.leader_is_gone:
            role.stand_at(self._core.election_time(now, 0.0))

    def answered(self, now: float, voter: int, request: FetchRequest, response: FetchResponse) -> None:
        """Handle the answer to the one fetch in flight. Any other answer is stale: the log may have changed since."""
        self._find_leader_again(now, voter, request, response)
        role = self._core.role
        if not isinstance(role, Unattached | Voted | Follower) or role.fetching.inflight is not request:
            return
        by_leader = isinstance(role, Follower) and voter == role.leader and response.epoch == role.epoch
        if isinstance(role, Follower) and by_leader and response.error is ErrorCode.NONE:
            self._succeeded(now, role, response)
            return
        role.fetching.failed(now)
        if isinstance(role, Unattached):
            self._note_leaderless(now, role, voter, response)

    def _find_leader_again(
        self,
        now: float,
        voter: int,
        request: FetchRequest | SnapshotRequest,
        response: FetchResponse | SnapshotResponse,
    ) -> None:
        """Follow the lost leader again: its answer to the fetch in flight arrived while this node asks for
        pre-votes."""
        core, role = self._core, self._core.role
        if not isinstance(role, Prospective) or role.fetching is None or role.fetching.inflight is not request:
            return
        if response.error is not ErrorCode.NONE or (voter, response.epoch) != (role.leader_id, role.epoch):
            role.fetching.failed(now)
            return
        core.become_follower(now, role.epoch, voter)
        assert isinstance(core.role, Follower)
        core.role.resume(role)

    def _note_leaderless(self, now: float, role: Unattached, voter: int, response: FetchResponse) -> None:
        """Stand at once when a majority knows no leader: a longer wait would not find one (K595-48).

        Pre-votes make this safe: an early election does not disturb a leader that the others lost.
        """
        core = self._core
        if response.epoch < role.epoch or (response.epoch == role.epoch and response.leader_id is None):
            role.missed_leader(voter)
        if len(role.leaderless) + 1 >= core.voters.majority and not role.hurried and role.election_at is not None:
            role.hurry(core.election_time(now, 0.0))

    def _succeeded(self, now: float, role: Follower, response: FetchResponse) -> None:
        core = self._core
        role.fetching.succeeded()
        core.note_leader(now, role.leader)
        role.heard_leader(now + core.settings.fetch_timeout_s)
        if response.snapshot is not None:
            role.begin_download(response.snapshot)
            return
        if response.diverging is not None:
            # The high watermark of this answer is not for this log: it moves only after the truncation (H7).
            self._truncate(response.diverging)
            return
        role.learn_high_watermark(response.high_watermark)
        self.advance_high_watermark(role)
        if response.records:
            core.log_in_motion = True
            core.emit(AppendAsFollower(role.epoch, response.records), Flush())

    def snapshot_answered(self, now: float, voter: int, request: SnapshotRequest, response: SnapshotResponse) -> None:
        """Keep a part of the snapshot. When all parts are here, the log restarts at the snapshot's end (KIP-630).

        A part at an unexpected position, or of a snapshot that the leader no longer has, ends the download. The answer
        to
        the next Fetch says how to continue.
        """
        self._find_leader_again(now, voter, request, response)
        core, role = self._core, self._core.role
        if not isinstance(role, Follower) or role.fetching.inflight is not request or role.download is None:
            return
        download = role.download
        next_one = (response.snapshot, response.position) == (download.snapshot, download.position)
        if (
            response.error is not ErrorCode.NONE
            or (voter, response.epoch) != (role.leader, role.epoch)
            or not next_one
            or not response.data
        ):
            role.end_download()
            role.fetching.failed(now)
            return
        role.fetching.succeeded()
        core.note_leader(now, role.leader)
        role.heard_leader(now + core.settings.fetch_timeout_s)
        core.emit(KeepPiece(download.snapshot, download.position, response.data))
        download.took(len(response.data))
        if download.position < response.size:
            return
        role.end_download()
        if download.snapshot.offset > core.high_watermark:
            core.log_in_motion = True
            core.high_watermark = download.snapshot.offset
            core.snapshot = download.snapshot
            core.emit(InstallSnapshot(download.snapshot), Flush())

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """Remove offsets >= the leader's end of that epoch, and every epoch above it (K595-40).

        `end_offset_for` takes the largest local epoch <= the leader's epoch. With "<", as KIP-595 has it, records that
        both
        logs share would be removed, committed ones among them (H25).
        """
        core = self._core
        offset = min(diverging.offset, core.end_offset_for(diverging.epoch).offset)
        if offset < core.high_watermark and not self._truncates_committed:
            core.fail(
                f"the leader {core.role.leader_id} of epoch {core.role.epoch} asks to truncate the metadata log to "
                f"{offset}, below the high watermark {core.high_watermark}: a voter has lost committed records"
            )
            return
        core.log_in_motion = True
        core.emit(TruncateEffect(offset), Flush())

    def flushed(self) -> None:
        """The fetched records are durable: advance the high watermark to what the leader has committed of them."""
        role = self._core.role
        if isinstance(role, Follower):
            self.advance_high_watermark(role)

    def advance_high_watermark(self, role: Follower) -> None:
        """Advance to the leader's high watermark, at most to the end of this log."""
        core = self._core
        known = min(role.leader_high_watermark, core.log.durable_end_offset)
        if known > core.high_watermark:
            core.high_watermark = known
            core.emit(CommitEffect(known, role.epoch))
