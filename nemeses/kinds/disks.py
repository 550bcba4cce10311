"""Faults of a node's simulated disk: errors, waiting, changed bits, and another content."""

from typing import Any

from history.damage import Damage
from history.fault_looks import FaultMark
from history.journal.evidence_rule import EvidenceRule
from installation.counted import counted
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed
from nemeses.mechanisms.disks import DEFECTS, FAILS, FULL, HANGS, DiskKind, DiskTroubles, FailingDiskKind
from nemeses.parameters import Parameter


class DiskError(FailingDiskKind):
    """Every sync of a node's disk fails and its data is lost; as on Linux, a second sync reports success."""

    name = "disk-error"
    mark = FaultMark.CROSS
    action = "every sync of the node's simulated disk fails with EIO, and the data to sync is lost"
    statement = "every sync of the disk of {nodes} fails"
    proven_by = (
        "a probe gets EIO; at the heal, a service that got EIO has exited with a code other than 0 and 1 (1: an "
        "uncaught exception); then the machine is rebooted, because its page cache has data that its disk does not "
        "have, and a new process answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.UNSYNCED})
    seen = (EvidenceRule("probe", values=("EIO",)),)
    injected_by = "break-disk"
    effect = FAILS


_BITS = Parameter("bits", "bits", "number of flipped bits, in the logs of the node's partitions", 1, 64, default=1)
_MOST_DRAWN = 4


class DiskFlip(DiskKind):
    """A node's service is killed, bits of its logs are flipped (bit rot), and the service is started: it must detect
    the damage. The heal restores the files, as the broker's message requests."""

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


class DiskFull(FailingDiskKind):
    """The disk of a node is full: it accepts no further writes."""

    name = "disk-full"
    mark = FaultMark.SQUARE
    action = "every write of new data to the node's simulated disk fails with ENOSPC"
    statement = "the disk of {nodes} is full"
    proven_by = (
        "a probe gets ENOSPC; at the heal, a service that got ENOSPC has exited with a code other than 0 and 1 (1: an "
        "uncaught exception), and a new process answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY})
    seen = (EvidenceRule("probe", values=("ENOSPC",)),)
    injected_by = "fill-disk"
    effect = FULL


class DiskHang(DiskKind):
    """No sync of a node returns until the fault is healed; then it succeeds."""

    name = "disk-hang"
    mark = FaultMark.TRIANGLE_DOWN
    action = "every sync of the node's simulated disk blocks until the heal"
    statement = "every sync of {nodes} blocks"
    proven_by = "a probe's sync does not return within a second; after the heal, it returns"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("silent_s", least=1),)
    healed = (EvidenceRule("sync_ms", least=0),)
    hides = frozenset({"disk"})
    injected_by = "hang-disk"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.hang(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.soothe(fault.targets, HANGS)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"a sync did not return in {facts.get('silent_s')} s; afterwards one took {heal.get('sync_ms')} ms"


class DiskSlow(DiskKind):
    """Each sync of a node takes longer."""

    name = "disk-slow"
    mark = FaultMark.TRIANGLE_UP
    action = "each sync of the node's simulated disk takes longer"
    statement = "each sync of {nodes} takes {sync_ms:g} ms longer"
    proven_by = "a probe's sync takes at least this long; after the heal, one of several takes less"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("sync_ms", least=1),)
    healed = (EvidenceRule("sync_ms", least=0),)
    parameters = (Parameter("sync_ms", "ms", "additional duration of each sync", 1, 5_000, drawn=(10.0, 1_000.0)),)
    injected_by = "slow-disk"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.delay(fault.targets, float(fault.parameters["sync_ms"]) / 1e3)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.soothe(fault.targets, ("slow", float(fault.parameters["sync_ms"]) / 1e3))

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"a sync took {facts.get('sync_before_ms')} ms before, {facts.get('sync_ms')} ms then"


class DiskWipe(DiskKind):
    """A node's service is killed and started with its identity on an empty disk. No log promises to survive this if the
    node votes or has the last copy of a record: a campaign with this fault states what it allows."""

    name = "disk-wipe"
    mark = FaultMark.CIRCLE
    action = "SIGKILL to the service, and its disk is replaced by an empty one"
    statement = "{nodes} gets an empty disk"
    proven_by = "the number of removed files; afterwards a new process answers on the empty disk"
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY, Damage.DISK})
    hides = frozenset({"process"})
    heal_rests_on = frozenset()
    service = "ended"
    seen = (EvidenceRule("files_before", least=1),)
    healed = (EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),)
    proven_late = True
    injected_by = "wipe-disk"
    healed_by = "start-empty"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.wipe(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.start(fault.targets)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{counted(facts.get('files_before', 0), 'file')} gone"


class OldDisk(DiskKind):
    """The durable data of a node is copied. At the heal its service is killed and started on the copy, as when a
    machine is rolled back to a snapshot. No log promises to survive this, because durable votes and records are lost: a
    campaign with this fault states what it allows."""

    name = "old-disk"
    mark = FaultMark.DIAMOND
    action = "the node's durable data is copied; at the heal SIGKILL to the service, and the copy replaces its disk"
    statement = "{nodes} will restart with the present state of its disk"
    proven_by = "the number of copied files; after the heal a new process answers on the copy"
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.NEWER_STATE})
    ends_services_late = True
    seen = (EvidenceRule("files_copied", least=1),)
    healed = (
        EvidenceRule("files_before", least=1),
        EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),
    )
    proven_late = True
    injected_by = "copy-disk"
    healed_by = "roll-back"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.copy(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.put_back(fault.targets)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{counted(facts.get('files_copied', 0), 'file')} copied; they replaced {heal.get('files_before', 0)}"
