"""The plan of a run: nodes, replicas, clients and phases. Its record must hold evidence of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from analysis.evidence.run_directory import RunDescription
from history.journal.writer import PHASES
from history.reader import History
from installation.counted import counted

Replicas = Mapping[tuple[str, int], tuple[str, ...]]

_UNSETTLED: Final = "the journal does not say which nodes hold the partitions' replicas"


@dataclass(frozen=True)
class Plan:
    """`nodes`: names, in the order of their numbers. `replicas`: for each (topic, partition) its nodes, the preferred
    leader first. `clients`: the clients that every run of this plan starts; scripts start more. `phases`: in order.

    `doubts`: why the plan is not fully known, as sentences; such a run proves nothing.
    """

    nodes: tuple[str, ...]
    replicas: Replicas
    clients: tuple[str, ...]
    phases: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def plan_of(description: RunDescription, history: History) -> Plan:
    """The plan of a run from run.toml; replica placement comes from the journal if only the run decided it."""
    replicas, doubts = _replicas(description, history)
    return Plan(
        nodes=description.node_names,
        replicas=replicas,
        clients=description.clients,
        phases=PHASES,
        doubts=(*description.defects, *doubts),
    )


def _replicas(description: RunDescription, history: History) -> tuple[Replicas, list[str]]:
    planned, settled = description.assignment, history.assignment
    if not description.partitions:
        return {}, []
    doubts = [_UNSETTLED] if settled is None else []
    if planned is not None and settled is not None and planned != settled:
        doubts.append("the journal's placement of the partitions' replicas differs from run.toml's")
    rows = settled if planned is None else planned
    if rows is None:
        return {}, doubts
    if planned is None and len(rows) != description.partitions:
        doubts.append(f"{counted(description.partitions, 'partition')} planned, {len(rows)} in the journal")
    names = dict(enumerate(description.node_names, 1))
    moved = history.reassigned
    if strange := sorted(set(moved) - set(range(len(rows)))):
        doubts.append(f"the journal has other replicas of partitions that are not in the plan: {strange}")
    unknown = sorted({str(number) for ids in (*rows, *moved.values()) for number in ids if number not in names})
    if unknown:
        doubts.append(f"replicas are on nodes that are not in the plan: {', '.join(unknown)}")
    placed = {
        (description.topic, partition): tuple(names[number] for number in ids if number in names)
        for partition, ids in enumerate(moved.get(partition, ids) for partition, ids in enumerate(rows))
    }
    return placed, doubts
