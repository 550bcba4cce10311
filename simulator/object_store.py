"""A simulated object store that all brokers of a cluster share: latency, errors, partial uploads and stale listings.

It is not on any machine: power losses and partitions of the brokers do not affect it. What a killed process was putting
stays as the store has it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from hashlib import sha256

from broker.tiered.object_store import MISSING, ObjectMissingError, StoredObject, StoreError, chunks_of
from broker.tiered.segments import LOG, SUFFIXES
from broker.tiered.store_owner import OWNERS
from simulator.crash_points import CrashPoints, operation

PROBE_PREFIX = "probe/"
DONE = "done"


@dataclass
class StoreFaults:
    """The current faults. `failing`: operations (put, get, list, delete) that fail, with the reason. `slow_s`: an
    additional delay of every operation. `partial`: the share of puts that leave an incomplete object if they do not
    end. `stale_s`: listings show the objects of this long ago. `failing_midway`: puts fail
    with this reason after their first chunk; empty: they do not. `mixed`: a read returns another segment's object of
    the same kind. `damaged`: by name, the bytes that an object has at rest instead of its own; None: it is missing."""

    failing: dict[str, str] = field(default_factory=dict)
    slow_s: float = 0.0
    partial: float = 0.0
    stale_s: float = 0.0
    hung: bool = False
    failing_midway: str = ""
    mixed: bool = False
    damaged: dict[str, bytes | None] = field(default_factory=dict)


def combined(faults: Sequence[StoreFaults]) -> StoreFaults:
    """What a store does that has all of these faults."""
    failing: dict[str, str] = {}
    damaged: dict[str, bytes | None] = {}
    for fault in faults:
        failing.update(fault.failing)
        damaged.update(fault.damaged)
    return StoreFaults(
        failing=failing,
        slow_s=sum(fault.slow_s for fault in faults),
        partial=max(fault.partial for fault in faults),
        stale_s=max(fault.stale_s for fault in faults),
        hung=any(fault.hung for fault in faults),
        failing_midway=next((fault.failing_midway for fault in faults if fault.failing_midway), ""),
        mixed=any(fault.mixed for fault in faults),
        damaged=damaged,
    )


class SimulatedObjectStore:
    """Objects by name. `counts`: the operations so far. `latency_s`: the least and the most delay of an operation."""

    def __init__(self, rng: random.Random, *, latency_s: tuple[float, float] = (0.001, 0.02)) -> None:
        self._rng = rng
        self._latency_s = latency_s
        self.faults = StoreFaults()
        self.crash_points: CrashPoints | None = None
        self.reasons: dict[str, StoreFaults] = {}
        """Further faults, each in force until its reason is removed. The store does what all of them say."""
        self._only: StoreFaults | None = None
        self.counts: Counter[str] = Counter()
        self.objects: dict[str, bytes] = {}
        self._strays: set[str] = set()
        self._changes: list[tuple[float, str, int | None]] = []
        """Every change: time, name, and the new size (None: deleted)."""

    def with_only(self, faults: StoreFaults) -> "SimulatedObjectStore":
        """The same objects, for operations that meet these faults and no others."""
        view = copy(self)
        view._only = faults
        return view

    @property
    def _in_force(self) -> StoreFaults:
        if self._only is not None:
            return self._only
        return combined([self.faults, *self.reasons.values()]) if self.reasons else self.faults

    @property
    def segment_objects(self) -> dict[str, bytes]:
        """The objects of segments: all but the markers of the store's owners."""
        return {name: data for name, data in self.objects.items() if not name.startswith(OWNERS)}

    @operation
    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        await self._operate("put")
        if name in self.objects:
            raise AssertionError(f"{name} is put twice")
        parts: list[bytes] = []
        partial = self._rng.random() < self._in_force.partial
        async for chunk in chunks:
            parts.append(bytes(chunk))
            await self._delay()
            if partial:
                self._set(name, b"".join(parts))
            self._fail("put")
            if self._in_force.failing_midway:
                raise StoreError(self._in_force.failing_midway)
        self._set(name, b"".join(parts))

    async def get(self, name: str, start: int, length: int) -> bytes:
        await self._operate("get")
        faults = self._in_force
        content = self._at_rest(self._partner(name) if faults.mixed and name in self.objects else name, faults)
        if content is None:
            raise ObjectMissingError(f"{name}: {MISSING}", kind=MISSING)
        return content[start : start + length]

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        await self._operate("list")
        faults = self._in_force
        shown = self._as_of(_now() - faults.stale_s) if faults.stale_s else self._sizes()
        for damaged in faults.damaged.keys() & shown.keys():
            content = faults.damaged[damaged]
            if content is None:
                del shown[damaged]
            else:
                shown[damaged] = len(content)
        return [StoredObject(name, size) for name, size in sorted(shown.items()) if name.startswith(prefix)]

    @operation
    async def delete(self, name: str) -> None:
        await self._operate("delete")
        if self.objects.pop(name, None) is not None:
            self._changes.append((_now(), name, None))

    async def close(self) -> None:
        """There is nothing to release."""

    def damaged(self, change: str, seed: int) -> dict[str, bytes | None]:
        """What is at rest instead of a segment's objects after a change: `missing`, `cut` or `corrupt`, of the object
        with the records; or `replaced`, of all objects, by those of another segment, which has the same first offset
        in another partition if there is one. `seed` chooses the segment. The object with the records comes first.
        Empty if every segment is damaged already, or has no other one to be replaced by."""
        uploaded = self.segment_objects.keys() - self._strays  # no broker reads a stray
        whole = sorted(name for name in uploaded if name.endswith(LOG) and self._is_whole(name))
        damaged = combined([*self.reasons.values()]).damaged if self.reasons else {}
        intact = [name for name in whole if name not in damaged]
        if not intact or (change == "replaced" and len(whole) < 2):
            return {}
        name = intact[seed % len(intact)]
        data = self.objects[name]
        middle = len(data) // 2
        if change == "replaced":
            stem, other = name.removesuffix(LOG), self._partner(name).removesuffix(LOG)
            return {stem + suffix: self.objects.get(other + suffix) for suffix in SUFFIXES}
        return {
            name: {
                "missing": None,
                "cut": data[:middle],
                "corrupt": data[:middle] + bytes(byte ^ 1 for byte in data[middle : middle + 16]) + data[middle + 16 :],
            }[change]
        }

    def digest(self, name: str) -> str:
        """The SHA-256 of an object at rest; `missing` without one."""
        content = self._at_rest(name, self._in_force)
        return "missing" if content is None else sha256(content).hexdigest()

    async def put_strays(self, rng: random.Random) -> int:
        """Copy the objects of one segment to the names of a segment that no broker uploaded; returns their number."""
        stems = sorted({name.rpartition(".")[0] for name in self.segment_objects} - {""})
        if not stems:
            return 0
        stem = rng.choice(stems)
        stray = f"{stem.rpartition('-')[0]}-{rng.randbytes(16).hex()}"
        copies = {name: data for name, data in self.objects.items() if name.rpartition(".")[0] == stem}
        for name, data in copies.items():
            self._strays.add(f"{stray}.{name.rpartition('.')[2]}")
            self._set(f"{stray}.{name.rpartition('.')[2]}", data)
        return len(copies)

    def remove_strays(self) -> None:
        """Remove the copies that are still there, at the end of a run."""
        for name in self._strays & self.objects.keys():
            del self.objects[name]

    def _partner(self, name: str) -> str:
        """The object that a mixed-up store has under a name: of the same kind, and of another partition at the same
        first offset if there is one."""
        kind = name.rpartition(".")[2] if name in self.segment_objects and "." in name else ""
        if not kind and not name.startswith(PROBE_PREFIX):
            return name
        names = self.objects.keys() - self._strays
        alike = sorted(key for key in names if (key.endswith(f".{kind}") if kind else key.startswith(PROBE_PREFIX)))
        other_keys = [key for key in alike if key != name]
        nearest = [key for key in other_keys if _first_offset(key) == _first_offset(name)] or other_keys
        return next((key for key in nearest if key > name), nearest[0]) if nearest else name

    def _is_whole(self, name: str) -> bool:
        """Whether a segment has all of its objects. `name`: of the one with the records."""
        return all(name.removesuffix(LOG) + suffix in self.objects for suffix in SUFFIXES)

    def _at_rest(self, name: str, faults: StoreFaults) -> bytes | None:
        """What readers get of an object; None without one."""
        content = self.objects.get(name)
        return content if content is None else faults.damaged.get(name, content)

    def _set(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self._changes.append((_now(), name, len(data)))

    def _sizes(self) -> dict[str, int]:
        return {name: len(data) for name, data in self.objects.items()}

    def _as_of(self, time: float) -> dict[str, int]:
        shown: dict[str, int] = {}
        for at, name, size in self._changes:
            if at > time:
                break
            if size is None:
                shown.pop(name, None)
            else:
                shown[name] = size
        return shown

    async def _operate(self, operation: str) -> None:
        self.counts[operation] += 1
        if self._in_force.hung:
            await asyncio.get_running_loop().create_future()
        await self._delay()
        self._fail(operation)

    def _fail(self, operation: str) -> None:
        reason = self._in_force.failing.get(operation)
        if reason is not None:
            raise StoreError(reason)

    async def _delay(self) -> None:
        await asyncio.sleep(self._rng.uniform(*self._latency_s) + self._in_force.slow_s)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def probe(store: SimulatedObjectStore, operation: str, name: str) -> str:
    """Send one operation as a nemesis does: `DONE`, or the store's reason for an error.

    `operation`: put or list. `name`: of the probe's object, which is removed, also a part of it."""
    try:
        if operation == "put":
            await store.put(name, chunks_of([b"probe"]))
        else:
            await store.list(PROBE_PREFIX)
    except StoreError as error:
        return str(error)
    finally:
        store.objects.pop(name, None)
    return DONE


async def shows_new(store: SimulatedObjectStore, name: str) -> bool:
    """Whether a listing has an object that was put just before; the object is removed."""
    await store.put(name, chunks_of([b"probe"]))
    listed = await store.list(PROBE_PREFIX)
    await store.delete(name)
    return name in {entry.name for entry in listed}


def _first_offset(name: str) -> str:
    return name.rpartition("/")[2].partition("-")[0]


async def reads_own(store: SimulatedObjectStore, names: tuple[str, str]) -> bool:
    """Whether reads of two objects that were put just before return these; the objects are removed."""
    for name in names:
        await store.put(name, chunks_of([name.encode()]))
    contents = [await store.get(name, 0, 100) for name in names]
    for name in names:
        await store.delete(name)
    return contents == [name.encode() for name in names]
