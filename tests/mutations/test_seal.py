"""Every later change of any file of a run: the seal names the file, and the verdict is unknown."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from history import seal
from tests.mutations.base_runs import BASES
from tests.mutations.bench import Bench, judge


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
SEAL: Final = "history/seal.json"


@pytest.fixture
def run(bench: Bench, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the base run that is the parameter."""
    source = bench.bases[request.param]
    return Path(shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("plots", "spark")))


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


@pytest.mark.rotating(len(BASES))
@pytest.mark.parametrize("run", BASES, indirect=True)
def test_the_seal_names_each_file_that_was_changed(run: Path) -> None:
    for name in files_of(run):
        data = (run / name).read_bytes()
        for number, harm in enumerate(HARMS):
            if harmed(run / name, data, harm):
                found = list(seal.complaints(run))
                assert [each.split()[0] for each in found] == [name], (number, found)
            (run / name).write_bytes(data)
    assert not list(seal.complaints(run))


@pytest.mark.rotating(len(BASES))
@pytest.mark.parametrize("run", BASES, indirect=True)
def test_the_seal_names_each_directory_with_one_more_or_one_less_entry(run: Path) -> None:
    content = seal.content_of(run)
    for name in (name for name, what in content.items() if "sha256" not in what):
        (run / name / "more").touch()
        assert list(seal.complaints(run)) == [f"{name}/more was added after the run had ended"]
        (run / name / "more").unlink()
        if not any((run / name).iterdir()):
            (run / name).rmdir()
            assert list(seal.complaints(run)) == [f"{name} is missing: it was there when the run ended"]
            (run / name).mkdir()


@pytest.mark.rotating(len(BASES))
@pytest.mark.parametrize("run", BASES, indirect=True)
def test_a_run_with_any_changed_file_is_unknown_with_the_files_name(run: Path) -> None:
    """One file of each kind of name, with another harm each time."""
    kinds = {re.sub(r"[0-9a-f]{8,}|\d+", "#", name): name for name in files_of(run)}
    for number, name in enumerate(kinds.values()):
        data = (run / name).read_bytes()
        if harmed(run / name, data, HARMS[number % len(HARMS)]):
            found = judge(run)
            assert found.verdict == "unknown", (name, number, found)
            assert any(name in reason for reason in found.reasons), (name, number, found)
        (run / name).write_bytes(data)
    assert judge(run).verdict == "pass"


@pytest.mark.parametrize(("run", "harm"), [("log", harm) for harm in HARMS[:4]], indirect=["run"])
def test_a_run_with_a_damaged_seal_is_unknown(run: Path, harm: Callable[[bytes], bytes | None]) -> None:
    data = (run / SEAL).read_bytes()
    harmed(run / SEAL, data, harm)
    found = judge(run)
    assert found.verdict == "unknown"
    assert re.search(r"not sealed|history/seal\.json cannot be read|after the run had ended", found.reasons[0])
