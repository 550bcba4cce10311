"""Numbers for the texts of a history's values, and the texts for the numbers.

Theory of operation. The n-th text that appears has the number n times a step. The texts are written to `values.parquet`
and read from there when a sentence needs them. In memory is a key of 16 bytes for each text: the text itself if it is
short, else a part of its SHA-256, so that two texts of one history have different keys. Keys are in two sorted columns
with their places, a large one and one of recent texts, which becomes a part of the large one when it has grown to a
share of it. Texts are looked up in batches, because a lookup of one text would cost as much as one of some hundreds.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.regular_files import require_regular
from history.value_runs import I64

Keys = npt.NDArray[np.bytes_]

VALUES_FILE: Final = "values.parquet"
GROUP_TEXTS: Final = 1 << 16
_VALUES: Final = pa.schema([("number", pa.int64()), ("text", pa.string())])
_KEY_BYTES: Final = 16
_NO_TEXT: Final = b"\xff"
"""No text in UTF-8 starts with this byte."""
_LEAST_RECENT: Final = 1 << 16
_SHARE: Final = 4
_MOST_GROUPS: Final = 8


class TextsOfNumbers(Mapping[int, str]):
    """The texts of the numbers 1, 2, ... times `step`, from a file that `TextFile` wrote. Some row groups that were
    asked for last stay in memory."""

    def __init__(self, path: Path, step: int) -> None:
        self._file: Any = pq.ParquetFile(require_regular(path))
        metadata = self._file.metadata
        counts = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        self._ends = list(accumulate(counts))
        self._step = step
        self._groups: dict[int, pa.Array] = {}

    def __getitem__(self, number: int) -> str:
        place, remainder = divmod(number, self._step)
        if remainder or not 1 <= place <= len(self):
            raise KeyError(number)
        group = bisect_right(self._ends, place - 1)
        texts = self._group(group)
        return str(texts[place - 1 - self._ends[group] + len(texts)])

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._step, (len(self) + 1) * self._step, self._step))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _group(self, number: int) -> pa.Array:
        if number not in self._groups:
            if len(self._groups) >= _MOST_GROUPS:
                del self._groups[next(iter(self._groups))]
            self._groups[number] = self._file.read_row_group(number, columns=["text"])["text"].combine_chunks()
        return self._groups[number]


class RankedNumbers(Mapping[int, str]):
    """The texts of the numbers 1, 2, ... times the step, where some places have another number: that of an earlier
    place plus a rank. `later`: such places and their numbers, in parts; `texts`: of the numbers by place."""

    def __init__(self, later: Sequence[tuple[I64, I64]], texts: Mapping[int, str], step: int) -> None:
        empty_array = np.empty(0, np.int64)
        places = np.concatenate([empty_array, *(places for places, _ in later)])
        numbers = np.concatenate([empty_array, *(numbers for _, numbers in later)])
        order = places.argsort()
        self._places, self._numbers = places[order], numbers[order]
        self._by_number = self._numbers.argsort()
        self._texts = texts
        self._step = step

    def of_places(self, places: I64) -> I64:
        """The number of the text at each place."""
        numbers: I64 = places * self._step
        if len(self._places):
            at = np.minimum(self._places.searchsorted(places), len(self._places) - 1)
            numbers = np.where(self._places[at] == places, self._numbers[at], numbers)
        return numbers

    def __getitem__(self, number: int) -> str:
        if number % self._step == 0:
            return self._texts[number]
        ordered = self._by_number
        at = int(self._numbers.searchsorted(number, sorter=ordered))
        if at == len(ordered) or self._numbers[ordered[at]] != number:
            raise KeyError(number)
        return self._texts[int(self._places[ordered[at]]) * self._step]

    def __iter__(self) -> Iterator[int]:
        return iter(self.of_places(np.arange(1, len(self) + 1)).tolist())

    def __len__(self) -> int:
        return len(self._texts)


class TextFile:
    """Writes the texts of the numbers 1, 2, ... times `step` to `values.parquet` of a directory; none without texts."""

    def __init__(self, directory: Path, step: int = 1, *, group_texts: int = GROUP_TEXTS) -> None:
        self.count = 0
        self._path = directory / VALUES_FILE
        self._step = step
        self._group_texts = group_texts
        self._writer: Any = None
        self._waiting: list[pa.Array] = []
        self._waiting_texts = 0

    def add(self, texts: pa.Array) -> None:
        """Takes the texts of the next numbers."""
        self._waiting.append(texts)
        self._waiting_texts += len(texts)
        if self._waiting_texts >= self._group_texts:
            self._write()

    def texts(self) -> Mapping[int, str]:
        """All texts. Ends the file."""
        if self._waiting_texts:
            self._write()
        if self._writer is None:
            return {}
        self._writer.close()
        return TextsOfNumbers(self._path, self._step)

    def _write(self) -> None:
        texts = pa.chunked_array(self._waiting, pa.string())
        self._waiting, self._waiting_texts = [], 0
        first_place = self.count + 1
        self.count += len(texts)
        numbers = pa.array(np.arange(first_place, self.count + 1, dtype=np.int64) * self._step)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, _VALUES, compression="zstd")
        rows = pa.Table.from_arrays([numbers, texts], schema=_VALUES)
        self._writer.write_table(rows, row_group_size=len(texts))


class _KeyColumns:
    """Distinct keys in ascending order, with the places of their texts."""

    def __init__(self) -> None:
        self.keys: Keys = np.empty(0, f"S{_KEY_BYTES}")
        self.places: I64 = np.empty(0, np.int64)

    def find(self, keys: Keys) -> I64:
        """The place of each key's text, 0 for one that is not there."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64)
        at = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.places[at], 0)

    def insert(self, keys: Keys, places: I64) -> None:
        """Adds keys that are not there, in ascending order."""
        at = self.keys.searchsorted(keys)
        self.keys, self.places = np.insert(self.keys, at, keys), np.insert(self.places, at, places)


