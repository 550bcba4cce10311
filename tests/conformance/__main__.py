"""Tries every break, or those of one rule: `python -m tests.conformance [--rule K101-5]`.

Exits with 0 when all are killed, with 1 when one is not, with 64 when a table or an argument is wrong.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from docs.generators.conformance import marks
from tests.conformance.breaks import ROOT, BadTableError, Break, breaks, faults
from tests.conformance.broken_tree import BrokenTree, Outcome

BAD_INPUT = 64


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Tries the broken rules.")
    parser.add_argument("--rule", help="only the breaks of this rule, by its id")
    asked = parser.parse_args().rule
    try:
        chosen = {name: one for name, one in breaks().items() if asked in (None, one.rule)}
    except BadTableError as error:
        return refused(str(error))
    if not chosen:
        return refused(f"--rule {asked}: no table beside tests/conformance/breaks.py has a break of it")
    named = marks()
    wrong = [f"{name}: {fault}" for name, one in chosen.items() for fault in faults(one, ROOT, named)]
    if wrong:
        return refused("\n".join(wrong))
    with tempfile.TemporaryDirectory() as directory, BrokenTree(Path(directory)) as tree:
        return tried(tree, chosen)


def refused(why: str) -> int:
    print(why, file=sys.stderr)
    return BAD_INPUT


def tried(tree: BrokenTree, chosen: dict[str, Break]) -> int:
    """Tries them one after the other, and says what came of each as it comes."""
    true = tree.run(sorted({test for one in chosen.values() for test in one.tests}))
    if true.outcome is not Outcome.SURVIVED:
        return refused(f"the tests do not pass on the true source: {true.said}")
    killed = 0
    for name, one in chosen.items():
        began_s = time.monotonic()
        trial = tree.trial(one)
        killed += trial.outcome is Outcome.KILLED
        said = trial.said.strip().splitlines()[0] if trial.said.strip() else ""
        print(f"{name:12} {trial.outcome:12} {time.monotonic() - began_s:5.1f} s  {one.file}: {one.why}", flush=True)
        print(f"{'':13}{said[:160]}", flush=True)
    print(f"{killed} of {len(chosen)} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
