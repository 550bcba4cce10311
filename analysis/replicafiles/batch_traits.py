"""Reads what clients' and topics' settings leave in a log: codecs, producer ids, timestamps, sizes.

Only the headers of batches are read, and no checksum is verified: the readers of replicas do that.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from analysis.replicafiles.batches import (
    APPEND_TIME,
    COMPRESSION,
    CONTROL,
    HEADER,
    LENGTH_FROM,
    MAGIC,
    MAGIC_AT,
)
from history.regular_files import read_bytes

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their number in a batch's attributes."""
SAMPLE: Final = 20
"""Uncompressed batches of a segment that are compressed for comparison."""
CLEARLY: Final = 0.8
"""A batch that a compressor shrinks to less than this share would have been compressed by any client."""


@dataclass
class BatchTraits:
    """The traits of a replica's own files. `records`: by whether their batch has a producer id; of batches of format 2
    without control batches. `codecs`: batches by codec. `stamped`: batches by whether the broker stamped them.
    `largest`: the most records in a batch. `older`: bytes in older message formats. `segment_bytes`: the largest
    segment with more than one batch. `compressible`: uncompressed batches that a compressor shrinks."""

    records: Counter[bool] = field(default_factory=Counter)
    codecs: Counter[str] = field(default_factory=Counter)
    stamped: Counter[bool] = field(default_factory=Counter)
    largest: int = 0
    older: int = 0
    segment_bytes: int = 0
    compressible: int = 0


def read_traits(segments: Iterable[Path]) -> BatchTraits:
    """The traits of a replica's segments, each read up to the first damaged batch."""
    traits = BatchTraits()
    for path in segments:
        try:
            _read(read_bytes(path), traits)
        except OSError:
            continue  # the reader of replicas reports it
    return traits


def _read(data: bytes, traits: BatchTraits) -> None:
    at = batches = tried = 0
    while at + HEADER.size <= len(data):
        _, length, _, magic, _, attributes, _, _, _, producer, _, _, count = HEADER.unpack_from(data, at)
        end = at + LENGTH_FROM + length
        if magic != MAGIC:
            traits.older += len(data) - at if 0 <= data[at + MAGIC_AT] < MAGIC and length > 0 else 0
            break
        if length < HEADER.size - LENGTH_FROM or end > len(data):
            break
        codec = attributes & COMPRESSION
        if not attributes & CONTROL:
            traits.records[producer >= 0] += count
            traits.codecs[CODECS[codec] if codec < len(CODECS) else f"codec {codec}"] += 1
            traits.stamped[bool(attributes & APPEND_TIME)] += 1
            traits.largest = max(traits.largest, count)
            if not codec and tried < SAMPLE:
                tried += 1
                content = data[at + HEADER.size : end]
                traits.compressible += len(zlib.compress(content)) < CLEARLY * len(content)
        batches += 1
        at = end
    if batches > 1:
        traits.segment_bytes = max(traits.segment_bytes, at)
