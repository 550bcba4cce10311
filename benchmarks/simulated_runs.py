"""Number of simulated runs of 60 virtual seconds per hour and core, and a profile of one.

    python -m benchmarks.simulated_runs [--campaign FILE] [--seeds 3] [--profile]

The unit is the CPU time of the whole run (simulated world, clients, record) and, separately, of the analysis. Other
work on the machine hardly changes it. `--profile` prints the functions that use it.
"""

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun, run_id
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.run_maker import WHERE, Maker
from orchestrator.store.directories import Store

CAMPAIGN = Path(__file__).with_name("simulated-minute.toml")
GOAL = 1_500  # runs per hour and core
HOUR_S = 3_600.0
MINUTE_S = 60.0
_SHOWN = 25  # functions of a profile


@dataclass(frozen=True)
class Measured:
    """One run: its virtual seconds, and its CPU seconds without and with the analysis."""

    simulated_s: float
    world_cpu_s: float
    cpu_s: float

    @property
    def an_hour(self) -> float:
        """Runs of a virtual minute per hour and core, each with its analysis."""
        return HOUR_S / self.cpu_s * self.simulated_s / MINUTE_S


def measure(campaign: Campaign, seed: int) -> Measured:
    """Make and analyze one run, in its own store."""
    with tempfile.TemporaryDirectory(prefix="brownout-benchmark-") as directory:
        maker = Maker(Store(Path(directory)), Progress(quiet=True), Interrupts(lambda: None, lambda: None))
        (cell, *_) = campaign.cells
        began_s = time.process_time()
        made = maker.make(PlannedRun(run_id("benchmark", cell.name, seed), campaign, cell, seed, WHERE))
        cpu_s = time.process_time() - began_s
        assert made.verdict.met, f"seed {seed}: {made.verdict.verdict}: {made.verdict.reasons}"
        return Measured(made.simulated_s, made.cpu_s, cpu_s)


def main() -> None:
    """Print the results, the medians of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaign", type=Path, default=CAMPAIGN)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    campaign = load(options.campaign)
    measure(campaign, 0)  # a first run loads and compiles what all runs share
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    measured = [measure(campaign, seed) for seed in range(1, options.seeds + 1)]
    profile.disable()
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(_SHOWN)
        return  # a profile slows down every call, so the figures would be wrong
    for name, values in (
        ("virtual seconds", [it.simulated_s for it in measured]),
        ("processor seconds, the world", [it.world_cpu_s for it in measured]),
        ("processor seconds, with the analysis", [it.cpu_s for it in measured]),
        (f"runs of {MINUTE_S:g} virtual seconds an hour and core (goal {GOAL})", [it.an_hour for it in measured]),
    ):
        print(f"{name:64}{statistics.median(values):10.2f}  ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
