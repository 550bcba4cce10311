"""A broker that ends by itself is a finding and ends the run at once; its own words say why."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from history.journal import Journal
from orchestrator.command.line import main

ALIEN = """
name = "alien"
[topology]
world = "process"
[broker.n2]
"cluster.id" = "another"
"""


def test_a_broker_that_gives_up_is_not_waited_for(tmp_path: Path) -> None:
    campaign = tmp_path / "alien.toml"
    campaign.write_text(ALIEN)
    code = main(["run", str(campaign), "--store", str(tmp_path / "store"), "--engine", "in-process", "--quiet"])

    (verdict_file,) = (tmp_path / "store" / "alien").glob("*/verdict.json")
    verdict = json.loads(verdict_file.read_text())
    assert (code, verdict["verdict"]) == (1, "fail")
    (found,) = verdict["anomalies"]
    assert found["name"] == "unexpected-exit"
    assert "n2 ended with exit code 70" in found["sentence"]
    assert "correct cluster.id" in found["sentence"]
    journal = next((tmp_path / "store" / "alien").glob("*/history/journal.jsonl")).read_text()
    assert "n2: the service has ended by itself" in journal
    assert "not within" not in journal


MORTAL = """
name = "mortal"
[topology]
world = "process"
[workload]
partitions = 1
producers = 1
consumers = 0
duration_s = 0.1
"""


def test_one_that_ends_after_everything_was_healed_is_found_and_the_run_is_finished_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, note_phase = tmp_path / "mortal.toml", Journal.phase
    campaign.write_text(MORTAL)

    def phase(journal: Journal, name: str) -> int:
        if name == "quiesce":
            os.kill(broker_of("n3", tmp_path), signal.SIGKILL)
        return note_phase(journal, name)

    monkeypatch.setattr(Journal, "phase", phase)
    code = main(["run", str(campaign), "--store", str(tmp_path / "store"), "--engine", "in-process", "--quiet"])

    (run,) = [path.parent for path in (tmp_path / "store" / "mortal").glob("*/run.toml")]
    verdict = json.loads((run / "verdict.json").read_text())
    assert (code, verdict["verdict"]) == (1, "fail")
    assert "unexpected-exit" in {anomaly["name"] for anomaly in verdict["anomalies"]}
    journal = [json.loads(line) for line in (run / "history" / "journal.jsonl").read_text().splitlines()]
    assert [line["node"] for line in journal if line["event"] == "service_exit"] == ["n3"]
    assert [line["name"] for line in journal if line["event"] == "phase"][-1] == "done"


def broker_of(node: str, store: Path) -> int:
    """The process that runs the broker of this node with files below `store`."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            mine = [word for word in words if word.startswith(str(store)) and f"/{node}/" in word]
            if "broker" in words and mine:
                return int(path.parent.name)
    raise AssertionError(f"no broker of {node} below {store}")
