"""A system of the user's own on an inventory's hosts: its directory is copied there, and its role is played."""

import json
import sys
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from nodeimage import site_archive
from orchestrator.command import line
from tests.systems.test_your_system import blocks
from tests.worlds import support

pytestmark = pytest.mark.root
DEADLINE_S = 900.0


@pytest.mark.rotating(13, among="real-time campaigns")
def test_the_tutorials_system_passes_on_the_hosts_of_an_inventory(tmp_path: Path) -> None:
    site_archive(PROJECT_ROOT, f"3.{sys.version_info.minor}")  # fetched once; a sandbox has no network
    tests = tmp_path / "my-tests"
    assert line.main(["init", str(tests)]) == 0
    for block in blocks():
        if "file" in block.options:
            path = tmp_path / block.options["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    (tests / "my-server").chmod(0o755)
    with (tests / "system.toml").open("a") as description:
        description.write('\n[machine]\nplaybook_role = "role"\n')

    campaign = str(tests / "chaos.toml")
    question = "id -un store && stat -c %n /opt/brownout/system/my-server && pgrep -fc '[m]y-server --name' || true"
    done = support.play(
        "campaign",
        str(tmp_path),
        campaign,
        "2.5",  # the plan has the files of the system as these hosts get them
        question,
        module="tests.worlds.inventory_scenarios",
        deadline_s=DEADLINE_S,
    )

    assert done["code"] == 0, done["said"]
    (run,) = [path.parent for path in (tmp_path / "store" / "my-tests").glob("*/run.toml")]
    verdict = json.loads((run / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["world"]) == ("pass", "inventory")
    confirmed = {fault["kind"] for fault in verdict["faults"] if fault["status"] == "confirmed"}
    assert confirmed == {"kill", "pause", "power-loss", "partition-one"}
    assert done["answers"] == ["store\n/opt/brownout/system/my-server\n0"] * 3
