"""The runs for tests of pages in a browser: simulated campaigns and stored runs, each made once, on demand."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from analysis.pipeline import analyze
from analysis.report import render_run
from orchestrator.command.line import main
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun

HOSTILE: Final = "</pre></script><script>document.title='broken'</script>\x00\x1b[31m" + "long" * 60
_RANDOM: Final = """
name = "{name}"
description = "{description}"
[topology]
world = "simulation"
nodes = 3
[workload]
partitions = {partitions}
producers = 2
consumers = 1
rate = {rate}
duration_s = {duration_s}
[nemesis]
kind = "random"
faults = ["kill", "pause", "partition-one", "power-loss"]
interval_s = [{pause_s}, {pause_s}]
duration_s = [0.2, 0.3]
[checks]
min_ok = 1
min_share = 0.01
"""
_SWARM: Final = """
name = "swarm"
description = "Drawn clusters whose leaders acknowledge before the high watermark"
[topology]
nodes = 5
world = "simulation"
[swarm]
nodes = [3, 5]
rate = [20, 60]
duration_s = [5, 8]
[workload]
kind = "log"
topic = "log"
[nemesis]
kind = "random"
faults = ["kill", "power-loss", "partition-leader", "pause", "packet-loss"]
interval_s = [0.1, 0.5]
duration_s = [0.1, 0.5]
[checks]
min_ok = 1
min_queries = 0
min_share = 0
[seeds]
first = 3
count = 1
[[cell]]
name = "mutated"
mutants = ["ack_before_hw"]
expect = { verdict = "fail", anomaly = "stale-read" }
"""


class PageRuns:
    """Pages by name: `of` makes the run or campaign of a page when it is first asked for."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self._made: dict[str, Path] = {}
        self._makers: dict[str, Callable[[], Path]] = {
            "demo": lambda: self._run_page("demo", "main"),
            "scenario": lambda: self._run_page("kip101-scenario1", "mutated"),
            "campaign": lambda: self.of("scenario").parents[1] / "report.html",
            "64 partitions": lambda: self._random("64 partitions", partitions=64, rate=60, duration_s=6, pause_s=1),
            "50 faults": lambda: self._random("50 faults", partitions=2, rate=40, duration_s=25, pause_s=0.25),
            "swarm": self._swarm,
            "registers": lambda: self._stored(StoredRegisters(store / "registers", stale=True, keys=("a", HOSTILE))),
            "etcd": lambda: self._stored(self._etcd()),
            "group": lambda: self._stored(StoredRun(store / "group", has_group=True)),
            "tiered": lambda: self._run_page("tiered-uncommitted", "mutated"),
            "unknown": lambda: self._stored(StoredRun(store / "unknown", phases=("setup", "main"))),
            "lost": lambda: self._stored(StoredRun(store / "lost", lost=7)),
            "hostile": lambda: self._stored(self._hostile()),
            "compared": self._compared,
            "index": self._index,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._makers)

    def of(self, name: str) -> Path:
        """The path of a page."""
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def _run_page(self, campaign: str, cell: str, *options: str) -> Path:
        """The page of the first run of a cell; a run that its campaign expects to fail is what was asked for."""
        words = ["run", campaign, "--world", "simulation", "--engine", "in-process", "--quiet", *options]
        assert main([*words, "--cell", cell, "--store", str(self.store)]) == 0
        (made,) = (self.store / Path(campaign).stem).glob(f"*-{cell}-*/report.html")
        return made

    def _written(self, name: str, text: str, cell: str) -> Path:
        path = self.store.with_name(f"{name}.toml")
        path.write_text(text)
        return self._run_page(str(path), cell)

    def _random(self, name: str, **values: float) -> Path:
        called = name.replace(" ", "-")
        return self._written(called, _RANDOM.format(name=called, description=name, **values), "main")

    def _swarm(self) -> Path:
        return self._written("swarm", _SWARM, "mutated")

    def _stored(self, run: StoredRun | StoredRegisters) -> Path:
        analyze(run.write(), engine="in-process")
        return render_run(run.path)

    def _etcd(self) -> StoredRegisters:
        system = {"name": "etcd", "title": "etcd", "version": "3.4.23"}
        return StoredRegisters(self.store / "etcd", stale=True, system=system)

    def _hostile(self) -> StoredRun:
        exits, lines = (("n3", 1, None, HOSTILE),), (("n2", "x", HOSTILE),)
        return StoredRun(self.store / "hostile", lost=7, exits=exits, fatal_lines=lines)

    def _compared(self) -> Path:
        page = self.store.with_name("compared.html")
        before, after = (str(self.of(name).parents[1]) for name in ("50 faults", "64 partitions"))
        assert main(["compare", before, after, "--page", str(page)]) == 0
        return page

    def _index(self) -> Path:
        self.of("scenario")
        assert main(["list", "--store", str(self.store)]) == 0
        return self.store / "index.html"
