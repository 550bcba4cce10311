"""The search for a serial order of transactions on registers, whose versions have no known order.

Theory of operation. Transactions are placed one after another. One may be next if all that must precede it are placed,
each version that it reads is the current one of its key, and no other transaction still has to read a version that it
overwrites. Of several, the next is that which itself, or a node that must follow it, returned first. If no transaction
may be next, one of them waits for the readers of a version that was written too early: the search goes back to this
write, and lets the waiting transaction precede it. It never takes such a decision back, so that it may miss an order.
The verifier, not this search, confirms what it finds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from analysis.core.transaction_graph import Graph, Successors
from analysis.core.transactions import Observations

MOST_VISITS: Final = 20
"""Visits of each node, on average."""
MOST_FOLLOWING: Final = 400
"""Nodes that are looked at for a reader which must follow another node."""


def register_order(graph: Graph, observations: Observations, topological: Sequence[int]) -> list[int] | None:
    """An order of the committed transactions that keeps all edges and explains all answers; None if none was found.
    `topological`: all nodes in an order that keeps the edges."""
    return _Search(graph, observations, topological).run()


class _Search:
    def __init__(self, graph: Graph, observations: Observations, topological: Sequence[int]) -> None:
        table, count = observations.table, len(observations.table.txn)
        source, target, _, _ = graph.edges()
        self._transactions, self._is_committed = graph.count, observations.is_committed
        self._successors = Successors(graph.nodes, source, target)
        waiting = np.bincount(target, minlength=graph.nodes)
        self._unplaced_predecessors: list[int] = waiting.tolist()
        """Of each node: how many that must precede it are not placed."""
        self._later_writers: dict[int, list[int]] = {}
        """The writers that a transaction was made to precede."""
        rank = np.full(graph.nodes, graph.count, np.int64)
        rank[: graph.count][np.lexsort((table.inv, table.ret))] = np.arange(graph.count)
        self._rank: list[int] = rank.tolist()
        for node in reversed(topological):
            for successor in self._successors_of(node):
                self._rank[node] = min(self._rank[node], self._rank[successor])
        self._reads: list[list[int]] = [[] for _ in range(graph.count)]
        for txn, version in zip(
            table.txn[observations.external].tolist(), observations.version[observations.external].tolist(), strict=True
        ):
            self._reads[txn].append(version)
        self._writes: list[list[int]] = [[] for _ in range(graph.count)]
        steps, versions = observations.accesses()
        for step in steps[steps == versions].tolist():
            self._writes[table.txn[step]].append(step)
        self._key: list[int] = np.concatenate((table.key, np.arange(len(table.keys)))).tolist()
        self._writer: list[int] = table.txn.tolist()
        self._current: list[int] = (np.arange(len(table.keys)) + count).tolist()
        shown, times = np.unique(observations.version[observations.external], return_counts=True)
        self._pending: dict[int, int] = dict(zip(shown.tolist(), times.tolist(), strict=True))
        """Of each version: how many answers that show it are not placed."""
        self._previous: dict[int, int] = {}
        self._trail: list[int] = []
        self._place = [-1] * graph.nodes
        """Of each node: its place in the trail."""
        self._ready = [(self._rank[node], node) for node in np.flatnonzero(waiting == 0).tolist()]
        self._parked: dict[int, list[int]] = {}
        """Transactions that wait until something changes for a key."""

    def run(self) -> list[int] | None:
        heapify(self._ready)
        for _ in range(MOST_VISITS * len(self._unplaced_predecessors)):
            if not self._ready:
                if len(self._trail) == len(self._unplaced_predecessors):
                    return [node for node in self._trail if node < self._transactions and self._is_committed[node]]
                if not self._go_back():
                    return None
            _, node = heappop(self._ready)
            if self._place[node] < 0 and not self._unplaced_predecessors[node]:
                key = self._blocking_key(node) if node < self._transactions else -1
                if key < 0:
                    self._put(node)
                else:
                    self._parked.setdefault(key, []).append(node)
        return None

    def _successors_of(self, node: int) -> list[int]:
        successors: list[int] = self._successors.target[self._successors.start[node] : self._successors.start[node + 1]]
        return successors + self._later_writers[node] if node in self._later_writers else successors

    def _blocking_key(self, node: int) -> int:
        """A key for which the transaction must wait, or -1."""
        reads = self._reads[node]
        for version in reads:
            if self._current[self._key[version]] != version:
                return self._key[version]
        for step in self._writes[node]:
            version = self._current[self._key[step]]
            if self._pending.get(version, 0) > (version in reads):
                return self._key[step]
        return -1

    def _put(self, node: int) -> None:
        self._place[node] = len(self._trail)
        self._trail.append(node)
        if node < self._transactions:
            for version in self._reads[node]:
                self._pending[version] -= 1
                self._wake(self._key[version])
            for step in self._writes[node]:
                key = self._key[step]
                self._previous[step] = self._current[key]
                self._current[key] = step
                self._wake(key)
        for successor in self._successors_of(node):
            self._unplaced_predecessors[successor] -= 1
            if not self._unplaced_predecessors[successor]:
                heappush(self._ready, (self._rank[successor], successor))

    def _wake(self, key: int) -> None:
        for node in self._parked.pop(key, ()):
            heappush(self._ready, (self._rank[node], node))

    def _go_back(self) -> bool:
        """Lets a waiting transaction precede the write that it must not overwrite yet, if nothing forbids that."""
        parked = [
            (not self._precedes_reader(node, self._current[key]), self._rank[node], key, node)
            for key, nodes in self._parked.items()
            for node in set(nodes)
        ]
        for _, _, key, node in sorted(parked):
            version = self._current[key]
            is_reader = version in self._reads[node] or any(self._key[read] == key for read in self._reads[node])
            if version >= len(self._writer) or is_reader or self._place[node] >= 0:
                continue
            writer = self._writer[version]
            if not self._follows(writer, node):
                self._undo(self._place[writer])
                self._later_writers.setdefault(node, []).append(writer)
                self._unplaced_predecessors[writer] += 1
                for parked_key in list(self._parked):
                    self._wake(parked_key)
                return True
        return False

    def _precedes_reader(self, node: int, version: int) -> bool:
        """Whether a reader of the version, which is not placed, must follow the node: then the node precedes the
        writer of the version in every order."""
        following, waiting = {node}, deque([node])
        while waiting and len(following) < MOST_FOLLOWING:
            for successor in self._successors_of(waiting.popleft()):
                if successor < self._transactions and version in self._reads[successor]:
                    return True
                if successor not in following:
                    following.add(successor)
                    waiting.append(successor)
        return False

    def _follows(self, writer: int, node: int) -> bool:
        """Whether the node must follow a transaction that is placed."""
        following = {writer}
        for placed in self._trail[self._place[writer] :]:
            if placed in following:
                following.update(self._successors_of(placed))
        return node in following

    def _undo(self, length: int) -> None:
        """Takes everything back from this place of the trail on."""
        while len(self._trail) > length:
            node = self._trail.pop()
            self._place[node] = -1
            for successor in self._successors_of(node):
                self._unplaced_predecessors[successor] += 1
            if node < self._transactions:
                for step in self._writes[node]:
                    self._current[self._key[step]] = self._previous[step]
                for version in self._reads[node]:
                    self._pending[version] += 1
            heappush(self._ready, (self._rank[node], node))
