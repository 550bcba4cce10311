"""Terms of a run's page, explained in place: columns of witnesses, outcomes, and words of replicated logs."""

from __future__ import annotations

from typing import Final

COLUMNS: Final = {
    "node": ("node", "the node whose files or events hold the record"),
    "leader": ("leader", "the node that led the partition when the operation ended, by the nodes' own events"),
    "endpoint": ("node", "the node that the client asked; it answered if the outcome is ok or a mismatch"),
    "op": ("operation", "what the client asked for"),
    "type": ("outcome", "ok: it happened; fail: it did not; info: it may have happened"),
    "phase": ("phase", "main: under load and faults; final: after every fault was healed"),
    "lo": ("log at least", "the answer shows that the log had at least this many records"),
    "hi": ("log at most", "the answer shows that the log had at most this many records"),
    "inv": ("invoked", "when the client sent the operation, in seconds since the start"),
    "ret": ("returned", "when the client had the answer, in seconds since the start"),
    "high_watermark": ("high watermark", "the offset below which all in-sync replicas hold the records"),
    "epoch": ("epoch", "the leader epoch: each election of a partition's leader raises it"),
    "wall": ("reported", "when the node reported it, in seconds since the start"),
    "digest": ("digest", "checksum of the record's bytes"),
    "crc": ("checksum", "CRC-32C of the batch"),
}
"""A witness's column -> its heading and explanation."""

TERMS: Final = {
    "acknowledged": "The system answered that the change happened. An acknowledged change must persist.",
    "indeterminate": "The client has no answer: the change may have happened, or may still happen.",
    "info": "The outcome of an indeterminate operation.",
    "offset": "The position of a record in its partition, from 0.",
    "record 1.2.3": "Record 3, from 0, of producer 2 in session 1. A register's value 2.3 is write 3 of client 2.",
    "leader": "The replica that takes the writes of a partition.",
    "leader epoch": "A number that each election of a partition's leader raises.",
    "high watermark": "The offset below which all in-sync replicas hold the records; consumers read only below it.",
    "log end offset": "The offset of the next record in a replica's log.",
    "in-sync set (ISR)": "The replicas that hold every committed record. A new leader is elected from them.",
    "truncation": "A replica removes the end of its log to match its leader's.",
    "fenced": "The controller does not count the broker as alive.",
    "controller": "The node that elects leaders and keeps the cluster's metadata.",
    "witness": "The smallest set of operations or records that contradict each other.",
    "confirmed": "Evidence shows that the fault took effect.",
    "prevented": "Another fault in force left nothing to act on: nothing was done.",
    "inconclusive": "No evidence shows that the fault took effect.",
}


def heading(column: str) -> tuple[str, str]:
    """A column's heading and its explanation, which may be empty."""
    return COLUMNS.get(column, (column.replace("_", " "), ""))
