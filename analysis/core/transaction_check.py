"""Decides whether a history of transactions has an anomaly that a consistency model prohibits, or a serial order.

Theory of operation. Transactions are placed one after another. One may be next if all that must precede it are placed,
each version that it reads is the current one of its key, and no other transaction still has to read a version that it
overwrites. Who reads which version is known from the start, so most steps need no choice: a transaction whose writes
are never read is placed as soon as it may be next, because that does not block another one. A write that is read is a
choice. Other writers of its key then wait until its readers are placed. A write is not chosen if one of those writers
must precede one of these readers. Of several choices the search takes the one that returned first, or that must precede
a node which did. If none is left, it goes back to the last choice and takes the next one. A state from which no order
was found is remembered by a digest of the placed nodes and current versions, and not searched again. If all choices are
used up, and with other digests again, no order exists. The verifier, not this search, confirms an order.

An edge leads from a transaction to one that must follow it: it overwrote a version (ww), read it (wr), or overwrote a
version that the first one had read (rw); or the first one returned before the other was invoked, in its process or in
any. One of unknown outcome has not returned, and may happen while its process goes on.

Theory of operation. Where many transactions precede many, the edges pass through a node between them: the number of
edges stays near that of the steps. The order of real time is a chain of such nodes, one for all returns between two
invocations. No node between leads a transaction back to itself. Nodes without a predecessor are taken away one after
another, then those without a successor. The remainder holds all cycles. It is empty if the graph has no cycle: then
the order in which nodes were taken is one that explains all edges. Tarjan's algorithm runs on the remainder alone.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.core.consistency_models import NO_SERIAL_ORDER, PROHIBITED, SERIAL, has_process_order, has_real_time_order
from analysis.core.consistency_models import PROCESS as PROCESS_SUFFIX
from analysis.core.consistency_models import PROCESS as SESSION_SUFFIX
from analysis.core.consistency_models import REALTIME as REALTIME_SUFFIX
from analysis.core.grouping import joined, places_in, preceding, ranges
from analysis.core.transactions import Bools, Finding, Observations, TransactionTable, VersionOrders
from history.record.schemas import INF, OK
from history.value_runs import I64
from installation.counted import counted

# ---- The graph of dependencies between transactions (Adya 1999, Elle 2020), its cycles, and an order without them.

CHAIN, WW, WR, RW, PROCESS, REALTIME = 0, 1, 2, 4, 8, 16
"""What an edge is, as bits; `CHAIN` leaves a node between transactions. An order of versions that follows from the
order of processes or of real time has both bits."""
MOST_STARTS: Final = 16
"""The edges from which a shortest cycle is looked for."""
MOST_COMPONENTS: Final = 8

Ends = npt.NDArray[np.int32]
"""Nodes or steps, of which a history has less than 2^31: a graph has several times as many edges as transactions."""


class Edge(NamedTuple):
    """From one transaction to the next one of a cycle. `version`: what was overwritten or read; -1 for an order of
    processes or of real time."""

    source: int
    target: int
    kind: int
    version: int


class Cycle(NamedTuple):
    name: str
    edges: tuple[Edge, ...]


class Graph:
    """Edges as columns. `count`: of transactions; numbers from there on are nodes between them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.nodes = count
        self._sources, self._targets, self._versions = list[Ends](), list[Ends](), list[Ends]()
        self._kinds: list[int] = []
        """Of all edges that one call of `add` adds."""

    def add(self, source: I64, target: I64, kind: int, version: I64 | int = -1) -> None:
        """Adds edges, but none from a node to itself."""
        is_other = source != target
        self._sources.append(source[is_other].astype(np.int32))
        self._targets.append(target[is_other].astype(np.int32))
        self._versions.append(np.broadcast_to(np.asarray(version, np.int32), source.shape)[is_other])
        self._kinds.append(kind)

    def between(self, number: int) -> I64:
        """New nodes between transactions."""
        self.nodes += number
        return np.arange(self.nodes - number, self.nodes, dtype=np.int64)

    def edges(self) -> tuple[Ends, Ends, Ends, Ends]:
        """Sources, targets, kinds and versions."""
        kind = np.repeat(np.array(self._kinds, np.int32), list(map(len, self._sources)))
        return *self.ends(), kind, _joined(self._versions)

    def ends(self) -> tuple[Ends, Ends]:
        """Sources and targets."""
        return _joined(self._sources), _joined(self._targets)


