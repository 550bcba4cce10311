"""A cluster as its nodes report it: leaders, in-sync replicas, live nodes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

LOG_START: Final = "log-start"
LOCAL_START: Final = "local-start"
LAST_TIERED: Final = "last-tiered"
PENDING_UPLOAD: Final = "pending-upload"
COMMITTED_END: Final = "committed-end"
OFFSETS: Final = (LOG_START, LOCAL_START, LAST_TIERED, PENDING_UPLOAD, COMMITTED_END)
"""The offsets of a partition that its leader states: the first one; the first one in the leader's own files; the last
one in remote storage, -1 without one; the first one that is not yet in remote storage; the one after the last
committed record."""


@dataclass(frozen=True)
class Member:
    """A service as clients reach it, by its first port. `ports`: all ports of its role, by name."""

    name: str
    id: int
    address: str
    port: int
    role: str
    ports: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PartitionState:
    """A partition without a leader has None as `leader`."""

    leader: str | None
    leader_epoch: int
    isr: tuple[str, ...]
    replicas: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """The partition has a leader, and every replica is in sync."""
        return self.whole_without(())

    def whole_without(self, nodes: Collection[str]) -> bool:
        """The partition has a leader, and every replica is in sync except those on these nodes."""
        return self.leader is not None and set(self.isr) >= set(self.replicas) - set(nodes)


@dataclass(frozen=True)
class View:
    """The state of the cluster at one moment, from the answers that the observer trusts.

    `controller`: the leader of the whole cluster (a metadata quorum's leader, a Raft leader); None if unknown.
    `unfenced`: the nodes that are known to be alive; `certain`: whether `unfenced` is from the component that decides
    it (other answers may be out of date). `partitions`: empty for systems that have none. `complaints`: why the view is
    incomplete.
    """

    controller: str | None = None
    epoch: int = -1
    unfenced: frozenset[str] = frozenset()
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    certain: bool = True

    def __str__(self) -> str:
        states = [
            f"{number}: leader {p.leader or 'none'}, in sync {','.join(p.isr) or 'no broker'}"
            for number, p in sorted(self.partitions.items())
        ]
        head = f"controller {self.controller or 'unknown'}, unfenced {','.join(sorted(self.unfenced)) or 'no broker'}"
        return "; ".join([head, *(f"partition {state}" for state in states), *self.complaints])


class Observer(Protocol):
    """Observes one run's cluster from outside. It is used from one thread at a time.

    A user's observer that breaks its rules raises `RunError` (`orchestrator.worlds.observer_guard`)."""

    def view(self) -> View:
        """The state of the cluster now; an empty view with complaints when no node answers. Never raises."""
        ...

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        """One attempt to create the observed topic with these replicas (node ids, the preferred leader first). None
        when the topic exists; otherwise the reason why not."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Elector(Protocol):
    """The additional method of the observer of a system that `elects`."""

    def elect(self, node: str, partition: int | None) -> str | None:
        """One attempt to elect a node leader of a partition, or (without `partition`) of the whole cluster, by
        the system's own clean election. None when it is the leader; otherwise why not. Callers repeat it until None."""
        ...


@runtime_checkable
class TopicControl(Protocol):
    """The additional methods of the observer of a system that `controls_topics`. Each is one attempt, which callers
    repeat. A text is the reason why it did not succeed."""

    def create_topic_with(
        self, assignment: Sequence[Sequence[int]], settings: Mapping[str, str], timeout_s: float
    ) -> str | None:
        """As `Observer.create_topic`, with these settings of the topic."""
        ...

    def configure(self, settings: Mapping[str, str], node: str | None) -> str | None:
        """Change settings of the topic, or of a node, while it runs."""
        ...

    def reassign(self, partition: int, nodes: Sequence[str]) -> str | None:
        """Make these nodes the replicas of a partition, the preferred leader first. None: the change is accepted, and
        replicas that are added have still to catch up."""
        ...

    def offsets(self, partition: int) -> Mapping[str, int] | str:
        """The partition's offsets by their names in `OFFSETS`, as its leader states them now; -1: it knows none."""
        ...
