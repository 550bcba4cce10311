"""Structured protocol events of each node, for the analyzer and for users.

Each event is a flat mapping: `event` (its name), `node` (the broker id), `seq` (the number of the event in its process,
from 0, which shows missing events), `wall` (the wall clock in ns, which puts events of several nodes on one time axis)
and the event's own fields, listed in `EVENTS`.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Final

_PARTITION: Final = ("topic", "partition")

EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    # the process and its connections
    "broker_started": ("incarnation", "clean_shutdown"),
    "broker_stopped": (),
    "broker_failed": ("reason",),
    "not_ready": ("reason",),
    "request_failed": ("error", "api"),
    "connection_rejected": ("peer", "reason"),
    # its membership. setting_overruled: the cluster's value overrides one of its file.
    "registered": ("broker_epoch",),
    "fenced": (),
    "unfenced": (),
    "left_without_consent": (),
    "setting_overruled": ("key", "own", "cluster"),
    "broker_ended": ("broker", "broker_epoch"),
    "broker_gone": ("broker", "broker_epoch"),
    # the controller. logs_compared: the number of partitions without leader that were given to the most complete log.
    # fencing_refused: the session had expired, and starts again.
    "controller_active": ("epoch",),
    "controller_inactive": ("epoch",),
    "session_expired": ("broker", "broker_epoch"),
    "fencing_refused": ("broker", "reason"),
    "logs_compared": ("partitions",),
    # the metadata quorum. restored: the content of the disk's quorum-state file at the start; persisted: its content
    # from now on, whatever happens; vote: a vote granted to another node (a candidate's vote for itself has no event);
    # high_watermark: everything below `offset` is committed, as learned in `epoch`, and applied; `digest` of what is
    # applied (`quorum.committed.digest_with`); leader_change: the control record that starts an epoch is committed,
    # with the voters and those that voted for the leader; voters: the voters by the log from `offset` on, committed or
    # not; snapshot_damaged: it is not served, and is made again.
    "quorum_restored": ("epoch", "leader", "voted", "directory"),
    "quorum_persisted": ("epoch", "leader", "voted"),
    "quorum_vote": ("epoch", "candidate"),
    "quorum_role": ("role", "epoch", "leader"),
    "quorum_high_watermark": ("offset", "epoch", "digest"),
    "quorum_leader_change": ("offset", "epoch", "leader", "voters", "granting"),
    "quorum_snapshot": ("offset", "epoch", "records"),
    "quorum_snapshot_damaged": ("offset", "epoch", "error"),
    "quorum_voters": ("offset", "voters"),
    "quorum_bad_answer": ("peer", "error"),
    "quorum_failed": ("error",),
    # partitions. leader_recovered: a leader from an unclean election starts to serve. isr_changed: at the leader.
    # truncated: a follower's log matches its leader's, or one step towards it, also when no record was removed; rule:
    # `epoch`, `high-watermark`, `none` (empty log), `leader-start`, or K595-40 of the metadata log; lossy: the cut is
    # below this replica's high watermark, which is allowed only where the whole ISR lost data (K101-15).
    # replica_progress: at most four per second, and at rest. high_watermark_checkpointed: for each partition with a new
    # value. partition_set_aside: its files were kept under another name. log_shortened: recovery after a crash removed
    # bytes that were never known to be on disk, or the log ends below its high watermark. log_compacted: a pass is
    # over, and below `cleaned_to` each key has only its latest record. log_uncleanable: skipped until the next start.
    # records_deleted: the leader answers DeleteRecords. partition_work_failed: an unexpected error of work on this
    # partition alone, which is tried again.
    "partition_role": (*_PARTITION, "role", "leader", "leader_epoch", "isr", "partition_epoch"),
    "leader_recovered": (*_PARTITION, "leader_epoch", "log_end_offset"),
    "isr_changed": (*_PARTITION, "isr", "partition_epoch"),
    "truncated": (*_PARTITION, "from_offset", "to_offset", "rule", "lossy", "leader_epoch"),
    # bootstrapped: a follower dropped its log, which ended at `from_offset`, and starts above records in remote
    # storage. bootstrap_waits: it cannot, for this reason; at a new reason.
    "bootstrapped": (
        *_PARTITION,
        "from_offset",
        "log_start_offset",
        "local_start_offset",
        "latest_epoch",
        "leader_epoch",
    ),
    "bootstrap_waits": (*_PARTITION, "leader_epoch", "reason"),
    "replica_progress": (*_PARTITION, "log_end_offset", "high_watermark", "leader_epoch"),
    "high_watermark_checkpointed": (*_PARTITION, "high_watermark"),
    "fetched_batches_refused": (*_PARTITION, "leader", "reason"),
    "metadata_behind_log": (*_PARTITION, "leader_epoch", "latest_epoch"),
    "log_start_moved": (*_PARTITION, "log_start_offset"),
    "partition_failed": (*_PARTITION, "reason"),
    "partition_removed": _PARTITION,
    "partition_set_aside": (*_PARTITION, "directory", "reason"),
    "log_shortened": (*_PARTITION, "log_end_offset", "high_watermark", "lost_bytes", "reason"),
    "log_compacted": (*_PARTITION, "cleaned_to", "bytes_before", "bytes_after"),
    "log_uncleanable": (*_PARTITION, "reason"),
    "records_deleted": (*_PARTITION, "low_watermark", "leader_epoch"),
    "partition_work_failed": (*_PARTITION, "work", "reason"),
    # tiered storage. replica_starts: at most four per second; the log starts at `log_start_offset`, its local segments
    # at `local_start_offset`, and remote storage has its records up to `last_tiered_offset` (-1: none); the high
    # watermark and the log's end at the same moment. remote_segment:
    # an event that this broker has committed. remote_store_compared: the leader has removed the late objects that a
    # listing of the store had, and took `seconds` for it. remote_storage_failed: an operation fails that worked before;
    # remote_storage_works: it works again. remote_metadata_reread: the leader does not have what this broker has read.
    "replica_starts": (
        *_PARTITION,
        "log_start_offset",
        "local_start_offset",
        "last_tiered_offset",
        "high_watermark",
        "log_end_offset",
    ),
    "remote_segment": (*_PARTITION, "id", "state", "base_offset", "end_offset", "size", "leader_epoch"),
    "remote_start_missing": (*_PARTITION, "log_start_offset", "new_start_offset"),
    "remote_upload_failed": (*_PARTITION, "id", "reason"),
    "remote_completion_unknown": (*_PARTITION, "id"),
    "remote_orphan_removed": (*_PARTITION, "name"),
    "remote_store_compared": (*_PARTITION, "seconds"),
    "remote_objects_unknown": (*_PARTITION, "count", "first"),
    "remote_read_failed": (*_PARTITION, "reason"),
    "remote_storage_failed": ("operation", "reason"),
    "remote_storage_works": ("operation",),
    "remote_metadata_reread": ("partition", "offset"),
    "remote_metadata_refused": ("partition", "reason"),
    "remote_metadata_topic_refused": ("reason",),
    # the group coordinator. loaded: it serves from now on; `records`: how many records of its partition it replayed.
    "coordinator_loaded": (*_PARTITION, "leader_epoch", "records"),
    "coordinator_load_failed": (*_PARTITION, "leader_epoch", "reason"),
    "offsets_topic_refused": ("reason",),
}
"""The events by name, each with the fields that it may have."""

Value = str | int | float | bool | None | list[int] | list[str]


Sink = Callable[[dict[str, Value]], None]
"""The receiver of events: a file, or a list in the simulator."""


class Tracer:
    """Stamps events of one node and passes them to a sink; works without a sink."""

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

    An incomplete line of an earlier process stays a line of its own."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 - lives as long as the process
        if self._file.seekable() and self._file.seek(0, os.SEEK_END):
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def __call__(self, event: dict[str, Value]) -> None:
        self._file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
