"""Adds a metadata quorum to a stored run: the files and traces of three voters, with one thing changed."""

import json
import struct
import zlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from history.seal import seal
from tests.analysis.segment_files import batch, record
from tests.analysis_pipeline.stored_run import NODES, StoredRun

TOPIC: Final = "__cluster_metadata"
WALL: Final = 1_700_000_000_000_000_000
IDS: Final = {name: number for number, name in enumerate(NODES, 1)}

Event = dict[str, Any]


def leader_change(base: int, epoch: int, leader: int, granting: tuple[int, ...], *, version: int = 0) -> bytes:
    """The control batch that opens an epoch, of the voters 1, 2 and 3."""

    def voters(ids: tuple[int, ...]) -> bytes:
        return bytes([len(ids) + 1]) + b"".join(struct.pack(">i", each) + bytes(16 * version) + b"\0" for each in ids)

    value = struct.pack(">hi", version, leader) + voters((1, 2, 3)) + voters(granting) + b"\0"
    return batch(base, epoch, [record(0, value, key=struct.pack(">hh", 0, 3))], attributes=0x20)


def disk_of(number: int) -> bytes:
    """The id of a node's disk."""
    return bytes(range(number, number + 16))


def metadata(base: int, epoch: int, text: bytes) -> bytes:
    return batch(base, epoch, [record(0, text)])


def story() -> list[bytes]:
    """The batches that all hold: node 1 opens epoch 1 at offset 0, node 2 epoch 2 at 5; four records follow each."""
    first = [metadata(base, 1, b"first %d" % base) for base in range(1, 5)]
    second = [metadata(base, 2, b"second %d" % base) for base in range(6, 10)]
    return [leader_change(0, 1, 1, (1, 2)), *first, leader_change(5, 2, 2, (1, 2)), *second]


def digests(batches: list[bytes]) -> list[int]:
    """By offset, the digest of all batches below it; each has one record."""
    found = [0]
    for content in batches:
        base, _, epoch, _, crc = struct.unpack_from(">qiibI", content)
        found.append(zlib.crc32(struct.pack(">qqiI", base, base + 1, epoch, crc), found[-1]))
    return found


def role(name: str, epoch: int, leader: int = -1) -> Event:
    return {"event": "quorum_role", "role": name, "epoch": epoch, "leader": leader}


def on_disk(event: str, epoch: int, leader: int, voted: int) -> Event:
    return {"event": f"quorum_{event}", "epoch": epoch, "leader": leader, "voted": voted}


def restored(number: int, epoch: int, leader: int, voted: int) -> Event:
    return on_disk("restored", epoch, leader, voted) | {"directory": text_of(disk_of(number))}


def text_of(identity: bytes) -> str:
    return urlsafe_b64encode(identity).decode().rstrip("=")


def mark(offset: int, epoch: int) -> Event:
    return {"event": "quorum_high_watermark", "offset": offset, "epoch": epoch, "digest": digests(story())[offset]}


def opened(offset: int, epoch: int, leader: int, granting: tuple[int, ...]) -> Event:
    """A node reports that the control record of an epoch is committed."""
    votes = {"voters": [1, 2, 3], "granting": list(granting)}
    return {"event": "quorum_leader_change", "offset": offset, "epoch": epoch, "leader": leader, **votes}


def vote(epoch: int, candidate: int) -> Event:
    return {"event": "quorum_vote", "epoch": epoch, "candidate": candidate}


def traces() -> dict[str, list[Event]]:
    """The traces of the three nodes. n3 was killed once and has fewer events after its restart."""
    started = {
        number: [{"event": "broker_started"}, restored(number, 0, -1, -1), on_disk("persisted", 0, -1, -1)]
        for number in IDS.values()
    }
    in_first, in_second, stopped = [mark(1, 1), mark(5, 1)], [mark(6, 2), mark(10, 2)], [{"event": "broker_stopped"}]
    elected = [
        on_disk("persisted", 1, -1, 1),
        role("candidate", 1),
        on_disk("persisted", 1, 1, 1),
        role("leader", 1, 1),
    ]
    voted = [on_disk("persisted", 2, -1, 2), vote(2, 2), role("voted", 2), on_disk("persisted", 2, 2, 2)]
    n1 = [*started[1], *elected, *in_first, *voted, role("follower", 2, 2), *in_second, *stopped]
    voted = [on_disk("persisted", 1, -1, 1), vote(1, 1), role("voted", 1), on_disk("persisted", 1, 1, 1)]
    elected = [
        on_disk("persisted", 2, -1, 2),
        role("candidate", 2),
        on_disk("persisted", 2, 2, 2),
        role("leader", 2, 2),
    ]
    n2 = [*started[2], *voted, role("follower", 1, 1), *in_first, *elected, *in_second, *stopped]
    following = [on_disk("persisted", 1, 1, -1), role("follower", 1, 1)]
    again = [{"event": "broker_started"}, restored(3, 1, 1, -1), *following, mark(1, 1)]
    later = [on_disk("persisted", 2, 2, -1), role("follower", 2, 2), *in_second]
    n3 = [*started[3], *following, *in_first, *again, *later, *stopped]
    return {"n1": n1, "n2": n2, "n3": n3}


@dataclass
class StoredQuorum:
    """`logs`: batches by node; `epochs`: entries of its epoch file; `states`: its quorum-state file."""

    path: Path
    logs: dict[str, list[bytes]] = field(default_factory=lambda: {node: story() for node in NODES})
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {node: [(1, 0), (2, 5)] for node in NODES})
    traces: dict[str, list[Event]] = field(default_factory=traces)
    states: dict[str, tuple[int, int, int]] = field(
        default_factory=lambda: {"n1": (2, 2, 2), "n2": (2, 2, 2), "n3": (2, 2, -1)}
    )
    traced: bool = True

    def write(self) -> Path:
        run = StoredRun(self.path).write()
        traced = f"traced = {json.dumps(self.traced)}"
        text = (run / "run.toml").read_text().replace('[metadata]\nformat = "none"', '[metadata]\nformat = "kraft"')
        (run / "run.toml").write_text(text.replace("traced = false", traced))
        for node in NODES:
            self._node(run / "nodes" / node, node)
        seal(run)
        return run

    def _node(self, directory: Path, node: str) -> None:
        data = directory / "data"
        log = data / f"{TOPIC}-0"
        log.mkdir(parents=True)
        entries = self.epochs[node]
        (first,) = struct.unpack_from(">q", self.logs[node][0])
        (log / f"{first:020d}.log").write_bytes(b"".join(self.logs[node]))
        if first:  # a snapshot has what was before
            before = b"".join(metadata(at, 1, b"before") for at in range(4))
            (log / f"{first:020d}-{entries[0][0]:010d}.checkpoint").write_bytes(before)
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        (log / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
        epoch, leader, voted = self.states[node]
        state = {"leaderId": leader, "leaderEpoch": epoch, "votedId": voted, "data_version": 0}
        (log / "quorum-state").write_text(json.dumps({**state, "currentVoters": [{"voterId": n} for n in (1, 2, 3)]}))
        (data / "meta.properties").write_text(
            f"version=1\nnode.id={IDS[node]}\ncluster.id=story\ndirectory.id={text_of(disk_of(IDS[node]))}\n"
        )
        events = directory / "events.jsonl"
        events.unlink()
        if not self.traced:
            return
        number = 0
        with events.open("w") as file:
            for index, event in enumerate(self.traces[node]):
                number = 0 if event["event"] == "broker_started" else number
                file.write(json.dumps({"node": IDS[node], "seq": number, "wall": WALL + index, **event}) + "\n")
                number += 1
