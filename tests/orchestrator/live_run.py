"""A run under way, with which tests meddle."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LIVE = """
name = "live"
[topology]
world = "{world}"
[workload]
partitions = 1
producers = 1
consumers = 0
rate = 50
duration_s = {duration_s}
"""
STEP_S = 300.0


class LiveRun:
    """A run in a separate process, which the test disturbs from outside. `more`: further text of its campaign."""

    def __init__(self, directory: Path, world: str, *, more: str = "", duration_s: float = 6.0) -> None:
        self.store = directory / "store"
        campaign = directory / "live.toml"
        campaign.write_text(LIVE.format(world=world, duration_s=duration_s) + more)
        words = ["run", str(campaign), "--store", str(self.store), "--engine", "in-process", "--no-plots", "--quiet"]
        self.process = subprocess.Popen([sys.executable, "-m", "orchestrator", *words], stdout=subprocess.DEVNULL)

    def journal(self) -> list[dict[str, Any]]:
        found = list((self.store / "live").glob("*/history/journal.jsonl"))
        return [json.loads(line) for line in found[0].read_text().splitlines()] if found else []

    def await_line(self, **fields: str) -> None:
        """Wait until the journal has a line with these fields."""
        give_up = time.monotonic() + STEP_S
        while not any(all(line.get(k) == v for k, v in fields.items()) for line in self.journal()):
            assert time.monotonic() < give_up, f"no {fields} within {STEP_S} s"
            assert self.process.poll() is None, "the run ended before"
            time.sleep(0.05)

    def broker(self, node: str) -> int:
        """The process of a node's broker: in the process world by its files, in the namespace world by its group."""
        run = self.path.name
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                group = (path / "cgroup").read_text()
                mine = any(run in word and f"/{node}/" in word for word in words) or f"/{run}/{node}\n" in group
                if mine and "--config" in words and "python" in words[0]:
                    return int(path.name)
        raise AssertionError(f"no broker of {node} in {run}")

    @property
    def path(self) -> Path:
        (path,) = [path.parent for path in (self.store / "live").glob("*/run.toml")]
        return path

    def verdict(self) -> dict[str, Any]:
        """The run's verdict, after its end."""
        assert self.process.wait(4 * STEP_S) == 1
        (path,) = (self.store / "live").glob("*/verdict.json")
        verdict: dict[str, Any] = json.loads(path.read_text())
        return verdict
