"""The associative part of the theorem: scans whose halves are computed separately and merged in offset order.

In a log, the append at offset j comes before the append at offset m for every j <= m. So a release at j (nothing before
this time) and a deadline at m (not after this time) contradict each other iff release > deadline. A scan keeps the
latest release, the earliest deadline, and the worst contradicting pair. To merge two adjacent pieces of the log, only
the left one's latest release is compared with the right one's earliest deadline.

Ties are broken by the smaller deadline offset, then the smaller release offset, so every order of merging names the
same pair.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from analysis.core.rows import I64
from history.record.schemas import INF

NEVER: Final = -(1 << 62)


class Peak(NamedTuple):
    """The latest release or earliest deadline of a piece, and its (first) offset."""

    t: int
    offset: int


class Pair(NamedTuple):
    """A release at offset `earlier` that is later than the deadline at offset `later` >= `earlier`."""

    excess: int
    later: int
    earlier: int
    release: int
    deadline: int


NO_RELEASE: Final = Peak(NEVER, -1)
NO_DEADLINE: Final = Peak(INF, -1)
APPENDS: Final = 0
QUERIES: Final = 1


def worse(a: Pair | None, b: Pair | None) -> Pair | None:
    """The pair to show: the larger excess, then the smaller offsets."""
    if a is None or b is None:
        return a or b
    return min(a, b, key=lambda pair: (-pair.excess, pair.later, pair.earlier))


@dataclass(frozen=True)
class Realtime:
    """The scan of a piece of the log; releases and deadlines of appends and of queries are kept apart.

    So each of the four kinds of contradiction has its own worst pair: `worst[2 * releases' kind + deadlines' kind]`.
    """

    release: tuple[Peak, Peak]
    deadline: tuple[Peak, Peak]
    worst: tuple[Pair | None, Pair | None, Pair | None, Pair | None]

    @classmethod
    def nothing(cls) -> Self:
        return cls((NO_RELEASE, NO_RELEASE), (NO_DEADLINE, NO_DEADLINE), (None, None, None, None))

    @classmethod
    def of(cls, start: int, releases: tuple[I64, I64], deadlines: tuple[I64, I64], contradicted: bool) -> Self:
        """Scans dense arrays for offsets start, start + 1, ...; `contradicted` says whether any pair can exist."""
        if not len(releases[0]):
            return cls.nothing()
        pairs = [_worst_pair(start, r, d) if contradicted else None for r in releases for d in deadlines]
        return cls(
            (_latest(start, releases[0]), _latest(start, releases[1])),
            (_earliest(start, deadlines[0]), _earliest(start, deadlines[1])),
            (pairs[0], pairs[1], pairs[2], pairs[3]),
        )

    def merge(self, right: "Realtime") -> "Realtime":
        """The scan of this piece followed by `right`."""
        crossing = [_cross(r, d) for r in self.release for d in right.deadline]
        pairs = [worse(worse(a, b), c) for a, b, c in zip(self.worst, right.worst, crossing, strict=True)]
        return Realtime(
            (_later(self.release[0], right.release[0]), _later(self.release[1], right.release[1])),
            (_sooner(self.deadline[0], right.deadline[0]), _sooner(self.deadline[1], right.deadline[1])),
            (pairs[0], pairs[1], pairs[2], pairs[3]),
        )


def _cross(release: Peak, deadline: Peak) -> Pair | None:
    excess = release.t - deadline.t
    return Pair(excess, deadline.offset, release.offset, release.t, deadline.t) if excess > 0 else None


def _later(left: Peak, right: Peak) -> Peak:
    return right if right.t > left.t else left


def _sooner(left: Peak, right: Peak) -> Peak:
    return right if right.t < left.t else left


def _latest(start: int, releases: I64) -> Peak:
    at = int(releases.argmax())
    t = int(releases[at])
    return Peak(t, start + at) if t > NEVER else NO_RELEASE


def _earliest(start: int, deadlines: I64) -> Peak:
    at = int(deadlines.argmin())
    t = int(deadlines[at])
    return Peak(t, start + at) if t < INF else NO_DEADLINE


def _worst_pair(start: int, releases: I64, deadlines: I64) -> Pair | None:
    latest = np.maximum.accumulate(releases)
    later = int((latest - deadlines).argmax())
    excess = int(latest[later] - deadlines[later])
    if excess <= 0:
        return None
    earlier = int(np.searchsorted(latest, latest[later]))
    return Pair(excess, start + later, start + earlier, int(latest[later]), int(deadlines[later]))


@dataclass(frozen=True)
class KeyedScan:
    """One scan per key over sparse events; the keys are producers' numbers or clients' sessions, ascending.

    `peaks`, shape (4, keys): the latest release and its offset, the earliest deadline and its offset. `worst` holds
    the contradicted keys only.
    """

    keys: I64
    peaks: I64
    worst: dict[int, Pair]

    @classmethod
    def nothing(cls) -> Self:
        return cls(np.empty(0, np.int64), np.empty((4, 0), np.int64), {})

    @classmethod
    def of_sequences(cls, producers: I64, sequences: I64, offsets: I64) -> Self:
        """Each producer's sequences must increase with the offset. `offsets` ascend."""
        if not len(producers):
            return cls.nothing()
        keys, group = _group(producers)
        order = np.argsort(group, kind="stable")
        grouped, sequence, offset = group[order], sequences[order], offsets[order]
        first = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
        last = np.append(first[1:], len(grouped)) - 1
        falls = (sequence[1:] <= sequence[:-1]) & (grouped[1:] == grouped[:-1])
        if not falls.any():
            return cls(keys, np.stack((sequence[last], offset[last], sequence[first], offset[first])), {})
        worst: dict[int, Pair] = {}
        peaks: list[I64] = []
        for key, a, z in zip(keys.tolist(), first.tolist(), (last + 1).tolist(), strict=True):
            s, o = sequence[a:z], offset[a:z]
            peaks.append(_peaks(o, s, s))
            preceding = np.concatenate(([NEVER], np.maximum.accumulate(s)[:-1]))
            pair = _sparse_pair(preceding, s, o, s, equal_is_wrong=True)
            if pair is not None:
                worst[key] = pair
        return cls(keys, np.stack(peaks, axis=1), worst)

    @classmethod
    def of_sessions(cls, sessions: I64, offsets: I64, releases: I64, deadlines: I64) -> Self:
        """Events in any order: at an offset, a release (else NEVER) and a deadline (else INF) of a session."""
        if not len(sessions):
            return cls.nothing()
        order = np.lexsort((offsets, sessions))
        key, offset, release, deadline = sessions[order], offsets[order], releases[order], deadlines[order]
        first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        worst: dict[int, Pair] = {}
        peaks: list[I64] = []
        for a, z in zip(first.tolist(), [*first[1:].tolist(), len(key)], strict=True):
            o, r, d = _by_offset(offset[a:z], release[a:z], deadline[a:z])
            peaks.append(_peaks(o, r, d))
            pair = _sparse_pair(np.maximum.accumulate(r), d, o, r, equal_is_wrong=False)
            if pair is not None:
                worst[int(key[a])] = pair
        return cls(key[first], np.stack(peaks, axis=1), worst)

    def merge(self, right: "KeyedScan", *, equal_is_wrong: bool) -> "KeyedScan":
        """The scans of this piece followed by `right`, key by key."""
        if not len(self.keys) or not len(right.keys):
            return right if not len(self.keys) else self
        keys = np.union1d(self.keys, right.keys)
        a, b = self._spread(keys), right._spread(keys)
        worst = dict(self.worst)
        for key, pair in right.worst.items():
            worst[key] = worse(worst.get(key), pair) or pair
        excess = a[0] - b[2] + int(equal_is_wrong)
        for i in np.flatnonzero((excess > 0) & (a[0] > NEVER) & (b[2] < INF)).tolist():
            pair = Pair(int(excess[i]), int(b[3, i]), int(a[1, i]), int(a[0, i]), int(b[2, i]))
            worst[int(keys[i])] = worse(worst.get(int(keys[i])), pair) or pair
        peaks = np.concatenate((np.where(b[0] > a[0], b[:2], a[:2]), np.where(b[2] < a[2], b[2:], a[2:])))
        return KeyedScan(keys, peaks, worst)

    def _spread(self, keys: I64) -> I64:
        peaks = np.tile(np.array([[NEVER], [-1], [INF], [-1]], np.int64), len(keys))
        peaks[:, np.searchsorted(keys, self.keys)] = self.peaks
        return peaks


