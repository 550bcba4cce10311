"""Changes a stored run's replica files as a broken system, a broken disk or a broken collection would."""

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import crc32c

from history.record.values import encode_value
from tests.analysis.segment_files import batch, record, value
from tests.analysis_pipeline.stored_run import NODES, RECORDS

Change = Callable[["ReplicaSet"], object]

SIZE = 20  # bytes of each record's value in stored runs
HEADER = 61
CRC_FROM = 21
MARKS = "replication-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
ALL = NODES


def sent(sequence: int) -> int:
    """The value at this offset of a stored run."""
    return encode_value(1, 0, sequence)


def one(offset: int, number: int | None = None, *, size: int = SIZE, **fields: object) -> bytes:
    """A batch as stored runs have them, of one record."""
    content = value(sent(offset) if number is None else number, size)
    return batch(offset, 1, [record(0, content)], **fields)  # type: ignore[arg-type]


class ReplicaSet:
    """The replicas of partition log-0 in a stored run, on n1, n2 and n3."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def data(self, node: str = "n2") -> Path:
        return self.run / "nodes" / node / "data"

    def directory(self, node: str = "n2") -> Path:
        return self.data(node) / "log-0"

    def segment(self, node: str = "n2", base: int = 0) -> Path:
        return self.directory(node) / f"{base:020d}.log"

    def batches(self, node: str = "n2") -> list[bytes]:
        """The batches of the first segment, one record each."""
        data, found = self.segment(node).read_bytes(), []
        while data:
            end = 12 + struct.unpack_from(">i", data, 8)[0]
            found.append(data[:end])
            data = data[end:]
        return found

    def rewrite(self, batches: Sequence[bytes], nodes: Sequence[str] = ("n2",)) -> None:
        for node in nodes:
            self.segment(node).write_bytes(b"".join(batches))

    def replace(self, offset: int, content: bytes, nodes: Sequence[str] = ("n2",)) -> None:
        """Put other bytes in place of the batch at an offset."""
        for node in nodes:
            batches = self.batches(node)
            self.rewrite([*batches[:offset], content, *batches[offset + 1 :]], [node])

    def poke(self, offset: int, at: int, content: bytes, *, seal: bool, nodes: Sequence[str] = ("n2",)) -> None:
        """Overwrite bytes of the batch at an offset; `seal`: and make its checksum right again."""
        for node in nodes:
            changed = bytearray(self.batches(node)[offset])
            changed[at : at + len(content)] = content
            if seal:
                struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[CRC_FROM:])))
            self.replace(offset, bytes(changed), [node])

    def split(self, *bases: int, nodes: Sequence[str] = ("n2",)) -> None:
        """Start a new segment at each of these offsets."""
        for node in nodes:
            batches = self.batches(node)
            for base, end in zip((0, *bases), (*bases, len(batches)), strict=True):
                self.segment(node, base).write_bytes(b"".join(batches[base:end]))

    def marks(self, text: str, nodes: Sequence[str] = ("n2",)) -> None:
        for node in nodes:
            (self.data(node) / MARKS).write_text(text)

    def epochs(self, text: str, nodes: Sequence[str] = ("n2",)) -> None:
        for node in nodes:
            (self.directory(node) / EPOCHS).write_text(text)

    def append(self, content: bytes, nodes: Sequence[str] = ALL, *, mark: int | None = RECORDS + 1) -> None:
        """Add bytes behind the last batch, and one more record to the high watermark."""
        for node in nodes:
            with self.segment(node).open("ab") as segment:
                segment.write(content)
            if mark is not None:
                self.marks(f"0\n1\nlog 0 {mark}\n", [node])

    def dump(self, node: str = "n2") -> Path:
        """An earlier dump, equal to the present files."""
        earlier = self.run / "nodes" / node / "earlier"
        shutil.copytree(self.data(node), earlier)
        return earlier


def steps(*changes: Change) -> Change:
    """One change after the other."""

    def change(replicas: ReplicaSet) -> None:
        for each in changes:
            each(replicas)

    return change


def each_node(change: Callable[[str], object]) -> None:
    for node in NODES:
        change(node)


def swap(a: Path, b: Path) -> None:
    aside = a.with_name("aside")
    a.rename(aside)
    b.rename(a)
    aside.rename(b)
