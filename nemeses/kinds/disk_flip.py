"""Bit flips: stored log files change on the disk (bit rot) while the service is down."""

from typing import Any

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed
from nemeses.mechanisms.disks import DEFECTS, DiskKind, DiskTroubles
from nemeses.parameters import Parameter

_BITS = Parameter("bits", "bits", "number of flipped bits, in the logs of the node's partitions", 1, 64, default=1)
_MOST_DRAWN = 4


class DiskFlip(DiskKind):
    """A node's service is killed, bits of its logs are flipped, and the service is started: it must detect the damage.
    The heal restores the files, as the broker's message requests."""

    name = "disk-flip"
    mark = FaultMark.STAR
    action = "SIGKILL to the service, bits of its logs are flipped on the simulated disk, and the service is started"
    proven_by = (
        "the flipped bits; at the heal, a service that refused the files has exited with a code other than 0 and 1 (1: "
        "an uncaught exception); then the remaining flipped bits are restored, and a new process answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.SYNCED})
    hides = frozenset({"process"})
    rests_on = frozenset({"machine", "process", "disk"})
    service = "ended"
    seen = (EvidenceRule("bits", least=1),)
    healed = (
        EvidenceRule("exit", unlike=DEFECTS),
        EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),
    )
    parameters = (_BITS,)
    aim = "leader"
    proven_late = True
    injected_by = "flip-bits"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        # Which bits: by what the step or the schedule says, so that the same fault flips the same bits, also at another
        # time.
        seed = round(1e6 * float(fault.parameters.get("duration_s", fault.at)))
        return by.rot(fault.targets, int(fault.parameters.get("bits", _BITS.default)), seed)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.restore(fault.targets)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"bits": drawn.rng().randint(1, _MOST_DRAWN)}

    def sentence(self, fault: Fault) -> str:
        bits = int(fault.parameters.get("bits", _BITS.default))
        flipped_bits = "1 bit" if bits == 1 else f"{bits} bits"
        return f"{flipped_bits} of the logs of {listed(fault.targets)} flip while its service is down"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        phrase = ", ".join(facts.get("flipped", ())) or "nothing was flipped"
        if heal.get("noticed"):
            return f"{phrase}; the service rejected the files with exit code {heal.get('exit')}"
        if "mended" in heal:
            return f"{phrase}; the service started; {heal['mended']} of them were still flipped at the heal"
        return phrase
