"""Size of shrunk schedules that kill the broker's mutants, and whether they also kill them on real processes.

    python -m benchmarks.shrunk_schedules --store DIR [--mutants NAME ...] [--budget 60] [--namespaces 3] [--json FILE]

For each mutant, the first campaign and seed that kill it in the simulation are shrunk as by `brownout shrink`. If the
namespace world supports the remaining schedule, it runs there with `--namespaces` seeds. An anomaly that only an oracle
detects is visible only in the simulation. The store keeps every run with its `shrunk.toml`. Results that the `--json`
file has are not repeated.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from analysis.verdict import VERDICT_FILE, Verdict
from orchestrator.campaign.lookup import find
from orchestrator.command.mutants import GENERAL, MutantSchedule, schedules
from orchestrator.errors import EXIT_INTERNAL, EXIT_USAGE
from orchestrator.store.directories import Store
from simulator.oracles import ORACLES
from systems.brownout.broker import Brownout

SEEDS: Final = (1, 2, 3, 4, 5)
"""Seeds with which a campaign is tried until one of them shows the mutant."""
FEW: Final = 3
"""Largest number of faults that a shrunk schedule should have."""
NAMESPACES: Final = "namespaces"


@dataclass(frozen=True)
class Shrunk:
    """The shrunk schedule of one mutant. `shown` of `seeds` runs show the anomaly in the simulation, `real` of `tried`
    runs in namespaces; `tried` is 0 if that world does not support the schedule."""

    mutant: str
    campaign: str
    seed: int
    anomaly: str
    faults_before: int
    faults: int
    steps: int
    nodes: int
    runs: int
    shown: int
    seeds: int
    real: int
    tried: int
    path: str


def killing(wanted: Sequence[MutantSchedule], store: Path) -> Iterator[tuple[MutantSchedule, int, str, Path]]:
    """For each schedule the first run with the expected anomaly: its seed, the anomaly and its directory."""
    for schedule in wanted:
        path = _with_cell(schedule, store)
        for seed in SEEDS:
            words = ["--world", "simulation", "--cell", schedule.cell.name, "--seed", str(seed)]
            run = _run(path, store, words)[0]
            verdict = Verdict.read(run / VERDICT_FILE)
            named = [it.name for it in verdict.anomalies if it.name in schedule.anomalies]
            if named and verdict.verdict == "fail":
                yield schedule, seed, min(named, key=lambda name: name in ORACLES), run
                break


def _with_cell(schedule: MutantSchedule, store: Path) -> Path:
    """The campaign's file, or a copy with a cell for the mutant if the file has none."""
    if any(cell.name == schedule.cell.name for cell in schedule.campaign.cells):
        return schedule.campaign.path
    cell = (
        f'\n[[cell]]\nname = "{schedule.cell.name}"\nmutants = ["{schedule.mutant}"]\n'
        f'expect = {{ verdict = "fail", anomaly = "{schedule.anomalies[0]}" }}\n'
    )
    path = store / f"{schedule.campaign.name}-{schedule.cell.name}.toml"
    path.write_text(schedule.campaign.text + cell, encoding="utf-8")
    return path


def _run(path: Path, store: Path, words: Sequence[str]) -> list[Path]:
    """Run a campaign and return its runs."""
    _brownout("run", str(path), "--quiet", "--engine", "in-process", "--store", str(store), *words)
    latest = (store / "latest").resolve()
    stamp = latest.name.split("-", 1)[0]
    return sorted(latest.parent.glob(f"{stamp}-*"))


def _brownout(*words: str) -> str:
    """The command's output. Raises `SystemExit` if the command was rejected or failed, because then it made no run."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words], capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode in (EXIT_USAGE, EXIT_INTERNAL):
        sys.exit(done.stderr.strip())
    return done.stdout


def shrunk(
    schedule: MutantSchedule, seed: int, anomaly: str, run: Path, store: Path, budget: str, real: int
) -> Shrunk | None:
    """Shrink a run and try the result in namespaces. None: the run cannot be shrunk."""
    output = _brownout(
        "shrink", str(run), "--anomaly", anomaly, "--budget", budget, "--quiet", "--json", "--store", str(store)
    )
    if not output.startswith("{"):
        return None
    found: dict[str, Any] = json.loads(output)
    path = Path(found["campaign"])
    runs = []
    if real and NAMESPACES in found["worlds"]:
        runs = _run(path, store, ["--world", NAMESPACES, "--seeds", f"{seed}-{seed + real - 1}"])
    shows = [anomaly in [it.name for it in Verdict.read(each / VERDICT_FILE).anomalies] for each in runs]
    return Shrunk(
        schedule.mutant, schedule.campaign.name, seed, anomaly, found["faults_before"], found["faults"], found["steps"],
        found["nodes"], found["runs"], found["shown"], found["seeds"], sum(shows), len(shows), str(path),
    )  # fmt: skip


def wanted_of(names: Sequence[str]) -> dict[str, list[MutantSchedule]]:
    """For each mutant the schedules that should kill it, those of the general campaign last."""
    found = {}
    for name in names or sorted(name for name, it in Brownout.mutants.items() if it.anomaly):
        words = (word.strip(",;.") for word in Brownout.mutants[name].schedule.split())
        named = [Path(word).stem for word in words if word.startswith("campaigns/")]
        campaigns = [find(campaign) for campaign in dict.fromkeys([*named, GENERAL])]
        found[name] = schedules(Brownout.mutants, [name], campaigns)
    return found


def main() -> None:
    """Print a line for each mutant, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--mutants", nargs="+", default=[])
    parser.add_argument("--budget", default="60")
    parser.add_argument("--namespaces", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json and options.json.exists() else []
    results = [Shrunk(**each) for each in kept]
    for mutant, wanted in wanted_of(options.mutants).items():
        if any(it.mutant == mutant for it in results):
            continue
        store = Store(options.store.resolve()).root
        for schedule, seed, anomaly, run in killing(wanted, store):
            result = shrunk(schedule, seed, anomaly, run, store, options.budget, options.namespaces)
            if result is not None:
                results.append(result)
                print(f"{mutant:36} {_line(result)}", flush=True)
                break
        else:
            print(f"{mutant:36} no run of seeds {SEEDS} showed it, also as a campaign of steps", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(it) for it in results], indent=1) + "\n", encoding="utf-8")
    few = sum(it.faults <= FEW for it in results)
    tried = [it for it in results if it.tried]
    real = sum(it.real > 0 for it in tried)
    print(f"{few} of {len(results)} have at most {FEW} faults; {real} of {len(tried)} show it in namespaces")


def _line(it: Shrunk) -> str:
    tried = f"{it.real} of {it.tried} in namespaces" if it.tried else "not tried in namespaces"
    return (
        f"{it.anomaly} in {it.campaign}, seed {it.seed}: {it.faults_before} -> {it.faults} faults, {it.steps} steps,"
        f" {it.nodes} nodes ({it.runs} runs); {it.shown} of {it.seeds} seeds; {tried}"
    )


if __name__ == "__main__":
    main()
