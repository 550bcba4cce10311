"""Makes the simulated runs of an invocation side by side, each in a process of its own.

The parent holds the plan, prints what each run said when it has ended, and raises `Interrupted` only when the runs that
had started have their verdicts: no evidence is lost. A second interrupt ends all processes at once.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from installation.counted import counted
from orchestrator.campaign.model import SIMULATION
from orchestrator.campaign.plan import PlannedRun
from orchestrator.cleanup import described
from orchestrator.errors import Interrupted, RunError, UsageError
from orchestrator.running.engine import IN_PROCESS, Engine
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.runner import CampaignInvocation, Runner, RunOptions, require_unmade
from orchestrator.running.worker_processes import worker_processes
from orchestrator.store.directories import Store
from orchestrator.store.plans import held_plan
from orchestrator.worlds.selection import Selection, lab_named


@dataclass(frozen=True)
class _RunTask:
    """A run for a worker. `reason`: why this world was chosen."""

    store: Path
    planned: PlannedRun
    reason: str
    plots: bool


def require_parallel(world: str, engine: str) -> None:
    """Raise `UsageError` where runs cannot be made side by side."""
    if world != SIMULATION:
        raise UsageError(
            f"--jobs: the {world} world makes one run at a time, since its nodes share this machine; leave out --jobs, "
            f"or use --world {SIMULATION}"
        )
    if engine != IN_PROCESS:
        raise UsageError("--jobs: each process analyzes its runs itself; leave out --engine spark")


def make_in_parallel(
    invocation: CampaignInvocation,
    store: Store,
    options: RunOptions,
    progress: Progress,
    interrupts: Interrupts,
    jobs: int,
) -> None:
    """Make all remaining runs in `jobs` processes. Raises as `Runner.make_all`, and `RunError` when a process ends
    unexpectedly."""
    count, ended = len(invocation.todo), 0
    with held_plan(store.campaign_dir(invocation.campaign.name), invocation.stamp):
        require_unmade(store, invocation)
        todo = iter(
            _RunTask(store.root, planned, options.selection.reason, options.engine.plots) for planned in invocation.todo
        )
        with worker_processes(jobs, interrupts) as pool, interrupts.shielded():
            pending: set[Future[str]] = set()
            while True:
                while len(pending) < jobs and not interrupts.requested and (task := next(todo, None)) is not None:
                    pending.add(pool.submit(_make, task))
                if not pending:
                    break
                progress.run(f"{ended}/{counted(count, 'run')}, {len(pending)} under way")
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    ended += 1
                    for line in future.result().splitlines():
                        progress.say(line)
    if interrupts.requested:
        raise Interrupted


def _make(task: _RunTask) -> str:
    """In a worker: make one run and analyze it; returns what it said of its result."""
    store = Store(task.store)
    engine = Engine(IN_PROCESS, plots=task.plots)
    options = RunOptions(Selection(lab_named(SIMULATION), task.reason), engine)
    runner = Runner(store, options, Progress(quiet=True), Interrupts(lambda: None, lambda: None))
    try:
        return "\n".join(runner.make_one(task.planned))
    except RunError as error:
        return f"{task.planned.id} was not made: {described(error)}"
