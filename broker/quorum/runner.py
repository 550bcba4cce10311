"""Runs a quorum member: one task feeds events to the state machine and executes the effects.

Theory of operation. Everything that reaches the state machine goes through one bounded queue: requests of other nodes,
answers, timers, ends of fsyncs, appends. All effects of an event are executed in order before the next event. So a vote
is on disk before its answer leaves, and what other code sees of this node (`leader_id`, `epoch`, ...) is durable.

Decides when this node writes the next snapshot of the metadata log (KIP-630, KIP-876): by bytes, or by time.

Every node, voter or observer, decides on its own. Time alone triggers no snapshot: something must have been applied
since the last one. An idle cluster still commits records that prove the leadership; without the limit of time the next
start would read all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from broker.config import BrokerConfig
from broker.descriptors import opening, with_descriptors
from broker.environment import BrokerEnvironment
from broker.errors import AppendRefusedError, CommitUncertainError, ErrorCode, NotLeaderError, ProtocolError
from broker.log.checkpoint import OffsetCheckpoint
from broker.log.log import PartitionLog
from broker.peers import Peers
from broker.protocol.messages.control_records import LeaderChangeMessage
from broker.protocol.records import CorruptBatch
from broker.protocol.uuids import id_text
from broker.quorum import effects as do
from broker.quorum.committed import committed_batches, data_batch, digest_with, leader_change_batch
from broker.quorum.election_state import QUORUM_STATE, ElectionFile, ElectionState
from broker.quorum.leading import QuorumStatus
from broker.quorum.messages import (
    EndRequest,
    FetchResponse,
    OffsetAndEpoch,
    Request,
    Response,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.quorum_metrics import QuorumMeasures
from broker.quorum.raft_node import RaftNode
from broker.quorum.roles import Candidate, Leader, Prospective, Role
from broker.quorum.settings import QuorumSettings
from broker.quorum.snapshots import Snapshots, know_epoch
from broker.quorum.voter_records import check_lone_voter, named_voters, read_voters, voters_batch
from broker.quorum.voters import VoterHistory, VoterSet
from broker.quorum.wire import METADATA_TOPIC, NO_NODE, PARTITION, decode_response, encode_request
from broker.trace import Tracer

# ---- Writes the trace events of a quorum member about elections and its log: evidence for the analysis of a run.


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
    leader, voted = (NO_NODE if node_id is None else node_id for node_id in (state.leader_id, state.voted_id))
    return {"epoch": state.epoch, "leader": leader, "voted": voted}


class SnapshotSchedule:
    """Counts applied bytes. `now` is the loop's time in seconds. `taken` restarts the count."""

    def __init__(self, after_bytes: int, interval_s: float) -> None:
        """`interval_s` 0: only the bytes count."""
        self._after_bytes = after_bytes
        self._interval_s = interval_s
        self._since = 0.0
        self._bytes = 0
        self._has_more = False
        self._demanded = False

    @classmethod
    def of(cls, config: BrokerConfig) -> "SnapshotSchedule":
        interval_s = config.metadata_log_max_snapshot_interval_ms / 1000
        return cls(config.metadata_log_max_record_bytes_between_snapshots, interval_s)

    def applied(self, size: int) -> None:
        """A batch with `size` bytes of records, possibly 0, was applied."""
        self._bytes += size
        self._has_more = True

    def demand(self) -> None:
        """Request a snapshot at once, because the current one is damaged."""
        self._demanded = True

    def taken(self, now: float) -> None:
        """A snapshot of everything applied exists, or this node starts."""
        self._since = now
        self._bytes = 0
        self._has_more = self._demanded = False

    def is_due(self, now: float) -> bool:
        """Whether to write a snapshot now."""
        deadline = self.or_earlier(None)
        return self._demanded or self._bytes >= self._after_bytes or (deadline is not None and now >= deadline)

    def or_earlier(self, deadline: float | None) -> float | None:
        """The given deadline, or the time of the next snapshot if that is earlier."""
        if not self._has_more or not self._interval_s:
            return deadline
        due = self._since + self._interval_s
        return due if deadline is None else min(due, deadline)


# ---- Pending calls of the quorum: requests that wait for an answer, and appends that wait for their commit.

