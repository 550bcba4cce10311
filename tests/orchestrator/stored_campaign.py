"""A store as `brownout run` leaves it, without running anything: plans, and runs that were recorded and judged."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.pipeline import analyze
from orchestrator.campaign.file import parse
from orchestrator.campaign.plan import PlannedRun
from orchestrator.campaign.store import Store
from orchestrator.command.line import main
from orchestrator.running.runner import plan_invocation
from systems.toml_tables import Source
from tests.analysis_pipeline.stored_run import StoredRun

NAME = "story"
TWO_SEEDS = "[seeds]\ncount = 2\n"


@dataclass
class StoredCampaign:
    """One campaign, `text` without its name; `store` is a directory."""

    store: Path
    text: str = TWO_SEEDS
    plans: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.store / NAME

    def plan(self, **asked: Any) -> tuple[PlannedRun, ...]:
        """Begin an invocation; its runs."""
        campaign = parse(Source("story.toml", f'name = "{NAME}"\n{self.text}'), Path("story.toml"))
        invocation = plan_invocation(Store(self.store), campaign, **{"world": StoredRun.world} | asked)
        self.plans.append(invocation.stamp)
        return invocation.todo

    def make(self, planned: PlannedRun, **changes: Any) -> Path:
        """Record a run, which passes unless it is told otherwise, and judge it; its directory."""
        expect = planned.cell.expect
        said = {"verdict": expect.verdict} | ({"anomaly": expect.anomaly} if expect.anomaly else {})
        told: dict[str, Any] = {"seed": planned.seed, "cell": planned.cell.name, "campaign": planned.campaign.text}
        run = StoredRun(self.path / planned.id, **told | {"expect": said} | changes).write()
        analyze(run, engine="in-process", pictures=False)
        return run

    def made(self, **asked: Any) -> list[Path]:
        """A whole invocation whose runs all came to what was expected."""
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