def _peaks(offset: I64, release: I64, deadline: I64) -> I64:
    r, d = int(release.argmax()), int(deadline.argmin())
    return np.array([release[r], offset[r], deadline[d], offset[d]], np.int64)


def _group(keys: I64) -> tuple[I64, I64]:
    """The sorted distinct keys and each element's index among them, in the smallest integers (they sort fastest)."""
    if int(keys.min()) >> 16 == int(keys.max()) >> 16:
        low = keys & 0xFFFF
        present = np.flatnonzero(np.bincount(low))
        place = np.zeros(0x10000, np.uint16)
        place[present] = np.arange(len(present))
        return present + (int(keys.min()) >> 16 << 16), place[low]
    distinct, group = np.unique(keys, return_inverse=True)
    return distinct, group


def _by_offset(offset: I64, release: I64, deadline: I64) -> tuple[I64, I64, I64]:
    """One event per offset: a release and a deadline at the same offset meet, whatever their order."""
    first = np.flatnonzero(np.concatenate(([True], offset[1:] != offset[:-1])))
    return offset[first], np.maximum.reduceat(release, first), np.minimum.reduceat(deadline, first)


def _sparse_pair(latest: I64, deadline: I64, offset: I64, release: I64, *, equal_is_wrong: bool) -> Pair | None:
    excess = latest - deadline + int(equal_is_wrong)
    excess[(latest == NEVER) | (deadline == INF)] = 0
    later = int(excess.argmax())
    if excess[later] <= 0:
        return None
    earlier = int(np.flatnonzero(release == latest[later])[0])
    return Pair(int(excess[later]), int(offset[later]), int(offset[earlier]), int(latest[later]), int(deadline[later]))