def _joined(parts: list[Ends]) -> Ends:
    return np.concatenate([np.zeros(0, np.int32), *parts])


def dependency_graph(
    observations: Observations, orders: list[tuple[VersionOrders, int]], *, process: bool, real_time: bool
) -> Graph:
    """The graph of the committed transactions. `orders`: orders of versions, with the bits of the reasons for them."""
    table, graph = observations.table, Graph(len(observations.table.line))
    answers, writes = observations.dependencies()
    graph.add(table.txn[writes], table.txn[answers], WR, writes)
    for order, bits in orders:
        _add_version_order(graph, observations, order, bits)
    committed = np.flatnonzero(observations.is_committed)
    if process:
        by_process = committed[np.lexsort((table.inv[committed], table.process[committed]))]
        earlier, later = preceding(table.process[by_process], table.ret[by_process] < INF)
        graph.add(by_process[earlier], by_process[later], PROCESS)
    if real_time:
        returned = committed[table.ret[committed] < INF]
        invoked_before = np.searchsorted(np.sort(table.inv[committed]), table.ret[returned], side="right")
        _, first, of_returned = np.unique(invoked_before, return_index=True, return_inverse=True)
        chain = graph.between(len(first))
        graph.add(returned, chain[of_returned], REALTIME)
        graph.add(chain[:-1], chain[1:], CHAIN)
        links = np.searchsorted(table.ret[returned[first]], table.inv[committed], side="left")
        graph.add(chain[links[links > 0] - 1], committed[links > 0], CHAIN)
    return graph


def _add_version_order(graph: Graph, observations: Observations, order: VersionOrders, bits: int) -> None:
    txn, count = observations.table.txn, len(observations.table.txn)
    order = VersionOrders(order.earlier[order.later < count], order.later[order.later < count])
    is_write = order.earlier < count
    earlier, later = order.earlier[is_write], order.later[is_write]
    graph.add(txn[earlier], txn[later], WW | bits, earlier)
    versions, counts = np.unique(order.earlier, return_counts=True)
    is_single = np.isin(order.earlier, versions[counts == 1])
    reads = observations.external
    at, place = joined(observations.version[reads], order.earlier[is_single])
    graph.add(txn[reads[at]], txn[order.later[is_single][place]], RW | bits, observations.version[reads[at]])
    _add_many_successors(
        graph, observations, VersionOrders(order.earlier[~is_single], order.later[~is_single]), RW | bits
    )


def _add_many_successors(graph: Graph, observations: Observations, order: VersionOrders, kind: int) -> None:
    """The readers of a version precede all that wrote a later one. Readers that did both are apart, so that no node
    between leads back to them: they precede each other in a circle, if there are several."""
    txn = observations.table.txn
    versions, of_order = np.unique(order.earlier, return_inverse=True)
    reads = observations.external[np.isin(observations.version[observations.external], versions)]
    of_read = np.searchsorted(versions, observations.version[reads])
    width = max(graph.count, 1)
    read_code, write_code = of_read * width + txn[reads], of_order * width + txn[order.later]
    has_read, has_written = np.isin(write_code, read_code), np.isin(read_code, write_code)
    for is_later, is_reader in ((~has_read, slice(None)), (has_read, ~has_written)):
        at, reader_at = of_order[is_later], of_read[is_reader]
        on_both_sides = np.intersect1d(at, reader_at)
        between = graph.between(len(on_both_sides))
        place, reader_place = places_in(on_both_sides, at), places_in(on_both_sides, reader_at)
        graph.add(between[place[place >= 0]], txn[order.later[is_later]][place >= 0], CHAIN)
        readers, reader_place = reads[is_reader][reader_place >= 0], reader_place[reader_place >= 0]
        graph.add(txn[readers], between[reader_place], kind, versions[on_both_sides[reader_place]])
    circle = np.unique(read_code[has_written])
    of_circle, member = circle // width, circle % width
    starts = np.flatnonzero(np.concatenate(([True], np.diff(of_circle) != 0))[: len(circle)])
    successors = np.arange(1, len(circle) + 1)
    successors[np.concatenate((starts[1:], [len(circle)]))[: len(starts)] - 1] = starts
    graph.add(member, member[successors], kind, versions[of_circle] if len(circle) else -1)


