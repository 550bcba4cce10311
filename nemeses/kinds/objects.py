"""Faults of the simulated object store.

Evidence: a probe of the store while the fault is in force, and another after the heal.
"""

from history.fault_looks import FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import Facts
from nemeses.mechanisms.object_store import DONE, HANG_S, REASON, ObjectStoreKind, milliseconds
from nemeses.parameters import Parameter
from nemeses.ports import Objects


class ObjectsFailing(ObjectStoreKind):
    """Failing object store: each operation ends with an error."""

    name = "objects-failing"
    mark = FaultMark.CIRCLE
    action = "each operation of the simulated object store ends with an error"
    statement = "each operation of the object store fails"
    proven_by = "a probe gets the error; after the heal it does not"
    seen = (EvidenceRule("probe", values=(REASON,)),)
    injected_by = "fail-store"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.fail(("put", "get", "list", "delete"), REASON)
        return {"probe": objects.probe("list", HANG_S)[0]}


class ObjectsHung(ObjectStoreKind):
    """Hung object store: no operation ends."""

    name = "objects-hung"
    mark = FaultMark.SQUARE
    action = "no operation of the simulated object store ends"
    statement = "no operation of the object store ends"
    proven_by = "a probe does not end within 2 s; after the heal it does"
    seen = (EvidenceRule("probe", values=("silent",)),)
    injected_by = "hang-store"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.hang()
        return {"probe": objects.probe("list", HANG_S)[0]}


class ObjectsMixed(ObjectStoreKind):
    """Mixed-up store, as after a wrong restore or a copy between buckets: an object's name returns another segment's
    object, and objects of unknown segments appear."""

    name = "objects-mixed"
    mark = FaultMark.CROSS
    action = (
        "the simulated object store returns another segment's object, and has copies of objects under the names of "
        "segments that no broker uploaded"
    )
    statement = "the object store returns objects of other segments, and has some of unknown ones"
    proven_by = "a probe reads the object of another name; after the heal it does not"
    seen = (EvidenceRule("reads_own", values=(False,)),)
    injected_by = "mix-up-store"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        strays = objects.mix_up()
        return {"probe": "two reads", "reads_own": objects.reads_own(HANG_S), "strays": strays}


class ObjectsPartial(ObjectStoreKind):
    """Partial uploads: an upload fails in its middle and leaves what was written."""

    name = "objects-partial"
    mark = FaultMark.TRIANGLE_DOWN
    action = "each upload to the simulated object store fails in its middle, and leaves a part of the object"
    statement = "uploads to the object store fail in their middle and leave a part of the object"
    proven_by = "a write of a probe fails and leaves an object; after the heal it ends"
    seen = (EvidenceRule("probe", values=(REASON,)), EvidenceRule("listing", values=(DONE,)))
    injected_by = "break-uploads"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.keep_part(REASON)
        return {"probe": objects.probe("put", HANG_S)[0], "listing": objects.probe("list", HANG_S)[0]}


class ObjectsRefused(ObjectStoreKind):
    """Refusing object store: objects can be read, and none can be written or deleted."""

    name = "objects-refused"
    mark = FaultMark.DIAMOND
    action = "the simulated object store refuses new objects and deletions"
    statement = "the object store refuses new objects and deletions"
    proven_by = "a write of a probe is refused and a listing works; after the heal both work"
    seen = (EvidenceRule("probe", values=(REASON,)), EvidenceRule("listing", values=(DONE,)))
    injected_by = "refuse-objects"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.fail(("put", "delete"), REASON)
        return {"probe": objects.probe("put", HANG_S)[0], "listing": objects.probe("list", HANG_S)[0]}


class ObjectsSlow(ObjectStoreKind):
    """Slow object store: each operation takes longer."""

    name = "objects-slow"
    mark = FaultMark.TRIANGLE_UP
    action = "each operation of the simulated object store takes longer"
    statement = "each operation of the object store takes {delay_ms:g} ms longer"
    proven_by = "a probe takes at least this long; after the heal it ends"
    seen = (EvidenceRule("probe_ms", least=1),)
    injected_by = "slow-store"
    parameters = (
        Parameter("delay_ms", "ms", "additional duration of each operation", 1, 60_000, drawn=(20.0, 3_000.0)),
    )

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.slow_down(float(fault.parameters["delay_ms"]) / 1e3)
        result, took_s = objects.probe("list", 60.0)
        return {"probe": result, "probe_ms": milliseconds(took_s)}

    def is_shown(self, fault: Fault, facts: Facts) -> bool:
        return float(facts["probe_ms"]) >= float(fault.parameters["delay_ms"])


class ObjectsStale(ObjectStoreKind):
    """Stale listings: a listing shows the objects of some time ago."""

    name = "objects-stale"
    mark = FaultMark.STAR
    action = "listings of the simulated object store show the objects of some time ago"
    statement = "listings of the object store show the objects of {age_s:g} s ago"
    proven_by = "a listing lacks an object that was written just before; after the heal a listing works"
    seen = (EvidenceRule("shows_new", values=(False,)),)
    injected_by = "show-old-listing"
    parameters = (Parameter("age_s", "s", "age of the listings' content", 1, 600, drawn=(2.0, 30.0)),)

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.show_old(float(fault.parameters["age_s"]))
        return {"probe": "a listing", "shows_new": objects.shows_new(HANG_S)}