T = TypeVar("T")


class _Uncommitted(NamedTuple):
    last_offset: int
    call: asyncio.Future[int]


class PendingCalls:
    """Futures by ticket. A ticket is valid while its caller waits; later results for it are dropped.

    Invariant: an append is refused only if none of it was written. From `appending` on, its outcome is committed or
    uncertain.
    """

    def __init__(self) -> None:
        self._last_ticket = 0
        self._answers: dict[int, asyncio.Future[Response]] = {}
        self._appends: dict[int, asyncio.Future[int]] = {}
        self._uncommitted: deque[_Uncommitted] = deque()

    def for_answer(self) -> tuple[int, asyncio.Future[Response]]:
        """A new ticket for a request, and the future of its answer."""
        return self._add(self._answers)

    def for_commit(self) -> tuple[int, asyncio.Future[int]]:
        """A new ticket for an append, and the future of its last offset."""
        return self._add(self._appends)

    def _add(self, waiting: dict[int, asyncio.Future[T]]) -> tuple[int, asyncio.Future[T]]:
        self._last_ticket += 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting[self._last_ticket] = future
        return self._last_ticket, future

    def forget(self, ticket: int) -> None:
        """The caller no longer waits."""
        self._answers.pop(ticket, None)
        self._appends.pop(ticket, None)

    def wanted(self, ticket: int) -> bool:
        """Whether the caller still waits for the answer."""
        return ticket in self._answers

    def answer(self, ticket: int, response: Response) -> None:
        _settle(self._answers.get(ticket), response)

    def refuse(self, ticket: int) -> None:
        """Fail an append that wrote nothing."""
        _settle(self._appends.get(ticket), NotLeaderError("this node does not lead the quorum"))

    def appending(self, ticket: int, last_offset: int) -> None:
        """Record that an append is about to be written up to `last_offset`."""
        call = self._appends.get(ticket)
        if call is not None:
            self._uncommitted.append(_Uncommitted(last_offset, call))

    def committed(self, high_watermark: int) -> None:
        """Complete the appends whose records are all below the high watermark (K595-53)."""
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            done = self._uncommitted.popleft()
            _settle(done.call, done.last_offset)

    def leadership_lost(self) -> None:
        """Fail all uncommitted appends as uncertain: another leader may still commit them."""
        while self._uncommitted:
            _settle(
                self._uncommitted.popleft().call, CommitUncertainError("leadership lost before the commit was known")
            )

    def close(self) -> None:
        """This node has stopped: fail all pending calls."""
        self.leadership_lost()
        for ticket in list(self._appends):
            self.refuse(ticket)
        for answer in self._answers.values():
            _settle(answer, stopped())


def stopped() -> ProtocolError:
    """The error for every call of a stopped quorum."""
    return ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata quorum of this broker is not running")


def _settle(future: asyncio.Future[T] | None, outcome: T | ProtocolError) -> None:
    if future is None or future.done():
        return
    if isinstance(outcome, ProtocolError):
        future.set_exception(outcome)
        future.exception()  # mark it as retrieved: a caller that waits for a place in the queue never reads it
    else:
        future.set_result(outcome)


QUEUED_EVENTS = 1_024
"""Capacity of the event queue; the sender of a further event waits."""

MARK_FILE = "high-watermark-checkpoint"
MARK = (METADATA_TOPIC, PARTITION)

BATCHES_IN_A_ROW = 64
"""Committed batches that are delivered before other tasks get the loop: a restarted node may have many."""

Event = Callable[[float], list[do.Effect]]


@dataclass(frozen=True)
class StateMachine:
    """The state that the records of the metadata log build, as the quorum uses it."""

    on_commit: Callable[[int, int, list[bytes]], None]
    """`on_commit(base_offset, epoch, records)` is called on every node for each committed batch of data records, in
    order; after a restart, from the log's start."""
    on_leadership: Callable[[int | None], None]
    """Called with the epoch when this node leads and everything up to its own LeaderChange record was passed to
    `on_commit`; with None when the leadership ends."""
    records: Callable[[], list[bytes]]
    """Returns records that represent everything that was passed to `on_commit`."""
    on_snapshot: Callable[[int, list[bytes]], None]
    """`on_snapshot(end_offset, records)` replaces the state below `end_offset` by such records."""
    on_failure: Callable[[Exception], None]
    """Called with the error for which the node stops itself."""


