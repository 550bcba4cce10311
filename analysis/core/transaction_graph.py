"""The graph of dependencies between transactions (Adya 1999, Elle 2020), its cycles, and an order without them.

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
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.core.consistency_models import PROCESS as SESSION_SUFFIX
from analysis.core.consistency_models import REALTIME as REALTIME_SUFFIX
from analysis.core.grouping import joined, places_in, preceding, ranges
from analysis.core.transactions import Bools, Observations, VersionOrders
from history.record.schemas import INF
from history.value_runs import I64

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
