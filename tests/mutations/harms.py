"""Changes of the files of a run that has ended, and what its seal and its verdict must say of each."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from history import seal
from tests.mutations.bench import judge


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


HARMS: Final[tuple[Callable[[bytes], bytes | None], ...]] = (
    lambda data: data[: len(data) // 2],
    _flipped,
    lambda _: None,
    lambda _: b"",
    lambda data: data + b"\n",
)
"""A file is cut, damaged in one bit, removed, emptied or continued: its content then, None if it is gone."""


def files_of(run: Path) -> list[str]:
    return [name for name, content in seal.content_of(run).items() if "sha256" in content]


def harmed(path: Path, data: bytes, harm: Callable[[bytes], bytes | None]) -> bool:
    """Whether the harm has changed the file."""
    after = harm(data) if data else harm(b"x")
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    return after != data


def require_seal(run: Path) -> None:
    """The seal names each file of the run that was changed in one way or another; the files are as before then."""
    for name in files_of(run):
        data = (run / name).read_bytes()
        for number, harm in enumerate(HARMS):
            if harmed(run / name, data, harm):
                found = list(seal.complaints(run))
                assert [each.split()[0] for each in found] == [name], (number, found)
            (run / name).write_bytes(data)
    assert not list(seal.complaints(run))


def require_unknown(run: Path) -> None:
    """With a changed file a run that passes is unknown, and a reason names the file: one file of each kind of name,
    with another harm each time; the files are as before then."""
    kinds = {re.sub(r"[0-9a-f]{8,}|\d+", "#", name): name for name in files_of(run)}
    for number, name in enumerate(kinds.values()):
        data = (run / name).read_bytes()
        if harmed(run / name, data, HARMS[number % len(HARMS)]):
            found = judge(run)
            assert found.verdict == "unknown", (name, number, found)
            assert any(name in reason for reason in found.reasons), (name, number, found)
        (run / name).write_bytes(data)
    assert judge(run).verdict == "pass"
