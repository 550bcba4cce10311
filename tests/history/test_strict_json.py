"""JSON that can be read in one way only."""

import json
import zlib
from pathlib import Path

import pytest

from history.checksummed_lines import read_lines
from history.strict_json import decode


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "b": [true, null, -2, 0.5, "\xc3\xa9"], "c": {"a": 1}}',
        '{"a": {"b": 1}, "c": [{"a": 1}, {"a": 2}]}',
        b"[]",
        b" 7 ",
    ],
)
def test_json_with_one_meaning_is_read(text: bytes | str) -> None:
    assert decode(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": 1, "a": 1}', "'a' is given twice"),
        ('{"x": [{"a": 1, "b": 2, "a": 3}]}', "'a' is given twice"),
        ('{"\\u0061": 1, "a": 2}', "'a' is given twice"),
        ("NaN", "NaN is not a number"),
        ('{"a": Infinity}', "Infinity is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ("1e999", "too large"),
        ("1" * 5000, "digits"),
        ('{"a": 1} {"a": 2}', "Extra data"),
        ('{"a": 1}x', "Extra data"),
        ("", "Expecting value"),
        ("\ufeff{}", "Expecting value"),
        (b"\xff\xfe{\x00}\x00", "codec"),
        ('{"a": 1}'.encode("utf-16-le"), "Expecting|Extra"),
        (b'"\xc3"', "codec"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
    ],
)
def test_json_with_several_meanings_or_no_meaning_is_refused(text: bytes | str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode(text)


def test_a_checked_line_with_a_key_twice_is_damaged_though_its_checksum_is_right(tmp_path: Path) -> None:
    text = b'{"a": 1, "a": 2, "n": 1'
    path = tmp_path / "lines"
    path.write_bytes(text + b', "crc": %d}\n' % zlib.crc32(text))
    assert read_lines(path).defects == ("line 1 is damaged",)
