"""Ends a broker without an order at random moments and checks the verdicts: each must be `unexpected-exit`.

    python -m tests.endurance.unexpected_exits --times 10 --seed 1
    python -m tests.endurance.unexpected_exits --times 10 --way kill --world process

A broker is ended in five ways: it exits with code 0, with another code, or by abort(3); or it is killed from outside,
by SIGKILL or SIGTERM. Each way occurs `--times` times, its moments spread over a run: under load, during a fault (on
that node or another), during heals, during convergence, during the final reads, and just before the services are
stopped. Afterwards nothing may remain on the machine. One line per round; exit 1 when a verdict is wrong or something
remained.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from installation.files import PROJECT_ROOT
from tests.endurance.remains import Remains, orphaned_groups
from tests.orchestrator.live_run import STEP_S, LiveRun

MARK: Final = "BROWNOUT_ENDURANCE"
GONE_S: Final = 15.0
LOAD_S: Final = 4.0
NODES: Final = ("n1", "n2", "n3")

MORE: Final = """
[nemesis]
kind = "random"
faults = ["{fault}"]
interval_s = [0.5, 1.0]
duration_s = [1.0, 1.5]
[system]
path = "mortal"
"""
# Our broker, and a thread that waits for a signal and then does what it is there for.
MORTAL: Final = """\
import os, runpy, signal, sys, threading
sys.path.pop(0)  # where a module lies that is called broker, too
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}})
def live():
    signal.sigwait({{signal.SIGUSR1}})
    {action}
