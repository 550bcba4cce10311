"""Adds a replica to a partition and records what its bootstrap took: a script's `join` step.

The record has where the new replica's log starts, the number of bytes that it copied, its epoch file beside the
leader's, and the time until it was in sync. `analysis/checkers/bootstrap.py` compares them with the offsets that the
leader stated before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final, Protocol, TypeVar

from history.journal import Journal
from nemeses.mechanisms.shell import ask, list_files_script
from nemeses.ports import Host, HostError
from nemeses.scheduling import Scheduler
from orchestrator.campaign.steps import JoinStep
from orchestrator.errors import RunError
from orchestrator.worlds.base import Node
from systems import PartitionState, TopicControl, View

_EPOCHS: Final = "leader-epoch-checkpoint"
_HEADER_LINES: Final = 2
T = TypeVar("T")
Until = Callable[[JoinStep, Callable[[], tuple[object, str]]], object]
"""Repeats an attempt within the step's deadline; see `Stepper`."""


class Topic(Protocol):
    """The cluster as this step uses it."""

    topic: str

    def view(self) -> View: ...

    @property
    def control(self) -> TopicControl: ...


def join(
    step: JoinStep,
    node: str,
    cluster: Topic,
    hosts: Mapping[str, Host],
    nodes: Mapping[str, Node],
    journal: Journal,
    until: Until,
    scheduler: Scheduler,
) -> None:
    """Make `node` a replica and wait until it is in sync. Raises `RunError` if it is one already, and when the deadline
    passes; `HostError` when its files cannot be read."""
    before = _offsets(step, cluster, until)
    state = until(step, lambda: (cluster.view().partitions.get(step.partition), "the partition is not known"))
    assert isinstance(state, PartitionState)
    if node in state.replicas:
        raise RunError(f"{step.title}: {node} has a replica of partition {step.partition} already")
    replicas = (*state.replicas, node)
    until(step, lambda: _accepted(cluster.control.reassign(step.partition, replicas)))
    began_s = scheduler.monotonic()
    journal.reassigned(step.partition, [nodes[name].id for name in replicas])
    leader = str(until(step, lambda: _in_sync(cluster.view(), step.partition, node)))
    seconds = scheduler.monotonic() - began_s
    directory = f"log/{cluster.topic}-{step.partition}"
    segments = ask(hosts[node], list_files_script(hosts[node].data_dir, f"{directory}/*.log"))
    sizes = {int(PurePosixPath(path).stem): int(size) for path, size in segments.items() if path != "listed"}
    journal.joined(
        node,
        step.partition,
        leader=leader,
        seconds=round(seconds, 3),
        before=before,
        after=_offsets(step, cluster, until),
        segments=sorted(sizes),
        moved=sum(sizes.values()),
        epochs=_epochs(hosts[node], directory),
        leader_epochs=_epochs(hosts[leader], directory),
        starts_at=step.starts_at,
    )


def _accepted(complaint: str | None) -> tuple[bool, str]:
    return complaint is None, complaint or ""


def _offsets(step: JoinStep, cluster: Topic, until: Until) -> Mapping[str, int]:
    def attempt() -> tuple[Mapping[str, int] | None, str]:
        found = cluster.control.offsets(step.partition)
        return (None, found) if isinstance(found, str) else (found, "")

    found = until(step, attempt)
    assert isinstance(found, Mapping)
    return found


def _in_sync(view: View, partition: int, node: str) -> tuple[str | None, str]:
    """The leader, as soon as the node is in sync."""
    state = view.partitions.get(partition)
    is_in = state is not None and node in state.isr
    return (state.leader if state is not None and is_in else None), str(view)


def _epochs(host: Host, directory: str) -> list[tuple[int, int]]:
    """The entries (epoch, start offset) of a replica's epoch file. Raises `HostError`."""
    path = f"{host.data_dir}/{directory}/{_EPOCHS}"
    result = host.run(f"cat {path}")
    if not result.ok:
        raise HostError(f"{host.name}: {path} cannot be read: {result.stderr.strip()}")
    lines = result.stdout.splitlines()[_HEADER_LINES:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines if line.strip())]
