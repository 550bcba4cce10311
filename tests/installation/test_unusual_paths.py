"""A store, a project and a campaign in directories with names that programs often misread."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installation.test_plain_paths import MISREAD
from tests.installation.test_standard_streams import environment
from tests.installation.test_wheel import MINE


@pytest.mark.rotating(7, among="installed package")
@pytest.mark.parametrize(
    ("world", "engine"),
    [
        pytest.param("process", "spark", marks=pytest.mark.spark),
        pytest.param("namespaces", "in-process", marks=pytest.mark.root),
        ("simulation", "in-process"),
    ],
)
def test_a_campaign_reaches_its_verdict_in_any_directory(world: str, engine: str, tmp_path: Path) -> None:
    place = tmp_path / MISREAD
    place.mkdir()
    campaign = place / f"my {MISREAD}.toml"
    campaign.write_text(MINE, encoding="utf-8")
    command = ["run", str(campaign), "--world", world, "--engine", engine, "--json", "--store", str(place / "st ore")]
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *command],
        cwd=place,
        env=environment({"XDG_CACHE_HOME": str(place / "cache")}),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "pass"