threading.Thread(target=live, daemon=True).start()
runpy.run_module("broker", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Way:
    """How a broker ends: the signal that is sent to it, and what it does at SIGUSR1."""

    name: str
    sent: signal.Signals
    action: str = "pass"


WAYS: Final = (
    Way("exit-0", signal.SIGUSR1, "os._exit(0)"),
    Way("exit-3", signal.SIGUSR1, "os._exit(3)"),
    Way("abort", signal.SIGUSR1, "os.abort()"),
    Way("kill", signal.SIGKILL),
    Way("term", signal.SIGTERM),
)


@dataclass(frozen=True)
class Moment:
    """When: `later_s` (at most) after the journal has a line with these fields. `on_target`: on a node that the line
    speaks of, if it speaks of one."""

    name: str
    line: dict[str, str]
    later_s: float = 0.0
    on_target: bool = False


FAULTS: Final = ("partition-one", "pause", "kill")
MOMENTS: Final = (
    Moment("under load", {"event": "note", "text": "first_ack"}, later_s=LOAD_S / 4),
    Moment("under a fault", {"event": "fault_injected"}, later_s=0.3, on_target=True),
    Moment("beside a fault", {"event": "fault_injected"}, later_s=0.3),
    Moment("while all is healed", {"event": "phase", "name": "heal"}),
    Moment("while all is quiet", {"event": "phase", "name": "quiesce"}, later_s=0.2),
    Moment("in the final reads", {"event": "phase", "name": "final"}, later_s=0.2),
    Moment("before the stop", {"event": "phase", "name": "collect"}),
)


@dataclass
class Round:
    """One run whose broker was ended. `verdict`, `names`: what was said of it, and the anomalies."""

    way: Way
    moment: Moment
    fault: str
    node: str = "no node"
    phase: str = "?"
    verdict: str = "none"
    names: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Ender:
    """Makes runs of a short campaign and ends one broker in each."""

    def __init__(self, directory: Path, world: str, rng: random.Random) -> None:
        self._directory, self._world, self._rng = directory, world, rng
        name, value = MARK, os.urandom(8).hex()
        os.environ[name] = value  # which all that is started inherits
        self._mark = f"{name}={value}"

    def end_one(self, number: int, way: Way, moment: Moment, fault: str) -> Round:
        """One run; what came of it. Its directory stays where something was wrong."""
        result = Round(way, moment, fault)
        place = self._directory / str(number)
        _own_system(place / "mortal", way)
        remains = Remains(self._mark, place / "store")
        run = LiveRun(place, self._world, more=MORE.format(fault=fault), duration_s=LOAD_S)
        try:
            self._meddle(run, result)
        except (AssertionError, OSError) as error:
            result.wrong.append(f"nothing was ended: {error}")
        remains.look(run.process.pid)
        run.process.wait(4 * STEP_S)
        self._judge(run, result)
        left = remains.wait_gone([run.path.name], GONE_S)
        result.wrong += [f"left {kind}: {'; '.join(what)}" for kind, what in left.items()]
        if not result.wrong:
            shutil.rmtree(place)
        return result

    def _meddle(self, run: LiveRun, result: Round) -> None:
        run.await_line(**result.moment.line)
        time.sleep(self._rng.random() * result.moment.later_s)
        journal = run.journal()
        # A partition may have all nodes among its targets: then each is under it, and none beside it.
        result.node = self._rng.choice(list(_candidates(journal, result)) or NODES)
        os.kill(run.broker(result.node), result.way.sent)
        result.phase = [line["name"] for line in run.journal() if line["event"] == "phase"][-1]

    def _judge(self, run: LiveRun, result: Round) -> None:
        try:
            said: dict[str, Any] = json.loads((run.path / "verdict.json").read_text())
        except (OSError, ValueError) as error:
            result.wrong.append(f"there is no verdict: {error}")
            return
        result.verdict = said["verdict"]
        found = [each for each in said["anomalies"] if each["name"] == "unexpected-exit"]
        result.names = sorted({each["name"] for each in said["anomalies"]})
        accused = [each["witness"][0]["node"] for each in found]
        if result.verdict != "fail" or accused != [result.node]:
            result.wrong.append(f"{result.verdict}, unexpected-exit of {accused or 'no node'}; {run.path}")
            result.wrong += said["reasons"]


def _candidates(journal: list[dict[str, Any]], result: Round) -> Iterator[str]:
    """The nodes with a running broker. A broker that a fault has ended cannot end again."""
    faults = [line for line in journal if line["event"] == "fault_invoked"]
    targets = faults[-1]["targets"] if faults else []
    is_over = (
        any(line["event"] == "fault_healed" for line in journal) or result.moment.line["event"] != "fault_injected"
    )
    named = {node for node in NODES if any(node == each or node in each for each in targets)}
    for node in NODES:
        on_target = node in named
        if is_over or on_target == (result.moment.on_target and result.fault != "kill"):
            yield node


def _own_system(place: Path, way: Way) -> None:
    """Our broker as a separate system, which ends itself at a signal."""
    shutil.copytree(PROJECT_ROOT / "systems" / "brownout", place, ignore=shutil.ignore_patterns("__pycache__"))
    description = (place / "system.toml").read_text()
    description = description.replace('name = "brownout"', 'name = "mortal"')
    description = description.replace('"-m", "broker"', '"{{ system_dir }}/mortal.py"')
    (place / "system.toml").write_text(description)
    (place / "mortal.py").write_text(MORTAL.format(action=way.action))


def main() -> int:
    """Run it all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance.unexpected_exits", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--times", type=int, default=10, metavar="N", help="how many runs for each way (10)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="settles moments, faults and nodes (1)")
    parser.add_argument("--way", choices=[way.name for way in WAYS], help="this one alone")
    parser.add_argument("--world", choices=("namespaces", "process"), default="namespaces")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    directory = Path(tempfile.mkdtemp(prefix="brownout-exits-"))
    ender = Ender(directory, options.world, rng)
    faults = FAULTS if options.world == "namespaces" else FAULTS[1:]
    rounds: list[Round] = []
    for way in WAYS:
        if options.way not in (None, way.name):
            continue
        first = rng.randrange(len(MOMENTS))
        for number in range(options.times):
            moment = MOMENTS[(first + number) % len(MOMENTS)]
            rounds.append(ender.end_one(len(rounds), way, moment, rng.choice(faults)))
            _print(len(rounds), rounds[-1])
    return _conclude(rounds, directory)


def _print(number: int, result: Round) -> None:
    print(
        f"{number:3} {'WRONG' if result.wrong else 'ok':5} {result.way.name:7} {result.moment.name:20} "
        f"in: {result.phase:8} fault: {result.fault:14} node: {result.node:7} {result.verdict}: "
        f"{', '.join(result.names) or 'nothing found'}",
        flush=True,
    )
    for line in result.wrong:
        print(f"    {line}", flush=True)


def _conclude(rounds: list[Round], directory: Path) -> int:
    right = Counter(each.way for each in rounds if not each.wrong)
    asked = Counter(each.way for each in rounds)
    orphans = orphaned_groups()
    for orphan in orphans:
        print(f"left control group: {orphan}")
    print("; ".join(f"{way.name}: unexpected-exit in {right[way]} of {count}" for way, count in asked.items()))
    if orphans or any(each.wrong for each in rounds):
        print(f"the records of the others are kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
