"""Stale listings: a listing shows the objects of some time ago."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.object_store import HANG_S, ObjectStoreKind
from nemeses.parameters import Parameter
from nemeses.ports import Objects


class ObjectsStale(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-stale"
    mark = FaultMark.STAR
    action = "listings of the simulated object store show the objects of some time ago"
    proven_by = "a listing lacks an object that was written just before; after the heal a listing works"
    seen = (EvidenceRule("shows_new", values=(False,)),)
    injected_by = "show-old-listing"
    parameters = (Parameter("age_s", "s", "age of the listings' content", 1, 600, drawn=(2.0, 30.0)),)

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.show_old(float(fault.parameters["age_s"]))
        return {"probe": "a listing", "shows_new": objects.shows_new(HANG_S)}

    def sentence(self, fault: Fault) -> str:
        return f"listings of the object store show the objects of {float(fault.parameters['age_s']):g} s ago"
