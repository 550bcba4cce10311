"""A short campaign to explore, and a world in which its runs are only imagined."""

from collections.abc import Sequence
from pathlib import Path

from orchestrator.campaign.parser import load
from orchestrator.command.line import main
from orchestrator.search.exploring import Arm, ExploredCell
from orchestrator.search.steps_of_run import InjectedFault, InjectedFaults
from orchestrator.search.task import Attempted, ExplorationTask

SHORT = """
name = "short"
[topology]
nodes = 3
[broker]
"min.insync.replicas" = 2
"replica.lag.time.max.ms" = 1500
"broker.session.timeout.ms" = 2500
"broker.lease.ms" = 1500
[workload]
partitions = 1
producers = 1
consumers = 0
rate = 20
duration_s = 6
[nemesis]
kind = "random"
faults = ["kill", "power-loss"]
interval_s = [0.3, 0.6]
duration_s = [0.5, 1.0]
[checks]
min_ok = 1
min_share = 0.01
[[cell]]
name = "mutated"
mutants = ["bounce_unseen"]
expect = { verdict = "fail", anomaly = "lost-acknowledged-write" }
[[cell]]
name = "fixed"
"""


def schedule(*faults: InjectedFault) -> InjectedFaults:
    return InjectedFaults(faults or (InjectedFault("kill", ("n1",), 1.0, 2.0, {}),), 10.0)


class World:
    """What would happen: a seed of the campaign reaches one state of its own, a variation three new ones."""

    def __init__(self) -> None:
        self.asked: list[ExplorationTask] = []

    def make(self, tasks: Sequence[ExplorationTask]) -> list[Attempted]:
        self.asked += tasks
        return [self._one(task) for task in tasks]

    def _one(self, task: ExplorationTask) -> Attempted:
        is_fresh = task.parent < 0
        states = [f"seed {task.seed}"] if is_fresh else [f"{task.arm} {task.number}.{each}" for each in range(3)]
        anomalies = ("lost-acknowledged-write",) if task.seed == 5 else ()
        verdict = "fail" if anomalies else "pass"
        return Attempted(
            task.number, task.arm, task.seed, task.parent, verdict, anomalies, "", tuple(states), (), schedule(),
            "" if is_fresh else task.text, steps=1000 - task.number,
        )  # fmt: skip


def arm(name: str, path: Path, cell: str = "mutated") -> Arm:
    loaded = load(path)
    return Arm(name, ExploredCell(loaded, next(each for each in loaded.cells if each.name == cell), 1))


def run_explore(path: Path, store: Path, *words: str) -> int:
    common = ["--engine", "in-process", "--quiet", "--json", "--store", str(store)]
    return main(["explore", str(path), *common, *words])
