"""Makes docs/faults.md from the kinds of fault and the worlds: `python -m tests.house.faults`."""

from __future__ import annotations

from pathlib import Path

from nemeses import ENDS, KINDS, Choice, Files, Parameter
from orchestrator.campaign.steps import HEAL
from orchestrator.worlds.namespaces.world import NamespaceWorld
from orchestrator.worlds.process.world import ProcessWorld
from orchestrator.worlds.simulation.world import SimulationWorld
from orchestrator.worlds.vagrant.lab import VagrantLab

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "faults.md"
INTRODUCTION = """# Faults and their proof

Made by `python -m tests.house.faults` from `nemeses/kinds/`, one file for each kind of fault; a test fails when this
page is out of date.

"""
AFTERWARDS = """
## How sure the proof is
Clocks are compared by commands over SSH. A node reads its clock somewhere between a command's sending and its answer,
so half of the round trip is what each reading may be wrong by. That, and nothing else of weight, is the tolerance that
the evidence states; a stop that is too short to be told from it is *inconclusive*. A host that shares the
orchestrator's kernel is recognized (by the kernel's count of context switches), and its clock is never set.

A fault on a service that had ended or stood still before, through nobody's order, is *inconclusive*; a partition
and what is done to packets are not, and say so.

What is proven late is proven when it is healed: the status of the fault is then the heal's. What a killed run left
behind on a host - netem, a moved clock - the next run finds at its start and removes.

A disk that fails (`disk-error`, `disk-full`) must end a service that meets it, with an exit code that is neither 0
nor 1; one that went on, or ended as if by a mistake of its own, is a *mismatch*. What `disk-flip` turns over is put
back when it is healed, as the broker's message asks; what is wrong in between must be noticed and never be served.
`disk-wipe` and `old-disk` may take the last copy of a record: no log with three replicas survives them in every
schedule, and a campaign with them says what it allows. An empty disk takes no promise from the metadata quorum: a
voter is known by its disk, too (`wiped-voter`, `wiped-majority`). A disk as it was before says that it is the one
that it was, and does.

What a fault may destroy (`history/damage.py` says what each word means) is all that oracles and checkers excuse, and on
its targets alone. The journal has it with the fault (`may_destroy`).

A fault that is not confirmed makes the run *unknown*, whatever else it showed, unless it showed a contradiction.
"""


def page() -> str:
    """The page as it should be."""
    return INTRODUCTION + "\n".join([*_proofs(), "", *_parameters(), "", *_words(), "", *_worlds()]) + "\n" + AFTERWARDS


def _proofs() -> list[str]:
    rows = [
        f"| `{kind.name}` | {kind.deed} | {kind.proven_by} | {'late' if kind.proven_late else 'at once'} "
        f"| {', '.join(sorted(kind.destroys))} |"
        for kind in KINDS.values()
    ]
    return [
        "| fault | what is done | what proves it | proven | may destroy on its targets |",
        "|---|---|---|---|---|",
        *rows,
    ]


def _parameters() -> list[str]:
    rows = []
    for kind in KINDS.values():
        for each in kind.parameters:
            match each:
                case Parameter():
                    values = each.bounds
                    default = "needed" if each.default is None else f"{each.default:g}"
                    drawn = "from the other one" if each.drawn is None else "{:g} to {:g}".format(*each.drawn)
                case Choice():
                    scripted = each.scripted and kind.begun_by
                    values, default = ("true or false", "false") if scripted else ("–", "–")
                    drawn = "yes" if each.drawn else "no"
                case Files():
                    values, default = "a pattern", "none"
                    drawn = "no"
            rows.append(f"| `{kind.name}` | `{each.name}` | {each.meaning} | {values} | {default} | {drawn} |")
    return [
        "## How much of it",
        "A step of a script gives these (–: it cannot); a random schedule draws them from the seed, small values as",
        "often as large ones.",
        "",
        "| fault | parameter | meaning | values in scripts | default there | drawn |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def _words() -> list[str]:
    keys = {"node": "node", "groups": "between"}
    rows = [
        f"| `{kind.begun_by}` | `{kind.name}` | `{keys[kind.takes]}` | `{kind.ended_by}` |"
        for kind in KINDS.values()
        if kind.begun_by
    ]
    shared = "; ".join(f"`{word}`: {', '.join(sorted(ENDS[word]))}" for word in sorted(ENDS) if len(ENDS[word]) > 1)
    return [
        "## In scripts",
        "| `do` | fault | acts on | ended by |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Words that end several kinds: {shared}. `{HEAL}` without a node and without groups ends all that it can.",
    ]


def _worlds() -> list[str]:
    worlds = {world.name: world.capabilities for world in (ProcessWorld, NamespaceWorld, VagrantLab, SimulationWorld)}
    rows = [f"| {name} | {', '.join(f'`{kind}`' for kind in sorted(kinds))} |" for name, kinds in worlds.items()]
    needs = [f"`{kind.name}`: {', '.join(sorted(kind.needs))}" for kind in KINDS.values() if kind.needs]
    return [
        "## In which world",
        "| world | faults |",
        "|---|---|",
        *rows,
        "| inventory | as of the process world; and what its variables allow or give commands for (power, stopping "
        "machines, clocks), and what is found to work on every host (partitions, netem) |",
        "",
        f"What a world must have for a fault: {'; '.join(needs)}. The others need nothing but a service on a host.",
        "Nodes of the namespace world share one clock, and netem needs a kernel that has it. A wire, disks and a pace "
        "of clocks that take orders (`wire`, `disk`, `drift`) are the simulation's alone.",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
