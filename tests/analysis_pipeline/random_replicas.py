"""Random replicas of one partition, more often than not with something wrong, and the operations of their clients."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from analysis.core.replica_evidence import Circumstances
from analysis.evidence.earlier_dumps import Demanded
from history.record.schemas import INF
from tests.analysis.log_histories import Simulated, damaged, stored, table, v
from tests.analysis.message_files import message
from tests.analysis.remote_files import kafka_started, kafka_update, write_events, write_object
from tests.analysis.segment_files import batch, record, value, write_high_watermarks, write_replica

KEY = ("log", 0)
NODES = ("n1", "n2", "n3")


@dataclass(frozen=True)
class Entry:
    """A batch of a log: its records' values (None: a record without one), from the offset `base` on."""

    base: int
    epoch: int
    values: tuple[int | None, ...]
    attributes: int = 0
    producer: tuple[int, int, int] = (-1, -1, -1)
    codec: int = 0
    key: bytes | None = None
    old: bool = False

    @property
    def end(self) -> int:
        return self.base + len(self.values)

    def encoded(self) -> bytes:
        contents = [None if each is None else value(each, 20) for each in self.values]
        if self.old:
            return b"".join(message(self.base + i, each) for i, each in enumerate(contents))
        records = [record(i, each, key=self.key) for i, each in enumerate(contents)]
        return batch(
            *(self.base, self.epoch, records), attributes=self.attributes, producer=self.producer, codec=self.codec
        )


