"""Writes docs/faults.md from the kinds of fault and the worlds: `python -m docs.generators.faults`."""

from pathlib import Path

from nemeses import HEALED_BY, KINDS, Choice, Files, Parameter, Word
from orchestrator.campaign.steps import HEAL
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from orchestrator.worlds.process.lab import ProcessWorld
from orchestrator.worlds.simulation.lab import SimulationWorld
from orchestrator.worlds.vagrant.lab import VagrantLab

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "faults.md"
INTRODUCTION = """# Faults and their evidence

Made by `python -m docs.generators.faults` from `nemeses/kinds/`, which has one class for each kind of fault. A test
fails if this page is out of date. A campaign can have [faults of your own](own-faults.md), too.

"""
AFTERWARDS = """
## Several faults on one node
Faults overlap on one node, also two of one kind, in any order of their heals. Each heal ends its own effect. Effects on
the same value add up: netem rules, slow disks, clock drifts and jumps, cuts, mounts on the store. A boot discards clock
jumps, netem rules and mounts; the heal of a power loss restores those of the faults in force, and its evidence has them
as `done again`. A service starts when no fault in force keeps it from running: earlier heals name that fault as
`withheld_by`, and the evidence of the last one has the open port.

A fault is *prevented* if a fault in force on the node leaves it nothing to act on: `pause` after `kill`, `stop` during
`pause`, a packet fault on a node that is cut off from all others, everything on a node without power. Nothing is done,
the evidence names the other fault as `prevented_by`, and nothing is excused. The analysis finds that fault in the
journal, in force at that time; otherwise the run is *unknown*. A prevented fault alone does not make a run unknown,
but it does not count as an occurrence of its kind. A heal that a later fault hides, such as the end of a drift on a
node without power, is done after the heal of that fault.

## Precision of the evidence
Clocks are compared by commands over SSH. A node reads its clock at some moment between the sending of a command and the
arrival of its answer, so each reading has an error of up to half of the round trip. That error is the tolerance in the
evidence. A suspension that is too short to exceed it is *inconclusive*. Brownout recognizes a host that shares the
orchestrator's kernel by the kernel's count of context switches, and never sets its clock.

A fault on a service that had already exited or was suspended for another reason is *inconclusive*. Partitions and
packet faults are still conclusive there, and their evidence says so.

For a fault with late evidence, the heal proves both: the status of the fault is that of the heal. If a killed run left
netem rules or moved clocks on a host, the next run finds and removes them at its start.

A service that gets an error of a failing disk (`disk-error`, `disk-full`) must exit with a code other than 0 and 1. If
it continues, or exits as after a defect of its own, the evidence is a *mismatch*. The heal of `disk-flip` restores the
flipped bits, as the broker's message requests; until then the service must detect the damage and never serve it.
`disk-wipe` and `old-disk` may remove the last copy of a record. No log with three replicas survives them in every
schedule, and a campaign with them states what it allows. An empty disk breaks no promise of the metadata quorum,
because a voter is identified by its disk, too (`wiped-voter`, `wiped-majority`). An old copy of a disk has the same
identity as the disk, and breaks such promises.

Oracles and checkers excuse only what a fault may destroy, and only on its targets (`history/damage.py` defines the
words). The journal states it with each fault (`may_destroy`).

A fault that is not confirmed makes the run *unknown*, except if the run shows a contradiction: then it is a *fail*.
"""


def page() -> str:
    """The page as it should be."""
    return INTRODUCTION + "\n".join([*_proofs(), "", *_parameters(), "", *_words(), "", *_worlds()]) + "\n" + AFTERWARDS


def _proofs() -> list[str]:
    rows = [
        f"| `{kind.name}` | {kind.action} | {kind.proven_by} | {'at the heal' if kind.proven_late else 'at once'} "
        f"| {', '.join(sorted(kind.destroys))} |"
        for kind in KINDS.values()
    ]
    return [
        "| fault | action | evidence | confirmed | may destroy on its targets |",
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
                    drawn = "derived" if each.drawn is None else "{:g} to {:g}".format(*each.drawn)
                case Choice():
                    scripted = each.scripted and kind.injected_by
                    values, default = ("true or false", "false") if scripted else ("–", "–")
                    drawn = "yes" if each.drawn else "no"
                case Files():
                    values, default = "a pattern", "none"
                    drawn = "no"
                case Word():
                    values, default, drawn = ", ".join(f"`{word}`" for word in each.words), f"`{each.default}`", "no"
            rows.append(f"| `{kind.name}` | `{each.name}` | {each.meaning} | {values} | {default} | {drawn} |")
    return [
        "## Parameters",
        "A step of a script sets these (–: it cannot). A random schedule draws them from the seed, uniformly in their",
        "logarithm. *derived*: computed from the other parameter, or from a small fixed range.",
        "",
        "| fault | parameter | meaning | values in scripts | default in scripts | drawn |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def _words() -> list[str]:
    keys = {"node": "node", "groups": "between"}
    rows = [
        f"| `{kind.injected_by}` | `{kind.name}` | `{keys[kind.takes]}` | `{kind.healed_by}` |"
        for kind in KINDS.values()
        if kind.injected_by
    ]
    shared = "; ".join(
        f"`{word}`: {', '.join(sorted(HEALED_BY[word]))}" for word in sorted(HEALED_BY) if len(HEALED_BY[word]) > 1
    )
    return [
        "## In scripts",
        "| `do` | fault | target key | ended by |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Words that end several kinds: {shared}. `{HEAL}` without a node and without groups ends all active faults "
        "of its kinds.",
    ]


def _worlds() -> list[str]:
    worlds = {world.name: world.capabilities for world in (ProcessWorld, NamespaceWorld, VagrantLab, SimulationWorld)}
    rows = [f"| {name} | {', '.join(f'`{kind}`' for kind in sorted(kinds))} |" for name, kinds in worlds.items()]
    needs = [f"`{kind.name}`: {', '.join(sorted(kind.needs))}" for kind in KINDS.values() if kind.needs]
    return [
        "## Worlds",
        "| world | faults |",
        "|---|---|",
        *rows,
        "| inventory | those of the process world; also those that its variables allow or give commands for (power, "
        "suspending machines, clocks), and those that work on every host (partitions, netem) |",
        "",
        f"What a world must support for a fault: {'; '.join(needs)}. The others only need a service on a host.",
        "Nodes of the namespace world share one clock, and netem needs a kernel that supports it. Only the simulation "
        "has a network, disks and clock rates that faults can control (`wire`, `disk`, `drift`). "
        "On real nodes [a fault of your own](own-faults.md) can fill a disk or flip its bits.",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
