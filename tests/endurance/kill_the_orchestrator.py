"""SIGKILLs the orchestrator at random moments and checks the remains: only the record may remain.

    python -m tests.endurance.kill_the_orchestrator --times 20 --seed 1
    python -m tests.endurance.kill_the_orchestrator --times 10 --world vagrant

A first, undisturbed run measures the time of a run. Each round then kills one of the processes that keep a sandbox
together (the orchestrator itself, the outer parent, PID 1) between a run's first moment and the end of its analysis;
the moments are spread over all of that time, the boot of virtual machines included. Afterwards no process, mount, loop
device, link, network namespace or control group may remain, and the record must be analyzed: unknown, unless the record
was complete. The last run is undisturbed again and must pass. One line per round; exit 1 when anything remained or a
verdict was wrong.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign_text import IMPATIENT, campaign_text, random_faults
from tests.endurance.remains import Remains, orphaned_groups
from tests.worlds.footprint import children

ROOT = Path(__file__).resolve().parents[2]
MARK = "BROWNOUT_ENDURANCE"
NO_VICTIM = "no process: the run had ended"


@dataclass(frozen=True)
class Pace:
    """How long a whole run may take, and how long after a kill something may still be there, in seconds."""

    whole_run_s: float = 300.0
    gone_s: float = 5.0


VIRTUAL = Pace(whole_run_s=1800.0, gone_s=30.0)
"""Emulated machines boot for a minute on a quiet host, and their memory takes its time to be given back."""

CAMPAIGN = campaign_text(
    "killed",
    "A short demo, to be killed",
    broker=IMPATIENT,
    workload={"partitions": 2, "producers": 2, "consumers": 1, "rate": 100, "duration_s": 6},
    nemesis=random_faults("kill", "power-loss", "partition-one", interval_s=[0.3, 0.8], duration_s=[0.5, 1.0]),
)
ONE_MACHINE = campaign_text(
    "killed",
    "One virtual machine, to be killed with its orchestrator",
    topology={"nodes": 1},
    broker={"log.flush.interval.messages": 1},
    workload={"partitions": 1, "replication_factor": 1, "producers": 1, "consumers": 1, "rate": 20, "duration_s": 15},
    nemesis=random_faults("kill", "power-loss", interval_s=[1.0, 2.0], duration_s=[2.0, 3.0]),
    # of the planned appends: beside other work an emulated machine is slow
    checks={"min_share": 0.1},
)


@dataclass
class Round:
    """One killed run."""

    victim: str = NO_VICTIM
    phase: str = "before the record"
    verdict: str = "nothing recorded"
    wrong: list[str] = field(default_factory=list)


class Killer:
    """Starts runs of one small campaign in one store, and kills them."""

    def __init__(self, directory: Path, world: str) -> None:
        self.store = directory / "store"
        self._world = world
        is_virtual = world == "vagrant"
        self._pace = VIRTUAL if is_virtual else Pace()
        self._campaign = directory / "killed.toml"
        self._campaign.write_text(ONE_MACHINE if is_virtual else CAMPAIGN)
        self._output = directory / "output.txt"
        self._mark = f"{MARK}={os.urandom(8).hex()}"

    def unharmed(self) -> float:
        """A whole run, which must pass; its duration in seconds. Ends the program when it does not pass."""
        began = time.monotonic()
        code = self._start().wait(self._pace.whole_run_s)
        if code != 0:
            sys.exit(f"an undisturbed run ended with {code}:\n{self._output.read_text()[-2000:]}")
        return time.monotonic() - began

    def kill_one(self, after_s: float, rng: random.Random) -> Round:
        """Start a run, kill one of its processes after `after_s` seconds, and look at what is left."""
        result = Round()
        remains = Remains(self._mark, self.store)
        known = self._runs()
        process = self._start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        if process.poll() is None:
            victims = _victims(process.pid)
            result.victim = rng.choice(sorted(victims))
            remains.look(process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victims[result.victim], signal.SIGKILL)
        try:
            process.wait(self._pace.gone_s)
        except subprocess.TimeoutExpired:
            result.wrong.append(f"the outer parent lives {self._pace.gone_s:g} s after the {result.victim} was killed")
        runs = sorted(self._runs() - known)
        left = remains.wait_gone([run.name for run in runs], self._pace.gone_s)
        result.wrong += [f"left {kind}: {'; '.join(what)}" for kind, what in left.items()]
        for run in runs:
            self._judge(run, result)
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "orchestrator", "run", str(self._campaign), "--store", str(self.store)]
        name, _, value = self._mark.partition("=")
        with self._output.open("wb") as output:
            return subprocess.Popen(
                [*command, "--world", self._world],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _runs(self) -> set[Path]:
        return {path.parent for path in (self.store / "killed").glob("*/run.toml")}

    def _judge(self, run: Path, result: Round) -> None:
        """Judge what was recorded, as a user would."""
        result.phase = _last_phase(run)
        command = [sys.executable, "-m", "orchestrator", "analyze", str(run), "--store", str(self.store)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--engine", "in-process"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        try:
            result.verdict = json.loads((run / "verdict.json").read_text())["verdict"]
        except (OSError, ValueError) as error:
            result.wrong.append(f"{run} has no verdict: {error}")
        expected = (0, "pass") if result.phase == "done" else (2, "unknown")
        if (done.returncode, result.verdict) != expected:
            result.wrong.append(
                f"analyze {run} ended with {done.returncode}, {result.verdict}, not {expected[0]}, {expected[1]}:\n"
                f"{(done.stdout + done.stderr)[-2000:]}"
            )


def main() -> int:
    """Run it all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance.kill_the_orchestrator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--times", type=int, default=20, metavar="N", help="how many runs to kill (20)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="settles moments and victims (1)")
    parser.add_argument("--world", choices=("auto", "namespaces", "process", "vagrant"), default="auto")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    directory = Path(tempfile.mkdtemp(prefix="brownout-killed-"))
    killer = Killer(directory, options.world)
    whole_s = killer.unharmed()
    print(f"an undisturbed run passes in {whole_s:.1f} s", flush=True)
    moments = [(number + rng.random()) / options.times * whole_s for number in range(options.times)]
    rng.shuffle(moments)
    rounds = []
    for number, moment in enumerate(moments, 1):
        rounds.append(killer.kill_one(moment, rng))
        _print(number, moment, rounds[-1])
    killer.unharmed()
    orphans = orphaned_groups()
    for orphan in orphans:
        print(f"left control group: {orphan}")
    wrong = sum(1 for each in rounds if each.wrong)
    killed = sum(1 for each in rounds if each.victim != NO_VICTIM)
    print(f"{killed} of {len(rounds)} runs killed, {wrong} left something or were judged wrongly; the next run passed")
    if wrong or orphans:
        print(f"their records are kept in {killer.store}")
        return 1
    shutil.rmtree(directory)
    return 0


