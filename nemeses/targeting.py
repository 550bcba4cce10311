"""Turns a fault's aim, such as a leader, into nodes of the current cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Aim = Literal["any", "leader", "controller", "follower", "last-isr"]
AIMS: Final[tuple[Aim, ...]] = get_args(Aim)


@dataclass(frozen=True)
class ClusterView:
    """The cluster as observed last. Partitions are (topic, number); nodes are names. Unknown items are absent."""

    nodes: tuple[str, ...]
    leaders: Mapping[tuple[str, int], str] = field(default_factory=dict)
    isr: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    controller: str | None = None


def candidates(aim: Aim, view: ClusterView) -> list[str]:
    """The nodes with the aimed-at role, sorted; all nodes when no node has it. If no partition has a leader, as in
    systems without partitions, the leader of the whole cluster counts."""
    leaders = set(view.leaders.values()) or ({view.controller} if view.controller is not None else set())
    names: set[str] = set()
    if aim == "leader":
        names = leaders
    elif aim == "controller" and view.controller is not None:
        names = {view.controller}
    elif aim == "follower":
        names = set(view.nodes) - leaders
    elif aim == "last-isr":
        # A partition's only in-sync replica; otherwise the members of the smallest in-sync set.
        smallest = min((len(members) for members in view.isr.values() if members), default=0)
        names = {name for members in view.isr.values() if len(members) == smallest for name in members}
    return sorted(names & set(view.nodes)) or sorted(view.nodes)
