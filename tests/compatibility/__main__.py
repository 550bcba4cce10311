"""Writes docs/compatibility.md: `python -m tests.compatibility [--install]`. It starts three brokers on loopback and
runs every client of this machine against them. `--install` first installs kcat from the system's packages.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.machine.packages import install
from tests.broker.clients.harness import ROOT, cluster
from tests.compatibility import programs, python_clients
from tests.compatibility.trials import Seen, Trial, try_out

PAGE = ROOT / "docs" / "compatibility.md"
TRIALS = (*python_clients.TRIALS, *programs.TRIALS)
SETTINGS = {"default_replication_factor": 3, "num_partitions": 3, "min_insync_replicas": 2}
INTRODUCTION = """# Which clients work with the broker

Made by `python -m tests.compatibility`. It starts three brokers on loopback and runs each of these clients against
them, unmodified and with default settings. A client that the machine does not have is *not tried*. The brokers have
`default.replication.factor=3`, `min.insync.replicas=2` and `num.partitions=3`, and defaults otherwise.

| client | version | what was done | outcome | what was seen |
|---|---|---|---|---|
"""


def page(seen: Sequence[Seen], before: str = "") -> str:
    """The page. Trials that are not among `seen` keep their rows of the page `before`."""
    rows = dict(zip(TRIALS, map(_not_yet, TRIALS), strict=True))
    known = {tuple(cells[0:3:2]): row for row in before.splitlines() if len(cells := row.strip("| ").split(" | ")) == 5}
    rows |= {trial: known[trial.client, trial.done] for trial in TRIALS if (trial.client, trial.done) in known}
    rows |= {it.trial: _row(it) for it in seen}
    return INTRODUCTION + "".join(f"{row}\n" for row in rows.values())


def _row(seen: Seen) -> str:
    trial = seen.trial
    return f"| {trial.client} | {seen.version} | {trial.done} | {seen.outcome} | {seen.said.replace('|', '/')} |"


def _not_yet(trial: Trial) -> str:
    return _row(Seen(trial, "-", "not tried", "it was left out"))


def main() -> int:
    """0: nothing that was tried is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install kcat with the machine's packages, as root")
    parser.add_argument("--only", default="", help="clients whose names contain this; the others' rows stay")
    options = parser.parse_args()
    if options.install:
        install(["kcat"])
    seen = []
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory), 3, **SETTINGS) as nodes:
        for trial in TRIALS:
            if options.only in trial.client:
                seen.append(try_out(trial, nodes))
                print(f"{trial.client}: {trial.done}: {seen[-1].outcome}: {seen[-1].said}", flush=True)
                before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
                PAGE.write_text(page(seen, before), encoding="utf-8")
    return int(any(it.outcome == "broken" for it in seen))


if __name__ == "__main__":
    sys.exit(main())