def _print(number: int, moment: float, result: Round) -> None:
    state = "WRONG" if result.wrong else "ok"
    print(
        f"{number:3} {state:5} after {moment:5.1f} s  killed: {result.victim:24} in: {result.phase:18} "
        f"judged: {result.verdict}",
        flush=True,
    )
    for line in result.wrong:
        print(f"    {line}", flush=True)


def _victims(outer: int) -> dict[str, int]:
    """The processes that keep a sandbox together, by their role; only the orchestrator without a sandbox."""
    inside = len(_numbers(outer))  # how deep the sandbox's own process namespace is
    with contextlib.suppress(OSError, IndexError):
        first = next((pid for pid in children(outer) if _numbers(pid)[inside:] == [1]), None)
        if first is not None:
            below = sorted(children(first), key=lambda pid: _numbers(pid)[inside])
            return {"outer parent": outer, "PID 1": first} | ({"orchestrator": below[0]} if below else {})
    return {"orchestrator": outer}


def _numbers(pid: int) -> list[int]:
    """A process's number in each process namespace, from ours to its own; none when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return []
    return next([int(word) for word in line.split()[1:]] for line in status.splitlines() if line.startswith("NSpid:"))


def _last_phase(run: Path) -> str:
    phase = "before the record"
    with contextlib.suppress(OSError):
        for line in (run / "history" / "journal.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "phase":
                    phase = event["name"]
    return phase


if __name__ == "__main__":
    sys.exit(main())
