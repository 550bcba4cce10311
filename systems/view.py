"""A cluster as its own answers show it: who leads what, who is in sync, who is alive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Member:
    """A service as clients reach it, by its first port. `ports`: all of its role, by name."""

    name: str
    id: int
    address: str
    port: int
    role: str
    ports: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PartitionState:
    """`leader` is None while nobody leads."""

    leader: str | None
    leader_epoch: int
    isr: tuple[str, ...]
    replicas: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Led, and every replica in sync."""
        return self.whole_without(())

    def whole_without(self, nodes: Collection[str]) -> bool:
        """Led, and every replica in sync but for those on these nodes."""
        return self.leader is not None and set(self.isr) >= set(self.replicas) - set(nodes)


@dataclass(frozen=True)
class View:
    """What the cluster looked like at one moment, by whoever was believed.

    `controller`: who leads the cluster as a whole (a metadata quorum's leader, a Raft leader); None when nobody is
    known to. `unfenced`: those known to be alive; `certain`: whether that is from who decides it, for others may still
    tell of what was. `partitions`: empty for systems that have none. `complaints`: what
    stood in the way of seeing more.
    """

    controller: str | None = None
    epoch: int = -1
    unfenced: frozenset[str] = frozenset()
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    certain: bool = True

    def __str__(self) -> str:
        states = [
            f"{number}: leader {p.leader or 'none'}, in sync {','.join(p.isr) or 'nobody'}"
            for number, p in sorted(self.partitions.items())
        ]
        seen = f"controller {self.controller or 'unknown'}, unfenced {','.join(sorted(self.unfenced)) or 'nobody'}"
        return "; ".join([seen, *(f"partition {state}" for state in states), *self.complaints])


class Observer(Protocol):
    """Looks at one run's cluster from outside. Safe to use from one thread at a time.

    One that a user brought raises `RunError` where it does what it may not (`orchestrator.worlds.observer_guard`)."""

    def view(self) -> View:
        """How the cluster looks now; an empty view with complaints when nobody answers. Never raises."""
        ...

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        """One attempt to create the observed topic with these replicas (node ids, the preferred leader first); None
        when it is there, else what stands in the way."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Elector(Protocol):
    """What the observer of a system that `elects` can do besides."""

    def elect(self, node: str, partition: int | None) -> str | None:
        """One attempt to have a node lead a partition, or without one the cluster as a whole, by the system's own
        clean election; None when it does, else what stands in the way. To be called again until then."""
        ...
