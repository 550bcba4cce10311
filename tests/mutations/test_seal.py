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
from tests.mutations.harms import HARMS, harmed, require_seal, require_unknown

SEAL: Final = "history/seal.json"


@pytest.fixture
def run(bench: Bench, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the base run that is the parameter."""
    source = bench.bases[request.param]
    return Path(shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("plots", "spark")))


@pytest.mark.rotating(len(BASES))
@pytest.mark.parametrize("run", BASES, indirect=True)
def test_the_seal_names_each_file_that_was_changed(run: Path) -> None:
    require_seal(run)


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
    require_unknown(run)


@pytest.mark.parametrize(("run", "harm"), [("log", harm) for harm in HARMS[:4]], indirect=["run"])
def test_a_run_with_a_damaged_seal_is_unknown(run: Path, harm: Callable[[bytes], bytes | None]) -> None:
    data = (run / SEAL).read_bytes()
    harmed(run / SEAL, data, harm)
    found = judge(run)
    assert found.verdict == "unknown"
    assert re.search(r"not sealed|history/seal\.json cannot be read|after the run had ended", found.reasons[0])
