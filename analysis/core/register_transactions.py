"""The search for a serial order of transactions on registers, whose versions have no known order.

Theory of operation. Transactions are placed one after another. One may be next if all that must precede it are placed,
each version that it reads is the current one of its key, and no other transaction still has to read a version that it
overwrites. Who reads which version is known from the start, so most steps need no choice: a transaction whose writes
are never read is placed as soon as it may be next, because that does not block another one. A write that is read is a
choice. Other writers of its key then wait until its readers are placed. A write is not chosen if one of those writers
must precede one of these readers. Of several choices the search takes the one that returned first, or that must precede
a node which did. If none is left, it goes back to the last choice and takes the next one. A state from which no order
was found is remembered by a digest of the placed nodes and current versions, and not searched again. If all choices are
used up, and with other digests again, no order exists. The verifier, not this search, confirms an order.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from analysis.core.transaction_graph import Graph, Successors
from analysis.core.transactions import Observations

MOST_PLACEMENTS: Final = 20
"""Placements of each node, on average."""
MOST_PRECEDING: Final = 400
"""Nodes that are looked at for a writer which must precede the readers of another write."""


@dataclass(frozen=True)
class RegisterOrder:
    """The result of the search. Without an order and without blocked transactions, the search gave up."""

    order: tuple[int, ...] | None = None
    """The committed transactions in an order that keeps all edges and explains all answers."""
    blocked: tuple[int, ...] = ()
    """No order exists: in the one that came farthest, none of these transactions can be next."""
    placed: int = 0
    """How many nodes of the graph that one has before them."""


def register_order(graph: Graph, observations: Observations, topological: Sequence[int]) -> RegisterOrder:
    """Search for a serial order. `topological`: all nodes in an order that keeps the edges."""
    search = _Search(graph, observations, topological, seed=0).run()
    if search.blocked:  # unless two states with one digest have hidden an order
        search = _Search(graph, observations, topological, seed=1).run()
    return search


class _Search:
    def __init__(self, graph: Graph, observations: Observations, topological: Sequence[int], *, seed: int) -> None:
        table, count = observations.table, len(observations.table.txn)
        source, target = graph.ends()
        self._transactions, self._is_committed = graph.count, observations.is_committed
        self._successors, self._predecessors = (
            Successors(graph.nodes, source, target),
            Successors(graph.nodes, target, source),
        )
        waiting = np.bincount(target, minlength=graph.nodes)
        self._unplaced_predecessors = waiting.astype(np.int32).data
        """Of each node: how many that must precede it are not placed."""
        rank = np.full(graph.nodes, graph.count, np.int32)
        rank[: graph.count][np.lexsort((table.inv, table.ret))] = np.arange(graph.count)
        self._rank = rank.data
        for node in reversed(topological):
            later_ranks = (self._rank[later] for later in self._successors.of(node))
            self._rank[node] = min(self._rank[node], min(later_ranks, default=graph.count))
        answers, versions = table.txn[observations.external], observations.version[observations.external]
        steps, written = observations.accesses()
        writes = steps[steps == written]
        version_count = count + len(table.keys)
        self._reads = Successors(graph.count, answers, versions)
        """Of each transaction: the versions that it reads."""
        self._readers = Successors(version_count, versions, answers)
        self._writes = Successors(graph.count, table.txn[writes], writes)
        self._pending = np.bincount(versions, minlength=version_count).astype(np.int32).data
        """Of each version: how many of its readers are not placed."""
        has_choice = np.zeros(graph.count, np.bool_)
        has_choice[table.txn[writes[np.isin(writes, versions)]]] = True
        self._has_choice = has_choice.tobytes()
        """Of each transaction: whether one of its writes is read."""
        self._key = np.concatenate((table.key, np.arange(len(table.keys)))).astype(np.int32).data
        self._current = np.arange(count, version_count).data
        self._previous = np.zeros(count, np.int64).data
        """Of each placed write: the version that it overwrote."""
        self._trail = array("i")
        self._is_placed = bytearray(graph.nodes)
        self._ready = [(self._rank[node], node) for node in np.flatnonzero(waiting == 0).tolist()]
        self._parked: dict[int, list[int]] = {}
        """Transactions that wait until something changes for a key."""
        self._choices: set[int] = set()
        """Ready transactions with a write that is read."""
        digests = np.random.default_rng(seed).integers(1 << 62, size=graph.nodes + version_count)
        self._digests = digests.data
        """Of each node, and behind them of each version."""
        self._digest = 0
        self._dead_ends = set[int]()
        self._decisions: list[tuple[int, int, list[int]]] = []
        """The length of the trail, the digest, and the choices that were not taken; the next one is the last."""
        self._farthest = RegisterOrder()

    def run(self) -> RegisterOrder:
        heapify(self._ready)
        placements = MOST_PLACEMENTS * len(self._is_placed)
        while placements > 0:
            placements -= 1 + self._place_free()
            if len(self._trail) == len(self._is_placed):
                return RegisterOrder(self._placed_transactions())
            choices = [] if self._digest in self._dead_ends else self._sorted_choices()
            self._decisions.append((len(self._trail), self._digest, choices))
            node = self._next_choice()
            if node < 0:
                return self._farthest
            self._put(node)
        return RegisterOrder()

    def _next_choice(self) -> int:
        """The best choice that was not taken, once what followed its decision is undone; -1 if none is left."""
        while self._decisions:
            length, digest, choices = self._decisions[-1]
            self._undo(length)
            while choices:
                node = choices.pop()
                if not self._is_too_early(node):
                    return node
            if digest not in self._dead_ends:
                self._dead_ends.add(digest)
                if not self._farthest.blocked or length > self._farthest.placed:
                    self._farthest = RegisterOrder(None, self._blocked(), length)
            self._decisions.pop()
        return -1

    def _placed_transactions(self) -> tuple[int, ...]:
        return tuple(node for node in self._trail if node < self._transactions and self._is_committed[node])

    def _blocked(self) -> tuple[int, ...]:
        """The transactions that only a version keeps from being next."""
        waiting = {*self._choices, *(node for nodes in self._parked.values() for node in nodes)}
        return tuple(
            sorted(node for node in waiting if not self._is_placed[node] and not self._unplaced_predecessors[node])
        )

    def _place_free(self) -> int:
        """Place all that needs no choice. Returns the number of placements."""
        before = len(self._trail)
        while self._ready:
            _, node = heappop(self._ready)
            if self._is_placed[node] or self._unplaced_predecessors[node]:
                continue
            if node >= self._transactions:
                self._put(node)
            elif (key := self._blocking_key(node)) >= 0:
                self._parked.setdefault(key, []).append(node)
            elif self._has_choice[node]:
                self._choices.add(node)
            else:
                self._put(node)
        return len(self._trail) - before

    def _sorted_choices(self) -> list[int]:
        """The transactions that may be next, the best one last."""
        choices = []
        for node in [*self._choices]:
            if self._is_placed[node] or self._unplaced_predecessors[node]:
                self._choices.discard(node)
            elif (key := self._blocking_key(node)) >= 0:
                self._choices.discard(node)
                self._parked.setdefault(key, []).append(node)
            else:
                choices.append(node)
        return sorted(choices, key=self._rank.__getitem__, reverse=True)

    def _blocking_key(self, node: int) -> int:
        """A key for which the transaction must wait, or -1."""
        reads = self._reads.of(node)
        for version in reads:
            if self._current[self._key[version]] != version:
                return self._key[version]
        for step in self._writes.of(node):
            version = self._current[self._key[step]]
            if self._pending[version] > (version in reads):
                return self._key[step]
        return -1

    def _is_too_early(self, node: int) -> bool:
        """Whether an unplaced writer of a key must precede a reader of the version that the node writes to it."""
        key_of, is_placed, unplaced = self._key, self._is_placed, self._unplaced_predecessors
        for step in self._writes.of(node):
            if not self._pending[step]:
                continue
            readers = [reader for reader in self._readers.of(step) if not is_placed[reader]]
            preceding, open_nodes, key = {node, *readers}, readers, key_of[step]
            while open_nodes and len(preceding) < MOST_PRECEDING:
                for earlier in self._predecessors.of(open_nodes.pop()):
                    if is_placed[earlier] or earlier in preceding:
                        continue
                    if earlier < self._transactions and key in [key_of[write] for write in self._writes.of(earlier)]:
                        return True
                    preceding.add(earlier)
                    if unplaced[earlier]:
                        open_nodes.append(earlier)
        return False

    def _put(self, node: int) -> None:
        self._is_placed[node] = 1
        self._digest ^= self._digests[node]
        self._trail.append(node)
        if node < self._transactions:
            for version in self._reads.of(node):
                self._pending[version] -= 1
                self._wake(self._key[version])
            for step in self._writes.of(node):
                self._previous[step] = self._current[self._key[step]]
                self._set_current(step, step)
        for successor in self._successors.of(node):
            self._unplaced_predecessors[successor] -= 1
            if not self._unplaced_predecessors[successor]:
                heappush(self._ready, (self._rank[successor], successor))

    def _set_current(self, step: int, version: int) -> None:
        """Change the current version of the key of a step."""
        key, nodes = self._key[step], len(self._is_placed)
        self._digest ^= self._digests[nodes + self._current[key]] ^ self._digests[nodes + version]
        self._current[key] = version
        self._wake(key)

    def _wake(self, key: int) -> None:
        for node in self._parked.pop(key, ()):
            heappush(self._ready, (self._rank[node], node))

    def _undo(self, length: int) -> None:
        """Take everything back from this place of the trail on."""
        while len(self._trail) > length:
            node = self._trail.pop()
            self._is_placed[node] = 0
            self._digest ^= self._digests[node]
            for successor in self._successors.of(node):
                self._unplaced_predecessors[successor] += 1
            if node < self._transactions:
                for step in self._writes.of(node):
                    self._set_current(step, self._previous[step])
                for version in self._reads.of(node):
                    self._pending[version] += 1
                    self._wake(self._key[version])
            heappush(self._ready, (self._rank[node], node))