def order_of_accesses(observations: Observations, *, real_time: bool) -> VersionOrders:
    """The order of the versions of registers, if all accesses of one key keep the order of real time, or that of each
    process: an access precedes the next ones, and their versions follow each other. Real time needs only the accesses
    that have no other one between them. No register has its initial version after another one: such a pair shows that
    the accesses do not keep that order."""
    table = observations.table
    steps, version = observations.accesses()
    txn = table.txn[steps]
    if real_time:
        times = np.unique(np.concatenate((table.inv, table.ret)))
        inv, ret = (
            table.key[steps] * len(times) + np.searchsorted(times, column[txn]) for column in (table.inv, table.ret)
        )
        order = np.argsort(inv, kind="stable")
        inv, ret, version = inv[order], ret[order], version[order]
        earliest = np.concatenate((np.minimum.accumulate(ret[::-1])[::-1], [np.iinfo(np.int64).max]))
        first_later = np.searchsorted(inv, ret, side="right")
        key_end = np.searchsorted(inv, (inv // len(times) + 1) * len(times), side="left")
        end = np.minimum(np.searchsorted(inv, earliest[first_later], side="right"), key_end)
        counts = np.maximum(end - first_later, 0)
        earlier, later = np.repeat(version, counts), version[ranges(first_later, counts)]
    else:
        order = np.lexsort((steps, table.inv[txn], table.process[txn], table.key[steps]))
        processes = np.unique(table.process[txn][order], return_inverse=True)[1]
        group = table.key[steps][order] * (len(processes) + 1) + processes
        earlier, later = (version[order][at] for at in preceding(group, table.ret[txn][order] < INF))
    is_other, versions = earlier != later, len(table.txn) + len(table.keys)
    pairs = np.unique(earlier[is_other] * versions + later[is_other])
    return VersionOrders(pairs // versions, pairs % versions)


class Successors:
    """The targets of each node, in flat columns: a list of Python's would need five times the memory."""

    def __init__(self, nodes: int, source: Ends, target: Ends, *, names_edges: bool = False) -> None:
        order = np.argsort(source, kind="stable").astype(np.int32)
        self.target = target[order].data
        self.start = np.searchsorted(source[order], np.arange(nodes + 1, dtype=np.int32)).data
        self.edge = order if names_edges else order[:0].copy()
        """The place of each edge in `source`."""

    def of(self, node: int) -> list[int]:
        """The targets of one node."""
        return self.target[self.start[node] : self.start[node + 1]].tolist()


def peeled(nodes: int, source: Ends, target: Ends) -> tuple[Sequence[int], Bools]:
    """The nodes in an order that keeps all edges, without those that follow a cycle; and which ones are missing."""
    successors = Successors(nodes, source, target)
    targets, start = successors.target, successors.start
    waiting = np.bincount(target, minlength=nodes).astype(np.int32)
    order, predecessors_left = array("i", np.flatnonzero(waiting == 0).astype(np.int32).tobytes()), waiting.data
    for node in order:
        for successor in targets[start[node] : start[node + 1]].tolist():
            predecessors_left[successor] -= 1
            if not predecessors_left[successor]:
                order.append(successor)
    is_missing = np.ones(nodes, np.bool_)
    is_missing[np.frombuffer(order, np.int32)] = False
    return order, is_missing


def components(nodes: int, source: Ends, target: Ends) -> list[list[int]]:
    """The strongly connected components with more than one node, the smallest first (Tarjan 1972)."""
    successors = Successors(nodes, source, target)
    targets, start = successors.target, successors.start
    index, low = [0] * nodes, [0] * nodes
    is_open = [False] * nodes
    larger_components: list[list[int]] = []
    counter = 0
    stack: list[int] = []
    for root in range(nodes):
        if index[root]:
            continue
        path = [(root, start[root])]
        while path:
            node, at = path.pop()
            if at == start[node]:
                counter += 1
                index[node] = low[node] = counter
                stack.append(node)
                is_open[node] = True
            while at < start[node + 1]:
                successor = targets[at]
                at += 1
                if not index[successor]:
                    path.append((node, at))
                    path.append((successor, start[successor]))
                    break
                if is_open[successor]:
                    low[node] = min(low[node], index[successor])
            else:
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    members: list[int] = []
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        is_open[members[-1]] = False
                    if len(members) > 1:
                        larger_components.append(members)
    return sorted(larger_components, key=len)


class CycleSearch:
    """The cycles of the remainder of a graph."""

    def __init__(self, graph: Graph, is_remaining: Bools) -> None:
        source, target, kind, version = graph.edges()
        is_inside = is_remaining[source] & is_remaining[target]
        number = np.cumsum(is_remaining) - 1
        self._original = np.flatnonzero(is_remaining)
        self._transactions = graph.count
        self._source, self._target = number[source[is_inside]], number[target[is_inside]]
        self._kind, self._version = kind[is_inside], version[is_inside]

    def cycles(self, allowed: int) -> Iterator[tuple[Cycle, int]]:
        """A short cycle of each of the four kinds that edges of these bits make, with the number of components: of
        overwrites; of overwrites and reads; without two anti-dependencies in succession; and any one."""
        orders = allowed & (PROCESS | REALTIME)
        for data, is_product, needed in ((WW, False, WW), (WW | WR, False, WR), (7, True, RW), (7, False, RW)):
            cycle_and_count = self._shortest(data | orders, needed, is_product=is_product)
            if cycle_and_count is not None:
                yield cycle_and_count

    def _shortest(self, allowed: int, needed: int, *, is_product: bool) -> tuple[Cycle, int] | None:
        chosen = np.flatnonzero((self._kind & ~allowed) == 0)
        nodes = len(self._original)
        source, target, kind, edge = self._source[chosen], self._target[chosen], self._kind[chosen], chosen
        if is_product:  # a node once for each: whether the last edge was an anti-dependency
            is_rw, is_chain = (kind & RW) > 0, kind == CHAIN
            non_rw = ~is_rw
            edge = np.concatenate((edge, edge[non_rw]))
            target = np.concatenate((target + nodes * is_rw, target[non_rw] + nodes * is_chain[non_rw]))
            source, kind = np.concatenate((source, source[non_rw] + nodes)), np.concatenate((kind, kind[non_rw]))
            nodes *= 2
        groups = components(nodes, source, target)
        if not groups:
            return None
        of_node = np.full(nodes, -1, np.int64)
        for number, group in enumerate(groups):
            of_node[group] = number
        is_start = (of_node[source] >= 0) & (of_node[source] == of_node[target]) & ((kind & needed) > 0)
        starts = np.flatnonzero(is_start)
        if not len(starts):
            return None
        starts = starts[np.argsort(of_node[source[starts]], kind="stable")]
        successors = Successors(nodes, source, target, names_edges=True)
        best: list[int] | None = None
        _, firsts = np.unique(of_node[source[starts]], return_index=True)
        for first_start, end in zip(firsts[:MOST_COMPONENTS], [*firsts[1:], len(starts)], strict=False):
            for start in starts[first_start:end][:MOST_STARTS].tolist():
                path = self._path(successors, of_node, int(target[start]), int(source[start]))
                if path is not None and (best is None or len(path) + 1 < len(best)):
                    best = [start, *path]
        return None if best is None else (self._cycle(edge[best].tolist()), len(firsts))

    def _path(self, successors: Successors, of_node: I64, source: int, target: int) -> list[int] | None:
        """The numbers of the edges of a shortest path inside a component."""
        group, edge = of_node[source], successors.edge
        came: dict[int, tuple[int, int]] = {source: (-1, -1)}
        waiting = deque([source])
        while waiting and target not in came:
            node = waiting.popleft()
            for at in range(successors.start[node], successors.start[node + 1]):
                successor = successors.target[at]
                if successor not in came and of_node[successor] == group:
                    came[successor] = node, int(edge[at])
                    waiting.append(successor)
        if target not in came:
            return None
        path, node = [], target
        while node != source:
            node, number = came[node]
            path.append(number)
        return path[::-1]

    def _cycle(self, numbers: list[int]) -> Cycle:
        """The cycle of these edges, without the nodes between transactions."""
        edges: list[Edge] = []
        for number in numbers:
            source, target = (int(self._original[ends[number]]) for ends in (self._source, self._target))
            kind, version = int(self._kind[number]), int(self._version[number])
            if source >= self._transactions:
                edges[-1] = edges[-1]._replace(target=target)
            else:
                edges.append(Edge(source, target, kind, version))
        return Cycle(_name([edge.kind for edge in edges]), tuple(edges))


def _name(kinds: list[int]) -> str:
    bits = 0
    for kind in kinds:
        bits |= kind
    suffix = REALTIME_SUFFIX if bits & REALTIME else SESSION_SUFFIX if bits & PROCESS else ""
    anti = [bool(kind & RW) for kind in kinds]
    if not any(anti):
        return f"{'G1c' if bits & WR else 'G0'}{suffix}"
    if sum(anti) == 1:
        return f"G-single{suffix}"
    is_adjacent = any(this and next_ for this, next_ in zip(anti, [*anti[1:], anti[0]], strict=True))
    return f"{'G2-item' if is_adjacent else 'G-nonadjacent'}{suffix}"


# ---- The search for a serial order of transactions on registers, whose versions have no known order.

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


UNCOMMITTED: Final = "read-uncommitted"
READ_MODELS: Final = (UNCOMMITTED, "read-committed")
"""The models that say nothing about versions that a transaction did not read: any order of the versions that keeps the
known edges proves them."""
KEY_ORDERS: Final = ("linearizable", "sequential")
"""What a user may assume of the accesses of each register."""


MOST_NAMED: Final = 10
"""Transactions in a sentence."""


@dataclass(frozen=True)
class TransactionReport:
    """`prohibited`: the anomalies that the model prohibits; `allowed`: the others. `order`: the committed transactions
    in a serial order that explains all, if one was found. `doubts`: the reasons against a pass."""

    prohibited: tuple[Finding, ...]
    allowed: tuple[Finding, ...]
    order: tuple[int, ...] | None
    doubts: tuple[str, ...]
    unread: int
    """Acknowledged elements or values that no transaction read."""


def check_transactions(
    table: TransactionTable, model: str, names: Mapping[int, str], *, is_list: bool, key_order: str | None = None
) -> TransactionReport:
    """`key_order`: one of `KEY_ORDERS`, what is assumed of the accesses of each register; the model may say more."""
    process, real_time = has_process_order(model), has_real_time_order(model)
    observations = Observations(table, names, is_list=is_list, with_unknown=model != UNCOMMITTED)
    observations.find()
    orders = [(observations.orders(with_reads=model != UNCOMMITTED), 0)]
    if process and not is_list:
        orders.append((order_of_accesses(observations, real_time=real_time), REALTIME if real_time else PROCESS))
    if key_order is not None and not is_list:
        orders.append((order_of_accesses(observations, real_time=key_order == KEY_ORDERS[0]), 0))
        observations.doubts.extend(_contradiction(observations, orders[-1][0], key_order))
    graph = dependency_graph(observations, orders, process=process, real_time=real_time)
    order, is_missing = peeled(graph.nodes, *graph.ends())
    findings = [*observations.findings, *_cycles(observations, graph, is_missing, model)]
    prohibited = tuple(finding for finding in findings if finding.name in PROHIBITED[model])
    allowed = tuple(finding for finding in findings if finding.name not in PROHIBITED[model])
    serial: tuple[int, ...] | None = None
    if not findings and not is_missing.any() and not observations.doubts:
        if is_list:
            serial = tuple(node for node in order if node < graph.count and observations.is_committed[node])
        else:
            search = register_order(graph, observations, order)
            serial = search.order
            if search.blocked and model in SERIAL:
                suffix = REALTIME_SUFFIX if real_time else PROCESS_SUFFIX if process else ""
                prohibited = (_no_order(observations, search, NO_SERIAL_ORDER + suffix),)
    doubts = list(observations.doubts)
    if not len(observations.external):
        doubts.append("no transaction of type ok read a key before it wrote it: the history shows no state")
    elif not prohibited and not doubts and serial is None and not is_list and model not in READ_MODELS:
        doubt = "a serial order was not found either: answers do not show the whole order of the versions"
        doubts.append(f"no anomaly that {model} prohibits was found, but {doubt}")
    elif not prohibited and not doubts and serial is None and model in SERIAL:
        doubts.append("neither an anomaly nor a serial order was found")
    return TransactionReport(prohibited, allowed, serial, tuple(doubts), _unread(observations))


def _contradiction(observations: Observations, order: VersionOrders, key_order: str) -> Iterator[str]:
    """Why the registers are not as they are assumed, as a sentence."""
    for version in order.earlier[order.later >= len(observations.table.txn)][:1]:
        key, text = observations.version_key(version), observations.version_text(version)
        yield f"key {key}: its initial state was read after {text}, so that keys are not {key_order}; omit --keys"


def _no_order(observations: Observations, search: RegisterOrder, name: str) -> Finding:
    """The anomaly that no serial order exists, with the transactions at which the longest one stops."""
    shown = ", ".join(map(observations.transaction, search.blocked[:MOST_NAMED]))
    shown += ", ..." if len(search.blocked) > MOST_NAMED else ""
    sentence = (
        "no serial order explains all answers; the longest one stops before "
        f"{counted(len(search.blocked), 'transaction')} ({shown}): "
        "each reads a version that is not the current one, or overwrites one that is still read"
    )
    return Finding(name, search.blocked, sentence)


def _unread(observations: Observations) -> int:
    table = observations.table
    is_read = np.zeros(len(table.txn), np.bool_)
    is_read[observations.version[(observations.version >= 0) & (observations.version < len(table.txn))]] = True
    is_read |= observations.position >= 0
    return int((table.is_write & (table.outcome[table.txn] == OK) & ~is_read).sum())


def _cycles(observations: Observations, graph: Graph, is_missing: Bools, model: str) -> list[Finding]:
    """Cycles of dependencies; those that need an order of processes or of real time only if the model prohibits no
    other one of them."""
    if not is_missing.any():
        return []
    source, target, _, _ = graph.edges()
    is_inside = is_missing[source] & is_missing[target]
    _, is_remaining = peeled(graph.nodes, target[is_inside], source[is_inside])
    search = CycleSearch(graph, is_missing & is_remaining)
    levels = [0]
    if has_process_order(model):
        levels += [PROCESS, PROCESS | REALTIME] if has_real_time_order(model) else [PROCESS]
    findings: dict[str, Finding] = {}
    for level in levels:
        for cycle, count in search.cycles(level):
            transactions = tuple(edge.source for edge in cycle.edges)
            finding = Finding(cycle.name, transactions, _sentence(observations, cycle, count), count)
            findings.setdefault(cycle.name, finding)
        if findings.keys() & PROHIBITED[model]:
            break
    return list(findings.values())


def _sentence(observations: Observations, cycle: Cycle, count: int) -> str:
    """The cycle in words: each transaction, and why the next one must follow."""
    order = list(dict.fromkeys(edge.source for edge in cycle.edges))
    names = {number: f"T{place}" for place, number in enumerate(order, 1)}
    named = ", ".join(f"{name} is {observations.transaction(number)}" for number, name in names.items())
    clauses = [_clause(observations, edge, names[edge.source], names[edge.target]) for edge in cycle.edges]
    group_count = f" ({counted(count, 'group')} of transactions have such cycles)" if count > 1 else ""
    return f"{'; '.join(clauses)}: each must follow the one before, in a circle{group_count}. {named}"


def _clause(observations: Observations, edge: Edge, source: str, target: str) -> str:
    if edge.version < 0:
        if edge.kind == PROCESS:
            return f"{source} was before {target} in its process"
        return f"{source} returned before {target} was invoked"
    key, version = observations.version_key(edge.version), observations.version_text(edge.version)
    if edge.kind & RW:
        return f"{source} read {version} of key {key}, and {target} wrote a later version"
    if edge.kind & WW:
        return f"{source} wrote {version} to key {key}, and {target} wrote a later version"
    return f"{source} wrote {version} to key {key}, and {target} read it"
