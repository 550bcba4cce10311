"""Replicas' logs for the tests of the rules, without files."""

from collections.abc import Sequence

import numpy as np

from analysis.replicafiles.log import ReplicaLog


def replica(
    node: str,
    epochs: Sequence[int],
    values: Sequence[int],
    hw: int,
    *,
    start: int = 0,
    file: tuple[tuple[int, int], ...] | None = None,
) -> ReplicaLog:
    """A log of partition log-0 with a record of each epoch and value. `file`: its epoch file, by default the right
    one."""
    offsets = np.arange(start, start + len(values))
    if file is None:
        file = tuple((epoch, start + epochs.index(epoch)) for epoch in sorted(set(epochs)))
    digests = np.array(values, np.int64).astype(np.uint64) * np.uint64(7919)
    sizes, exact = np.full(len(values), 8), np.ones(len(values), np.bool_)
    columns = (
        np.array(epochs, np.int64),
        np.array(values, np.int64),
        digests,
        sizes,
        exact,
        np.zeros(len(values), np.uint64),
    )
    return ReplicaLog(node, "log", 0, start, start + len(values), offsets, *columns, file, hw)
