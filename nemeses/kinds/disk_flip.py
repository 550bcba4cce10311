"""Bits that are not what was written: a log rots on its disk while nobody looks."""

from __future__ import annotations

from typing import Any

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, facts_of, listed, node_facts
from nemeses.mechanisms.disks import DEFECTS, DiskKind, DiskTroubles
from nemeses.parameters import Parameter

_BITS = Parameter("bits", "bits", "how many are turned over, in the logs of the node's partitions", 1, 64, default=1)
_MOST_DRAWN = 4


class DiskFlip(DiskKind):
    """A node's service is killed, bits of its logs are turned over, and it is started: it must notice. Healed: what its
    message asks for, the files are restored."""

    name = "disk-flip"
    deed = "SIGKILL to the service, bits of its logs turned over on the simulated disk, and the service started"
    proven_by = (
        "which bits were turned over; when healed, a service that refused to run on them has said so by its exit code "
        "(not 0, nor 1: an exception that nobody caught), what is still wrong is put right, and a new one answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.SYNCED})
    service = "ended"
    seen = (EvidenceRule("bits", least=1),)
    healed = (
        EvidenceRule("exit", unlike=DEFECTS),
        EvidenceRule("service.port", values=("open",)),
    )
    parameters = (_BITS,)
    aim = "leader"
    proven_late = True
    begun_by = "flip-bits"

    def inflict(self, by: DiskTroubles, fault: Fault) -> Evidence:
        # Which bits: by what the step or the schedule says, so that the same fault flips the same bits.
        seed = round(1e6 * (fault.at + float(fault.parameters.get("duration_s", 0))))
        return by.rot(fault.targets, int(fault.parameters.get("bits", _BITS.default)), seed)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.restore(fault.targets)

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        return {"bits": lot.rng().randint(1, _MOST_DRAWN)}

    def sentence(self, fault: Fault) -> str:
        bits = int(fault.parameters.get("bits", _BITS.default))
        what = "1 bit" if bits == 1 else f"{bits} bits"
        return f"{what} of the logs of {listed(fault.targets)} flip while its service is down"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(f"{name}: {_tell(facts, facts_of(after, name))}" for name, facts in node_facts(seen).items())


def _tell(facts: Facts, after: Facts) -> str:
    words = ", ".join(facts.get("flipped", ())) or "nothing was flipped"
    if after.get("noticed"):
        return f"{words}; the service refused to run on it, with exit code {after.get('exit')}"
    if "mended" in after:
        return f"{words}; the service started; {after['mended']} of them were still there afterwards"
    return words
