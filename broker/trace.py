"""Structured protocol events: what each node saw itself do, for the analyzer and for people.

Each event is a flat mapping: `event` (its name), `node` (the broker id), `seq` (counts the events of one process from
0, so that what is missing is seen), `wall` (nanoseconds of the wall clock, by which events of several nodes are drawn
on one axis) and the event's own fields. Names in use:

`broker_started` incarnation; `broker_stopped`; `registered` broker_epoch; `fenced`, `unfenced`;
`controller_active` epoch; `controller_inactive` epoch; `session_expired` broker, broker_epoch;
`quorum_restored` epoch, leader, voted (what the quorum-state file says at a start); `quorum_persisted` epoch, leader,
voted (what it says from here on, whatever happens); `quorum_vote` epoch, candidate (a vote is granted to another; a
candidate's own goes without saying); `quorum_role` role, epoch, leader;
`quorum_high_watermark` offset, epoch, digest: everything below is committed, as learned in `epoch`, and applied;
digest: of the batches applied (`quorum.committed.digest_with`); `quorum_leader_change` offset, epoch, leader;
`quorum_bad_answer` peer, error; `quorum_failed` error;
`partition_role` topic, partition, role, leader, leader_epoch, isr, partition_epoch;
`isr_changed` topic, partition, isr, partition_epoch (at the leader);
`truncated` topic, partition, from_offset, to_offset, rule, lossy, leader_epoch: a follower's log matches its leader's,
or one step towards that; also when no record went. rule: `epoch`, `high-watermark`, `none` (empty log), `leader-start`.
lossy: the cut lies below this replica's high watermark, which is allowed only where the whole ISR lost data (K101-15);
`replica_progress` topic, partition, log_end_offset, high_watermark, leader_epoch (at most four a second, and at rest);
`high_watermark_checkpointed` topic, partition, high_watermark (for each partition where it is news);
`fetched_batches_refused` topic, partition, leader, reason; `metadata_behind_log` topic, partition, leader_epoch,
latest_epoch; `partition_failed` topic, partition, reason; `partition_removed` topic, partition.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

Value = str | int | float | bool | None | list[int] | list[str]


Sink = Callable[[dict[str, Value]], None]
"""Where events go: a file in reality, a list in the simulator."""


class Tracer:
    """Stamps events of one node and hands them to a sink; never raises for lack of a listener."""

    def __init__(self, node: int, clock: Callable[[], int], sink: Sink) -> None:
        self._node = node
        self._clock = clock
        self._sink = sink
        self._emitted = 0

    def emit(self, event: str, **fields: Value) -> None:
        """Record one event, in the order of the calls."""
        seq, self._emitted = self._emitted, self._emitted + 1
        self._sink({"event": event, "node": self._node, "seq": seq, "wall": self._clock(), **fields})


class JsonLines:
    """A sink that appends one JSON object per line to a file and flushes each, so that a kill loses only the last.

    What an earlier process left of a line that it could not finish stays a line of its own."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 - lives as long as the process
        if self._file.seekable() and self._file.seek(0, os.SEEK_END):
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def __call__(self, event: dict[str, Value]) -> None:
        self._file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