class RandomReplicas:
    """A run with such replicas. `around`, `dumps`: its circumstances, and the earlier dumps that it must have."""

    def __init__(self, run: Path, seed: int) -> None:
        self.run, self.rng = run, random.Random(f"replicas {seed}")
        rng = self.rng
        compacts = rng.random() < 0.25
        self.around = Circumstances(
            quiet=rng.random() < 0.6,
            stopped=rng.random() < 0.5,
            deleted_to=INF if rng.random() < 0.2 else 0,
            compacts=compacts,
            from_zero=rng.random() < 0.5,
            record_bytes=rng.choice([0, 20, 20, 24]),
            all_sent=rng.random() < 0.8,
        )
        names = self._clients(resends=0.3 if seed % 2 else 0.0)
        entries = self._entries([v(name) for name in names], compacts)
        tiered = rng.choice([0, 0, len(entries) // 2])
        for node in NODES:
            self._replica(run / "nodes" / node / "data", self._changed(entries), tiered)
        if tiered:
            self._store(entries, tiered)
        dumped = [node for node in NODES if rng.random() < 0.4]
        for node in dumped:
            self._replica(run / "nodes" / node / "earlier", self._changed(entries[: rng.randint(1, len(entries))]), 0)
        at = rng.choice([100, 200, 300])
        self.dumps = Demanded(nodes=tuple(dumped), at=at) if dumped else Demanded()

    def _clients(self, *, resends: float) -> list[int]:
        log = Simulated(self.rng, resends)
        for moment in range(100, 100 + 10 * self.rng.randint(8, 24), 10):
            log.append(moment)
            if self.rng.random() < 0.3:
                log.read(moment + 5)
        if self.rng.random() < 0.7:
            log.finish(600)
        for _ in range(self.rng.choice([0, 0, 1])):
            at = self.rng.randrange(len(log.ops))
            log.ops[at] = damaged(log.ops[at], self.rng, log.names)
        ops = [replace(op, ret=max(op.inv, op.ret)) for op in log.ops]
        stored(self.run, table(ops), self.rng.choice([1, 3, 100]))
        return log.log

    def _entries(self, values: Sequence[int], compacts: bool) -> list[Entry]:
        rng, entries, epoch, at = self.rng, list[Entry](), 0, 0
        numbers = {1: 0, 2: 0}
        while at < len(values) or not entries:
            epoch += rng.choice([0, 0, 0, 1])
            some = tuple(values[at : at + rng.randint(1, 3)]) or (v(99),)
            producer = rng.choice([0, 1, 2])
            origin = (producer, 0, numbers[producer]) if producer else (-1, -1, -1)
            if producer:
                numbers[producer] += len(some)
            key = bytes([rng.randrange(3)]) if compacts else None
            codec = rng.choice([0, 0, 0, 1])
            entries.append(Entry(at, epoch, some, producer=origin, codec=codec, key=key))
            at += len(some)
        return entries

    def _changed(self, entries: Sequence[Entry]) -> list[Entry]:
        """What a replica has: the same, or with something different."""
        rng, own = self.rng, list(entries)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            at = rng.randrange(len(own))
            each, change = own[at], rng.randrange(9)
            if change == 0:
                own[at] = replace(each, values=tuple(v(rng.randrange(1, 60)) for _ in each.values))
            elif change == 1:
                own[at] = replace(each, epoch=max(0, each.epoch + rng.choice([-2, -1, 1])))
            elif change == 2 and len(own) > 1:
                del own[at]
            elif change == 3:
                own = own[: at + 1]
            elif change == 4:
                own[at] = replace(each, producer=(1, 0, rng.randrange(9)))
            elif change == 5:
                own[at] = replace(each, attributes=0x30, values=(None,) * len(each.values))
            elif change == 6:
                last = own[-1]
                more = tuple(v(rng.randrange(1, 60)) for _ in range(2))
                own.append(Entry(last.end, last.epoch + rng.choice([0, 1]), more))
            elif change == 7:
                own[at] = replace(each, values=(None, *each.values[1:]))
            else:
                own = [replace(some, old=True) for some in own[:at]] + own[at:]
        return own

    def _replica(self, data: Path, entries: Sequence[Entry], tiered: int) -> None:
        rng = self.rng
        own = entries[min(tiered, len(entries) - 1) :]
        cuts = sorted({0, *(rng.randrange(len(own)) for _ in range(rng.choice([0, 2, 4])))})
        segments = {}
        for first, behind in zip(cuts, (*cuts[1:], len(own)), strict=True):
            base = own[first].base + rng.choice([0] * 20 + [-1, 1])
            segments[max(base, 0)] = b"".join(each.encoded() for each in own[first:behind])
        damage, last = rng.random(), rng.choice(list(segments))
        if damage < 0.1:
            segments[last] += bytes(rng.choice([7, 90]))
        elif damage < 0.2 and segments[last]:
            changed = bytearray(segments[last])
            changed[rng.randrange(len(changed))] ^= 1
            segments[last] = bytes(changed)
        elif damage < 0.25:
            segments[last] = b""
        starts: dict[int, int] = {}
        for each in entries:
            starts.setdefault(each.epoch, each.base)
        if rng.random() < 0.2:
            starts[rng.randrange(5)] = rng.randrange(len(entries) + 3)
        epochs = sorted(starts.items())
        directory = write_replica(data, *KEY, segments, epochs=epochs if rng.random() < 0.95 else None)
        if rng.random() < 0.03:
            (directory / "strange.log").write_bytes(b"")
        write_high_watermarks(data, {KEY: max(0, entries[-1].end - rng.choice([0, 0, 0, 1, 5, -2]))})

    def _store(self, entries: Sequence[Entry], tiered: int) -> None:
        """Remote segments of the records before the replicas' own files; they may overlap, or leave offsets out."""
        events = []
        for number in range(2):
            first, behind = (0, tiered // 2 + 1) if not number else (tiered // 2 + self.rng.choice([0, 1, 1]), tiered)
            mine = self._changed(entries)[first:behind] if self.rng.random() < 0.3 else list(entries[first:behind])
            if not mine:
                continue
            start, end = mine[0].base, mine[-1].end
            epochs = sorted({each.epoch: each.base for each in reversed(mine)}.items())
            identity = UUID(int=number + 1)
            events += [kafka_started(identity, start, end - 1, epochs), kafka_update(identity, "COPY_FINISHED")]
            if self.rng.random() < 0.9:
                content = b"".join(each.encoded() for each in mine)
                write_object(self.run / "shared", identity, start, content)
        write_events(self.run / "nodes" / "n1" / "data", events)
