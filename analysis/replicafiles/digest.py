"""Digests of many byte ranges at once, used to compare replicas' records."""

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from analysis.replicafiles.log import I64, U64, Bools
from history.record.record_payload import record_steps
from history.record.values import VALUE_BYTES

Bytes = npt.NDArray[np.uint8]

LARGE: Final = 4096  # records of at least this many bytes are digested individually
WORDS_AT_ONCE: Final = 1 << 18  # compared together, so that they stay in the processor's cache
PADDING: Final = 16  # bytes that a buffer must have after its last range


def words_of(buffer: Bytes, kind: str) -> Any:
    """Every 8 consecutive bytes of the buffer as an integer, by the position of the first."""
    return np.ndarray((len(buffer) - 7,), np.dtype(kind), buffer, strides=(1,))


def digest_of(buffer: Bytes, start: I64, end: I64, seed: I64) -> U64:
    """A 64-bit digest of each byte range, word by word over all ranges at once; `seed` is digested too."""
    words = words_of(buffer, "<u8")
    digest = mix(seed.astype(np.uint64) ^ ((end - start).astype(np.uint64) << np.uint64(40)))
    at, left, active = start.copy(), end - start, np.arange(len(start))
    large = np.flatnonzero(left >= LARGE)  # word by word, few large ranges would take a Python step for each word
    digests = [hashlib.blake2b(buffer[start[number] : end[number]].data, digest_size=8).digest() for number in large]
    digest[large] = mix(digest[large] ^ np.frombuffer(b"".join(digests), "<u8"))
    left[large] = 0
    while len(active := active[left[active] > 0]):
        positions, states, shortest = at[active], digest[active], int(left[active].min())
        if shortest < 8:  # bytes after a range's end are not part of it
            unused = (np.maximum(8 - left[active], 0) * 8).astype(np.uint64)
            states = mix(states ^ ((words[positions] << unused) >> unused))
        for word in range(0, shortest - 7, 8):
            states = mix(states ^ words[positions + word])
        done = max(shortest // 8, 1) * 8
        digest[active] = states
        at[active] += done
        left[active] -= done
    return digest


def mix(x: U64) -> U64:
    """A bijection of 64-bit integers that spreads every bit over all (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def are_derived(buffer: Bytes, start: I64, size: I64) -> Bools:
    """Which byte ranges (of at least 8 bytes) equal `history.record_bytes` of the value in their first 8 bytes."""
    words = words_of(buffer, ">u8")
    same = np.ones(len(start), np.bool_)
    for length in np.unique(size).tolist():
        mine = np.flatnonzero(size == length)
        whole, rest = divmod(length, VALUE_BYTES)
        places, steps = np.arange(whole) * VALUE_BYTES, record_steps(whole + 1)
        for first in range(0, len(mine), at_once := max(WORDS_AT_ONCE // whole, 1)):
            chunk = mine[first : first + at_once]
            at = start[chunk]
            value = words[at].astype(np.uint64)
            words_read = words[at[:, None] + places].astype(np.uint64)
            same[chunk] = (words_read == value[:, None] + steps[:whole]).all(axis=1)
            if rest:
                unused = np.uint64(8 * (VALUE_BYTES - rest))
                last = words[at + whole * VALUE_BYTES].astype(np.uint64)
                same[chunk] &= (last ^ (value + steps[whole])) >> unused == 0
    return same
