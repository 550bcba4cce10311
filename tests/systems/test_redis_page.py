"""docs/redis.md: its files are valid unchanged, and with a Redis and a Perl its commands give the documented
results."""

import shutil
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.command.line import main
from tests.systems.test_your_system import write_files

PAGE = (PROJECT_ROOT / "docs/redis.md").read_text(encoding="utf-8")
CAMPAIGNS = ("redis/chaos.toml", "redis-list/chaos.toml")
NEEDED = ("redis-server", "perl")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_files(PAGE, tmp_path)
    (tmp_path / "redis-list/client.pl").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_the_files_of_the_page_are_valid(directory: Path, campaign: str) -> None:
    assert main(["run", str(directory / campaign), "--dry-run", "--world", "process"]) == 0


@pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"one of {', '.join(NEEDED)} is missing")
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_the_redis_campaign_passes_without_a_power_loss(directory: Path, campaign: str) -> None:
    only = ["--cell", "always", "--seed", "1", "--world", "process", "--engine", "in-process", "--quiet"]
    assert main(["run", str(directory / campaign), "--store", str(directory / "store"), *only]) == 0
