"""A store as `brownout run` leaves it, without a real run: plans, and recorded runs with verdicts."""

import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from analysis.pipeline import analyze
from history.seal import digest
from orchestrator.campaign.description import RunWorld, run_description
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun
from orchestrator.campaign.systems import deployed_as
from orchestrator.command.line import main
from orchestrator.running.runner import plan_invocation
from orchestrator.store.directories import Store
from orchestrator.store.run_digests import record
from systems.toml_tables import TomlSource
from tests.analysis_pipeline.stored_run import StoredRun

NAME = "story"
TWO_SEEDS = "[seeds]\ncount = 2\n"
PAPER = """
name = "paper"
title = "What a test writes down"
workloads = ["log"]
[promises]
replicas = "kafka"
[roles.broker]
ports = { client = 9092 }
command = ["none"]
"""
"""A system that no run starts: of each node only files are left."""
FITTING = """
[system]
path = "paper"
[workload]
partitions = 1
producers = 1
consumers = 0
record_bytes = 20
rate = 1
duration_s = 40
[nemesis]
kind = "random"
faults = ["kill"]
[checks]
upper_bound = "strict"
min_ok = 40
required_faults = ["kill"]
"""
"""What a campaign must ask for so that `StoredRun` is a run of it."""


@dataclass
class StoredCampaign:
    """One campaign, `text` without its name; `store` is a directory. `system`: the description of the system."""

    store: Path
    text: str = TWO_SEEDS
    plans: list[str] = field(default_factory=list)
    system: str = PAPER

    @property
    def path(self) -> Path:
        return self.store / NAME

    def plan(self, **asked: Any) -> tuple[PlannedRun, ...]:
        """Start an invocation; its runs."""
        file = self.store.parent / "campaigns" / "story.toml"
        (file.parent / "paper").mkdir(parents=True, exist_ok=True)
        (file.parent / "paper" / "system.toml").write_text(self.system)
        fitting = FITTING.split("[checks]")[0] if "[checks]" in self.text else FITTING
        campaign = parse(TomlSource(str(file), f'name = "{NAME}"\n{self.text}{fitting}'), file)
        invocation = plan_invocation(Store(self.store), campaign, **{"world": StoredRun.world} | asked)
        self.plans.append(invocation.stamp)
        return invocation.todo

    def make(self, planned: PlannedRun, *, says: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        """Record a run, which passes by default, and analyze it. Returns its directory. Changes that run.toml has too
        are made there. `says`: other values of run.toml, by dotted key; None: the key is missing."""
        world = changes.get("world", StoredRun.world)
        deployed = deployed_as(planned.campaign, planned.cell, planned.id)
        paper = RunWorld(world, "it is of paper", limits=("nothing here is real",))
        content = run_description(planned, deployed, paper)
        content |= {"started": "2026-01-02T03:04:05+00:00", "versions": {"python": "3"}}
        content |= {key: value for key, value in changes.items() if key in content}
        for key, value in (says or {}).items():
            *tables, last = key.split(".")
            table = reduce(lambda inner, name: inner.setdefault(name, {}), tables, content)
            table[last] = value
        fault = next(iter(planned.schedule(["kill"])))
        drawn = {"duration_s": fault.duration_s, "aim": fault.aim, **fault.parameters}
        options: dict[str, Any] = {
            "fault_parameters": drawn,
            "seed": planned.seed,
            "cell": planned.cell.name,
            "campaign": planned.campaign.text,
        }
        run = StoredRun(self.path / planned.id, described=content, **options | changes).write()
        record(self.path, planned.id, digest(run))
        analyze(run, engine="in-process", plots=False)
        return run

    def made(self, **asked: Any) -> list[Path]:
        """A whole invocation with the expected verdicts."""
        return [self.make(planned) for planned in self.plan(**asked)]


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ask(*arguments: str | Path) -> Answer:
    """The command line, with what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Answer(code, out.getvalue(), err.getvalue())
