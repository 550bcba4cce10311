"""Published defects in docs/etcd.md and docs/postgresql.md: with versions fetched as the page says, each campaign fails
in the version that has the defect and passes in the other one."""

import subprocess
import sys
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from tests.systems.test_your_system import blocks

CAMPAIGNS = [
    pytest.param("etcd/kills", (), marks=pytest.mark.long),  # these need luck: one of the campaign's seeds must fail
    pytest.param("etcd/defrag", (), marks=pytest.mark.long),
    pytest.param("postgresql/reindex", (), marks=pytest.mark.long),
    pytest.param("postgresql/skew", ("--seeds", "1"), marks=pytest.mark.thorough),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("defects")


def fetched(directory: Path, page: str) -> Path:
    """The directory of the page's files, with the versions of its system."""
    system = directory / page
    if not system.is_dir():
        system.mkdir()
        fetches = []
        for block in blocks((PROJECT_ROOT / f"docs/{page}.md").read_text(encoding="utf-8")):
            if "file" in block.options:
                path = directory / block.options["file"]
                path.write_text(block.text)
                path.chmod(0o755)
            elif block.options.get("run") == "fetch":
                fetches.append(block.text)
        (fetch,) = fetches
        done = subprocess.run(["sh", "-ec", fetch], cwd=directory, capture_output=True, text=True, check=False)
        (system / "fetch").write_text("" if done.returncode == 0 else f"{done.stdout}{done.stderr}"[-400:])
    if trouble := (system / "fetch").read_text():
        pytest.skip(f"its versions cannot be fetched: {trouble}")
    return system


@pytest.mark.root
@pytest.mark.parametrize(("campaign", "seeds"), CAMPAIGNS)
def test_a_defect_is_in_one_version_and_not_in_the_other(
    directory: Path, campaign: str, seeds: tuple[str, ...]
) -> None:
    page, _, name = campaign.partition("/")
    file = fetched(directory, page) / f"{name}.toml"
    only = ["--store", str(directory / "store"), *seeds, "--engine", "in-process", "--quiet", "--no-plots"]
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", str(file), *only],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
