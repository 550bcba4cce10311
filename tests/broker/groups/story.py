"""A coordinator's shard and the words to describe its stories. Its log is in memory; appends are committed immediately,
unless `slow_log` is set: then `log_catches_up` commits them. The test plays the clients and the coordinator that evicts
the shard's new members when memory is short."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from broker.errors import ErrorCode
from broker.groups.group import ConnectedClient
from broker.groups.group_effects import Effect, GroupReply
from broker.groups.group_settings import GroupSettings
from broker.groups.memory_quota import Account
from broker.groups.shard import Shard
from broker.protocol.messages.group_apis import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from broker.protocol.messages.group_records import LogRecord
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from broker.protocol.schema import Message, Topic

GROUP, TOPIC = "g", "t"
NEWEST = 9
MANY = 10_000  # ticks that no wait of a story comes near


class Story:
    """Partitions 0 to 3 of topic t exist. The initial delay is 0 unless said otherwise."""

    shard: Shard

    def __init__(self, *, slow_log: bool = False, account: Account | None = None, **settings: float) -> None:
        """`account`: of several shards; None: this has its own."""
        defaults = GroupSettings(initial_rebalance_delay_s=0.0)
        self.settings = replace(defaults, **settings)  # type: ignore[arg-type]
        self.slow_log = slow_log
        self.log: list[LogRecord] = []
        self.now = 100.0
        self.wall_ms = 1_000_000
        self.appends_fail_with: ErrorCode | None = None
        self._ticket = 0
        self._lives = 0
        self._depth = 0
        self.account = account or Account(self.settings.max_bytes)
        self.take_over()

    def take_over(self) -> None:
        """Another coordinator loads what is committed; whatever waited is gone."""
        if self._lives:
            self.shard.holdings.close()
        self._lives += 1
        self.answers: dict[int, Message] = {}
        self.uncommitted: list[tuple[int, tuple[LogRecord, ...]]] = []
        rng = random.Random(self._lives)
        self.shard = Shard(self.settings, rng, lambda: self.wall_ms, self._knows, self.account)
        self.shard.holdings.evict = lambda group, member: self._do(self.shard.evict(self.now, group, member))
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.shard.begin(self.now)

    @staticmethod
    def _knows(topic: str, partition: int) -> bool:
        return topic == TOPIC and 0 <= partition < 4

    # --- time and the log

    def wait(self, seconds: float) -> None:
        self.ticks(seconds)

    def ticks(self, seconds: float) -> int:
        """Wait, and count how often the shard has to be asked what time has brought about."""
        end, count = self.now + seconds, 0
        while (deadline := self.shard.deadline()) is not None and deadline <= end:
            self.wall_ms += round((max(self.now, deadline) - self.now) * 1000)
            self.now = max(self.now, deadline)
            count += 1
            assert count < MANY, f"{count} ticks within {seconds} s: the shard is never done"
            self._do(self.shard.tick(self.now))
        self.wall_ms += round((end - self.now) * 1000)
        self.now = end
        return count

    def log_catches_up(self) -> None:
        while self.uncommitted:
            token, records = self.uncommitted.pop(0)
            self.log += records
            self._do(self.shard.committed(self.now, token))

    def log_is_late(self) -> None:
        """What waits is not committed in time."""
        for token, _ in list(self.uncommitted):
            self._do(self.shard.late(self.now, token, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _do(self, effects: Iterable[Effect]) -> None:
        self._depth += 1
        self._run(effects)
        self._depth -= 1
        if not self._depth:
            self.account.make_room()

    def _run(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GroupReply):
                self.answers.setdefault(effect.ticket, effect.response)
            elif self.appends_fail_with is not None:
                self._do(self.shard.refused(self.now, effect.token, self.appends_fail_with))
            else:
                self.uncommitted.append((effect.token, effect.records))
                if not self.slow_log:
                    self.log_catches_up()

    def forgets(self) -> None:
        """The topic is deleted."""
        self._do(self.shard.topics_deleted([TOPIC]))

    # --- clients speak

    def asks_to_join(
        self,
        member: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[str] = ("range",),
        version: int = NEWEST,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        metadata: bytes = b"m",
        protocol_type: str = "consumer",
        group: str = GROUP,
        client: str = "c",
    ) -> int:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in protocols],
        )
        self._ticket += 1
        self._do(self.shard.join(self.now, self._ticket, request, ConnectedClient(client, "/h"), version))
        return self._ticket

    def is_invited(self, **how: Any) -> str:
        """A new member asks, and is given its id."""
        response = self.join_answer(self.asks_to_join(**how))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def joins(self, **how: Any) -> tuple[str, int]:
        """A new dynamic member comes: its id and the ticket of its second request."""
        member = self.is_invited(**how)
        return member, self.asks_to_join(member, **how)

    def asks_to_sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        group: str = GROUP,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            assignments=[SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()],
        )
        self._ticket += 1
        self._do(self.shard.sync(self.now, self._ticket, request))
        return self._ticket

    def heartbeat(self, member: str, generation: int, instance: str | None = None) -> ErrorCode:
        self._ticket += 1
        request = HeartbeatRequest(GROUP, generation, member, instance)
        self._do(self.shard.heartbeat(self.now, self._ticket, request))
        return self._error(self._ticket)

    def leave(self, *members: MemberIdentity, group: str = GROUP) -> list[ErrorCode]:
        self._ticket += 1
        self._do(self.shard.leave(self.now, self._ticket, LeaveGroupRequest(group, members=list(members)), 5))
        answer = self.answers[self._ticket]
        assert isinstance(answer, LeaveGroupResponse)
        return [ErrorCode(each.error_code) for each in answer.members]

    def asks_to_commit(
        self,
        offset: int,
        member: str = "",
        generation: int = -1,
        *,
        partition: int = 0,
        instance: str | None = None,
        retention_ms: int = -1,
        metadata: str = "",
        group: str = GROUP,
    ) -> int:
        place = OffsetCommitRequestPartition(partition, offset, -1, metadata)
        request = OffsetCommitRequest(group, generation, member, instance, retention_ms, topics=[Topic(TOPIC, [place])])
        self._ticket += 1
        self._do(self.shard.commit(self.now, self._ticket, request))
        return self._ticket

    def commits(self, offset: int, member: str = "", generation: int = -1, **how: Any) -> ErrorCode:
        return self.commit_answer(self.asks_to_commit(offset, member, generation, **how))

    def committed(self, partition: int = 0) -> int:
        """What OffsetFetch shows."""
        asked = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopic(TOPIC, [partition])])
        return self.shard.fetch(asked).topics[0].partitions[0].committed_offset

    # --- and are answered

    def is_answered(self, ticket: int) -> bool:
        return ticket in self.answers

    def join_answer(self, ticket: int) -> JoinGroupResponse:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinGroupResponse)
        return answer

    def sync_answer(self, ticket: int) -> SyncGroupResponse:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncGroupResponse)
        return answer

    def commit_answer(self, ticket: int) -> ErrorCode:
        answer: Any = self.answers[ticket]
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def _error(self, ticket: int) -> ErrorCode:
        answer: Any = self.answers[ticket]
        return ErrorCode(answer.error_code)

    @property
    def state(self) -> str:
        return self.shard.describe(GROUP, 5).group_state

    # --- whole chapters

    def stable_pair(self, **how: Any) -> tuple[str, str, int]:
        """A leader and a follower in a stable generation, assigned a and b: their ids and the generation."""
        leader, _ = self.joins(**how)
        follower, ticket = self.joins(**how)
        again = self.asks_to_join(leader, **how)
        generation = self.join_answer(again).generation_id
        assert self.join_answer(ticket).generation_id == generation
        self.asks_to_sync(follower, generation)
        self.asks_to_sync(leader, generation, {leader: b"a", follower: b"b"})
        assert self.state == "Stable"
        return leader, follower, generation
