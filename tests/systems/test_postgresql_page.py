"""docs/postgresql.md: its files are valid unchanged; with a PostgreSQL its campaigns have the documented results."""

import shutil
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.command.line import main
from tests.systems.test_your_system import write_files

PAGE = (PROJECT_ROOT / "docs/postgresql.md").read_text(encoding="utf-8")
CAMPAIGNS = ("durability", "isolation", "transactions", "standby")
OF_DEFECTS = ("reindex", "skew")
HAS_POSTGRESQL = shutil.which("postgres") or [*Path("/usr/lib/postgresql").glob("*/bin/postgres")]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_files(PAGE, tmp_path)
    (tmp_path / "postgresql/postgres-node").chmod(0o755)
    return tmp_path / "postgresql"


@pytest.mark.parametrize("campaign", CAMPAIGNS + OF_DEFECTS)
def test_the_files_of_the_page_are_valid(directory: Path, campaign: str) -> None:
    assert main(["run", str(directory / f"{campaign}.toml"), "--dry-run", "--world", "process"]) == 0


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.skipif(not HAS_POSTGRESQL, reason="PostgreSQL is missing")
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_each_setting_has_its_documented_result(directory: Path, campaign: str) -> None:
    only = ["--world", "process", "--seeds", "1", "--engine", "in-process", "--quiet", "--no-plots"]
    assert main(["run", str(directory / f"{campaign}.toml"), "--store", str(directory / "store"), *only]) == 0