class NumberedTexts:
    """Gives each distinct text a place: 1, 2, ... in order of appearance; its number is this place times `step`.
    `prefixed`: each text starts with a number and a space, which are not written."""

    def __init__(self, directory: Path, step: int = 1, *, prefixed: bool = False) -> None:
        self._file = TextFile(directory, step)
        self._prefixed = prefixed
        self._count = 0
        self._all = _KeyColumns()
        self._recent = _KeyColumns()

    def places(self, texts: Sequence[str | None]) -> I64:
        """The place of each text; 0 for None."""
        encoded = pa.array(texts, pa.string()).dictionary_encode()
        distinct = encoded.dictionary
        keys = np.array([_key_of(text) for text in distinct.to_pylist()], f"S{_KEY_BYTES}")
        distinct_places = self._all.find(keys)
        distinct_places = np.where(distinct_places, distinct_places, self._recent.find(keys))
        new = np.flatnonzero(distinct_places == 0)
        distinct_places[new] = np.arange(self._count + 1, self._count + 1 + len(new))
        self._count += len(new)
        written = distinct.take(pa.array(new))
        self._file.add(pc.replace_substring_regex(written, r"^\d+ ", "") if self._prefixed else written)
        self._learn(keys[new], distinct_places[new])
        places: I64 = np.append(distinct_places, 0)[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return places

    def texts(self) -> Mapping[int, str]:
        """The text of each number. No text can be added afterwards."""
        return self._file.texts()

    def _learn(self, keys: Keys, places: I64) -> None:
        order = keys.argsort()
        self._recent.insert(keys[order], places[order])
        if len(self._recent.keys) >= max(_LEAST_RECENT, len(self._all.keys) // _SHARE):
            self._all.insert(self._recent.keys, self._recent.places)
            self._recent = _KeyColumns()


def _key_of(text: str) -> bytes:
    data = text.encode("utf-8")
    if len(data) < _KEY_BYTES and b"\0" not in data:
        return data
    return _NO_TEXT + hashlib.sha256(data).digest()[: _KEY_BYTES - 1]