class QuorumFailedError(Exception):
    """This node must stop, because continuing would break a promise. The message names the promise."""


class QuorumRunner:
    """This node as a member of the metadata quorum, voter or observer: a `RaftNode` on a log, a disk and the running
    loop.

    `leader_id`, `epoch`, `is_leader` and `high_watermark` show the state after the last event. Everything below
    `high_watermark` was passed to the state machine. `failure` is the error for which this node stopped itself.
    """

    def __init__(
        self,
        environment: BrokerEnvironment,
        machine: StateMachine,
        *,
        log: PartitionLog,
        connector: Peers,
        cluster_id: str | None,
        directory_id: bytes,
    ) -> None:
        """`cluster_id`: None while this node does not know it. `directory_id`: the id of the disk."""
        config, disk, mutants = environment.config, environment.disk, environment.mutants
        self.leader_id: int | None = None
        self.epoch = 0
        self.high_watermark = 0
        self.is_leader = False
        self.failure: Exception | None = None
        self.voters = config.voters
        self.listener_name = next(iter(config.controller_names), "PLAINTEXT")
        self._settings = QuorumSettings.from_config(config, cluster_id, directory_id)
        self._history = VoterHistory(self._settings.voters)
        self._environment = environment
        self._machine = machine
        self._forgets_votes = mutants.active("vote_not_persisted")
        self._forgets_own_votes = mutants.active("self_vote_not_persisted")
        self._votes_before_sync = mutants.active("vote_reply_before_fsync")
        self._flushed_before_sync = mutants.active("follower_fetch_before_fsync")
        self._log = log
        self._connector = connector
        self._tracer = environment.tracer
        self._quorum_trace = QuorumTrace(self._tracer)
        self._file = ElectionFile(disk, f"{log.directory}/{QUORUM_STATE}")
        self._events: asyncio.Queue[Event] = asyncio.Queue(QUEUED_EVENTS)
        self._turn = asyncio.Lock()
        self._node: RaftNode | None = None
        self._closed = False
        self._applied = log.log_start_offset
        self._digest: int | None = 0
        """None after a snapshot: this node does not have the batches before it."""
        self._snapshots = Snapshots(disk, log.directory)
        self._marks = OffsetCheckpoint(disk, f"{log.directory}/{MARK_FILE}")
        self._mark_interval_s = config.high_watermark_checkpoint_interval_ms / 1000
        self._schedule = SnapshotSchedule.of(config)
        self._announced = False
        self.measures = QuorumMeasures()
        self._calls = PendingCalls()
        self._flush_wanted = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._tick_queued = False
        self._sends: dict[asyncio.Task[None], Request] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def role(self) -> Role:
        """The role after the last event. Raises `ProtocolError` once the quorum has stopped."""
        return self._running().role

    @property
    def member(self) -> RaftNode:
        """The state machine itself. Raises `ProtocolError` once the quorum has stopped."""
        return self._running()

    @property
    def has_started(self) -> bool:
        """Whether the log matches its snapshot and this node takes part in the quorum, or did."""
        return self._node is not None

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The voters that the log names; those of `quorum.voters` while the log names none."""
        return self._history.current.ids

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The voters that must take part before a new quorum commits anything; empty unless this node leads it."""
        return () if self._node is None or self._closed else self._node.waits_for()

    @property
    def log_end(self) -> OffsetAndEpoch:
        """The end of the metadata log."""
        return OffsetAndEpoch(self._log.last_epoch, self._log.log_end_offset)

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    # --- start and stop

    async def start(self) -> None:
        """Read the quorum-state file, make it and the log durable, and take part. Raises `StartupError`, `OSError`."""
        stored = self._file.read(self._settings.voters)
        self._quorum_trace.restored(stored, self._settings.directory_id)
        # A process that was killed may have left records in the page cache. They count from now on, so sync them.
        await self._log.flush()
        loop = asyncio.get_running_loop()
        self._schedule.taken(loop.time())
        snapshot = await self._snapshots.restore(self._log)
        records = [] if snapshot is None else self._recall(snapshot)
        read_voters(self._log, self._history)
        check_lone_voter(self._settings, self._history.current)
        rng, mutants = self._environment.rng, self._environment.mutants
        self._node = RaftNode(loop.time(), self._settings, stored, self._log, self._history, rng, mutants)
        if snapshot is not None:
            await self._begin_at(snapshot, records)
        committed_offset = min(self._marks.read().get(MARK, 0), self._log.log_end_offset)
        committed = self._node.remember_committed(committed_offset, stored.epoch)
        await self._do([*self._node.start(loop.time()), *committed])
        self._tasks = [
            loop.create_task(self._run()),
            loop.create_task(self._keep_flushing()),
            loop.create_task(self._keep_high_watermark()),
        ]

    async def stop(self) -> None:
        """Resign, notify the voters as far as possible within the request timeout, and end all tasks."""
        if self._node is not None and not self._closed:
            with suppress(TimeoutError, ProtocolError):  # best effort: other voters notice by their own timers
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await self.ask(self._node.shut_down)
                    ends = [task for task, request in self._sends.items() if isinstance(request, EndRequest)]
                    if ends:
                        await asyncio.wait(ends)
        async with self._turn:  # no event is handled half
            self._close()
        await asyncio.gather(*self._tasks, *self._sends, return_exceptions=True)

    def _close(self) -> None:
        """Refuse further calls and fail the pending ones."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._tasks, *self._sends):
            if task is not asyncio.current_task():
                task.cancel()
        while not self._events.empty():
            self._events.get_nowait()
        self.leader_id = None
        self._lose_leadership()
        self._calls.close()

    def _fail(self, error: Exception) -> None:
        """Stop permanently: after a failed write the content of the disk is unknown."""
        self.failure = error
        self._tracer.emit("quorum_failed", error=str(error))
        self._close()
        self._machine.on_failure(error)

    # --- events

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                idle_since = loop.time()
                event = await self._events.get()
                self.measures.turn(loop.time() - idle_since, loop.time())
                async with self._turn:
                    await self._do(event(loop.time()))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(error)

    async def _put(self, event: Event) -> None:
        """Queue an event. Raises `ProtocolError` once the quorum has stopped."""
        if not self._closed:
            await self._events.put(event)
        if self._closed:
            raise stopped()

    async def ask(self, event: Event) -> None:
        """Return after an event was handled and its effects were executed."""
        ticket, handled = self._calls.for_answer()
        done = do.Reply(ticket, Response(ErrorCode.NONE, None, 0))
        try:
            await self._put(lambda now: [*event(now), done])
            await handled
        finally:
            self._calls.forget(ticket)

    async def receive(self, request: Request) -> Response:
        """Pass a request of another node to the state machine and return its answer; a fetch may wait."""
        node = self._running()
        ticket, answer = self._calls.for_answer()
        try:
            await self._put(lambda now: node.receive(now, ticket, request))
            response = await answer
            self._quorum_trace.vote(request, response)
            return response
        finally:
            self._calls.forget(ticket)

    async def append(self, records: Sequence[bytes]) -> int:
        """Commit records as one batch; return the last record's offset once a majority has them on disk (K595-53).

        Raises `AppendRefusedError` for more bytes than a batch may have, `NotLeaderError` when certainly nothing was
        written, and `CommitUncertainError` when leadership was lost before the commit was known. `on_commit` has been
        called before this returns.
        """
        if not records:
            raise ValueError("an append needs at least one record")
        size, size_limit = sum(map(len, records)), self._settings.append_max_bytes
        if size > size_limit:
            limit = f"{size} bytes of metadata in one operation; a batch of the log may have {size_limit}"
            raise AppendRefusedError(ErrorCode.POLICY_VIOLATION, limit)
        node = self._running()
        ticket, last_offset = self._calls.for_commit()
        try:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await self._put(lambda now: node.append(now, ticket, tuple(records)))
            offset = await last_offset
            self.measures.commits.note(loop.time(), loop.time() - began)
            return offset
        finally:
            self._calls.forget(ticket)

    async def resign(self, epoch: int) -> None:
        """Resign from the leadership of this epoch if this node still holds it, because it cannot decide anything."""
        node = self._running()
        await self.ask(lambda now: node.resign(now, epoch))

    async def status(self) -> tuple[QuorumStatus | None, float]:
        """The leader's view of the quorum (None when this node does not lead), and the loop's time of that view."""
        node = self._running()
        statuses: list[tuple[QuorumStatus | None, float]] = []

        def look(now: float) -> list[do.Effect]:
            statuses.append((node.describe(now), now))
            return []

        await self.ask(look)
        return statuses[0]

    def learn_cluster_id(self, cluster_id: str | None) -> None:
        """Use the cluster id of the committed records (None: not yet known)."""
        if cluster_id is not None:
            self._running().learn_cluster_id(cluster_id)

    def _running(self) -> RaftNode:
        if self._node is None or self._closed:
            raise stopped()
        return self._node

    # --- effects

    async def _do(self, effects: list[do.Effect]) -> None:
        """Execute all effects of an event in order, then publish the state and set the timer."""
        for effect in effects:
            match effect:
                case do.Persist(state):
                    await self._persist(state)
                case do.TruncateEffect(offset):
                    await self._truncate(offset)
                case do.AppendLeaderChange(epoch, leader, voters, granted):
                    await self._log.start_leader_epoch(epoch)
                    batch = leader_change_batch(leader, voters, granted, self.wall_ms())
                    await opening(partial(self._log.append_as_leader, batch, epoch))
                case do.AppendVoters(epoch, voters):
                    batch = voters_batch(voters, self.voters, self.listener_name, self.wall_ms())
                    await opening(partial(self._log.append_as_leader, batch, epoch))
                    self._take_voters(self._log.log_end_offset - 1, voters)
                case do.AppendAsLeader(epoch, records, ticket):
                    self._calls.appending(ticket, self._log.log_end_offset + len(records) - 1)
                    batch = data_batch(records, self.wall_ms())
                    await opening(partial(self._log.append_as_leader, batch, epoch))
                    self.measures.appended.note(asyncio.get_running_loop().time(), len(records))
                case do.AppendAsFollower(epoch, records):
                    added = await with_descriptors(partial(self._log.replicate, records, epoch))
                    number = added.last_offset - added.base_offset + 1
                    self.measures.fetched.note(asyncio.get_running_loop().time(), number)
                    for offset, voters in named_voters(records):
                        if offset <= added.last_offset:
                            self._take_voters(offset, voters)
                case do.InstallSnapshot(snapshot):
                    await self._install(snapshot)
                case do.CommitEffect(high_watermark, epoch):
                    await self._commit(high_watermark, epoch)
                case do.KeepPiece() | do.Reply(read=do.ReadSnapshot()):
                    await opening(partial(self._do_at_once, effect))
                case _:
                    self._do_at_once(effect)
        if self._schedule.is_due(asyncio.get_running_loop().time()):
            await self._take_snapshot()
        self._show()
        self._set_timer()

    # --- snapshots

    async def _truncate(self, offset: int) -> None:
        """Remove the records that the leader does not have. A truncation to the snapshot's end also removes an epoch
        that
        started at this offset, so the snapshot's epoch is registered again as the log's last one."""
        self._quorum_trace.truncation(self._log.log_end_offset, offset)
        await self._log.truncate_to(offset)
        await know_epoch(self._log, self._running().snapshot)  # after a crash before this line, `restore` does it
        self._history.truncated(offset)

    async def _install(self, snapshot: OffsetAndEpoch) -> None:
        """Replace log and state by a fetched snapshot. After a crash in between, the old or the new ones are
        complete."""
        await opening(partial(self._snapshots.check, snapshot))
        self._quorum_trace.truncation(self._log.log_end_offset, self._log.log_start_offset)
        await with_descriptors(partial(self._snapshots.finish, snapshot))
        await self._log.truncate_fully_and_start_at(snapshot.offset)
        await know_epoch(self._log, snapshot)
        await self._begin_at(snapshot, await opening(partial(self._recall, snapshot)))

    def _recall(self, snapshot: OffsetAndEpoch) -> list[bytes]:
        """The records of the snapshot at whose end the log starts. Also restores the snapshot's voters."""
        records, voters = self._snapshots.load(snapshot)
        self._history.begins_at(snapshot.offset, voters)
        return records

    async def _begin_at(self, snapshot: OffsetAndEpoch, records: list[bytes]) -> None:
        """Replace the state by the content of a snapshot."""
        await self._snapshots.remove_older(snapshot)
        self._machine.on_snapshot(snapshot.offset, records)
        self._applied = self.high_watermark = snapshot.offset
        self._digest = None
        self._schedule.taken(asyncio.get_running_loop().time())
        self._running().snapshot_taken(snapshot)
        self._tracer.emit("quorum_snapshot", offset=snapshot.offset, epoch=snapshot.epoch, records=len(records))

    async def _take_snapshot(self) -> None:
        """Write a snapshot of the applied state and remove the log below it (KIP-630)."""
        self._schedule.taken(asyncio.get_running_loop().time())
        snapshot = self._running().snapshot
        if snapshot is None or snapshot.offset != self._applied:
            snapshot = OffsetAndEpoch(self._log.epochs.epoch_at(self._applied - 1), self._applied)
        records, voters, now = self._machine.records(), self._history.as_of(snapshot.offset), self.wall_ms()
        named = None if voters is None else voters_batch(voters, self.voters, self.listener_name, now)
        await with_descriptors(partial(self._snapshots.write_durably, snapshot, records, named, now))
        self._running().snapshot_taken(snapshot)
        await opening(self._log.roll)
        await self._log.advance_start(snapshot.offset)
        await self._snapshots.remove_older(snapshot)
        self._tracer.emit("quorum_snapshot", offset=snapshot.offset, epoch=snapshot.epoch, records=len(records))

    def _take_voters(self, offset: int, voters: VoterSet) -> None:
        self._history.appended(offset, voters)
        self._tracer.emit("quorum_voters", offset=offset, voters=list(voters.ids))

    async def _persist(self, state: ElectionState) -> None:
        granted = state.leader_id is None and state.voted_id not in (None, self._settings.node_id)
        if granted and self._forgets_votes:
            return
        if state.voted_id == self._settings.node_id and state.leader_id is None and self._forgets_own_votes:
            return
        if granted and self._votes_before_sync:
            self._tasks.append(asyncio.get_running_loop().create_task(self._file.write_durably(state)))
            return
        await self._file.write_durably(state)
        self._quorum_trace.persisted(state)

    def _do_at_once(self, effect: do.Effect) -> None:
        """Execute an effect that needs no wait."""
        match effect:
            case do.Send(to, request):
                self._send(to, request)
            case do.Reply():
                self._reply(effect)
            case do.KeepPiece(snapshot, position, data):
                self._snapshots.append(snapshot, position, data)
            case do.Flush():
                self._flush_wanted.set()
            case do.RefuseAppend(ticket):
                self._calls.refuse(ticket)
            case do.LeadershipEstablished(epoch):
                self._announced = True
                self._machine.on_leadership(epoch)
            case do.LeadershipLost():
                self._lose_leadership()
            case do.Fail(reason):
                raise QuorumFailedError(reason)

    def _send(self, to: int, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._exchange(to, request))
        self._sends[task] = request
        task.add_done_callback(lambda done: self._sends.pop(done, None))

    async def _exchange(self, to: int, request: Request) -> None:
        """Send a request; the state machine gets its answer, or the failure."""
        node = self._running()
        response: Response | None = None
        refused = False
        try:
            answer = await self._connector.request(to, encode_request(request, to), self._settings.request_timeout_s)
            response = decode_response(request, answer)
        except (ConnectionError, TimeoutError) as error:
            refused = isinstance(error, ConnectionRefusedError)
        except Exception as error:
            # Whatever the error: the state machine must get a result, or it waits for ever.
            self._tracer.emit("quorum_bad_answer", peer=to, error=f"{type(error).__name__}: {error}")
        if self._closed:
            return
        if response is None or response.error is ErrorCode.BROKER_NOT_AVAILABLE:
            await self._events.put(partial(node.unanswered, voter=to, request=request, refused=refused))
        else:
            await self._events.put(partial(node.answered, voter=to, request=request, response=response))

    def _reply(self, effect: do.Reply) -> None:
        """Answer, with the records or snapshot bytes that a fetch asked for. Reads nothing if the caller no longer
        waits."""
        if not self._calls.wanted(effect.ticket):
            return
        response = effect.response
        if isinstance(effect.read, do.ReadSnapshot) and isinstance(response, SnapshotResponse):
            try:
                response = self._snapshots.answer(response, effect.read, asyncio.get_running_loop().time())
            except CorruptBatch as error:  # a new snapshot is made from the applied state
                self._quorum_trace.snapshot_damaged(effect.read.snapshot, error)
                self._schedule.demand()
                response = replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        elif isinstance(effect.read, do.Read) and isinstance(response, FetchResponse):
            end = self._log.log_end_offset
            response = replace(response, records=self._log.read(effect.read.offset, effect.read.max_bytes, end))
        self._calls.answer(effect.ticket, response)

    async def _commit(self, high_watermark: int, epoch: int) -> None:
        """Deliver committed records in order, then complete the appends that wait for them."""
        for count, batch in enumerate(committed_batches(self._log, self._applied, high_watermark), 1):
            if batch.leader_change is not None:
                self._quorum_trace.leader_change(batch.leader_change, batch.base_offset, batch.epoch)
            elif batch.records:
                self._machine.on_commit(batch.base_offset, batch.epoch, batch.records)
            self._applied = batch.next_offset
            self._schedule.applied(sum(map(len, batch.records)))
            if self._digest is not None:
                self._digest = digest_with(self._digest, batch)
            if count % BATCHES_IN_A_ROW == 0:
                await asyncio.sleep(0)
        settles = self.high_watermark <= self._history.first_offset < high_watermark
        self.high_watermark = high_watermark
        if settles:  # from now on a majority is enough, also after a restart
            await self._marks.write_durably({MARK: high_watermark})
        self._tracer.emit("quorum_high_watermark", offset=high_watermark, epoch=epoch, digest=self._digest)
        self._calls.committed(high_watermark)

    def _lose_leadership(self) -> None:
        self.is_leader = False
        if self._announced:
            self._announced = False
            self._machine.on_leadership(None)
        self._calls.leadership_lost()

    async def _keep_flushing(self) -> None:
        """Fsync whenever appends request it. All appends during one fsync share the next."""
        node = self._running()
        try:
            while True:
                await self._flush_wanted.wait()
                self._flush_wanted.clear()
                if self._flushed_before_sync and not self.is_leader:
                    await self._events.put(node.synced_by_mistake)
                await self._log.flush()
                await self._events.put(node.flushed)
        except OSError as error:
            self._fail(error)

    async def _keep_high_watermark(self) -> None:
        """Store the high watermark periodically (K595-7): a restarted node uses it before it has a leader."""
        written = 0
        try:
            while True:
                await asyncio.sleep(self._mark_interval_s)
                if self.high_watermark > written:
                    written = self.high_watermark
                    await self._marks.write_durably({MARK: written})
        except OSError as error:
            self._fail(error)

    # --- visible state

    def _show(self) -> None:
        role = self._running().role
        self.leader_id, self.epoch, self.is_leader = role.leader_id, role.epoch, isinstance(role, Leader)
        if self._quorum_trace.role(role):
            standing = isinstance(role, Prospective | Candidate)
            now = asyncio.get_running_loop().time()
            self.measures.role_changed(now, standing=standing, leader_known=role.leader_id is not None)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._schedule.or_earlier(self._running().deadline())
        if deadline is not None and not self._tick_queued:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        """Queue a tick, at most one. A full queue needs none: its next event sets the timer again."""
        self._timer = None
        if not self._events.full():
            self._tick_queued = True
            self._events.put_nowait(self._on_tick)

    def _on_tick(self, now: float) -> list[do.Effect]:
        self._tick_queued = False
        return self._running().tick(now)

    def wall_ms(self) -> int:
        """The wall clock in milliseconds; -1 ("no timestamp") without a clock."""
        return self._environment.wall_ms()
