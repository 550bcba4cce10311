"""Crash point: a service ends between two operations on its disk or on the object store, or one of them fails."""

from dataclasses import replace
from typing import Any, Final

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Need, NodeKind, RandomDraw, facts_of, listed
from nemeses.mechanisms.disks import LACKING
from nemeses.mechanisms.parallel import guarded, on_each, required
from nemeses.mechanisms.power import Power
from nemeses.mechanisms.service import kill_service, start_and_verify
from nemeses.parameters import Choice, Parameter, Word
from nemeses.ports import Host

WEIGHTS: Final = {
    "any": 1, "segments": 1, "truncations": 2, "removals": 3, "recovery-points": 1, "high-watermarks": 1,
    "log-starts": 4, "epochs": 2, "producers": 2, "quorum-state": 3, "snapshots": 4, "metadata": 1, "compaction": 4,
    "remote": 4,
}  # fmt: skip
"""How often a random schedule draws these files: about 1 by the share of stretches of 2 s in which a broker of `swarm`
or `swarm-groups` has such an operation, at most 4."""
FILES: Final = tuple(WEIGHTS)
_ERROR: Final = "error"
CRASHES: Final = ("kill-before", "kill-after", "power-loss-before", "power-loss-after", _ERROR)
_NUMBER: Final = Parameter(
    "number", "operations", "the crash comes at this one of them", 1, 10_000, default=1, drawn=(1, 10)
)


class CrashAtOperation(NodeKind[Power]):
    """Evidence: the operation at which the service ended, or that the crash came without it at the end of the fault;
    its process is gone, or its machine has no power. Healed: as after a kill or a power loss."""

    name = "crash-point"
    group, mark = FaultGroup.POWER, FaultMark.CROSS
    action = (
        "a simulated service ends at the chosen write, truncation, sync, rename or removal of some files, or upload or "
        "deletion of an object: killed or by a power loss of its machine, before the operation or after it; or the "
        "operation, or a read, fails once with EIO. If that operation does not come, or the service goes on after an "
        "error, it is killed at the end of the fault"
    )
    proven_by = (
        "`operation`: where the crash came, or `none`: at the end of the fault, with the number of `operations` until "
        "then; the service exited with 137, after an error with 70, or with 64 at its start; after a power loss as for "
        "`power-loss`; afterwards a new process answers"
    )
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY, Damage.UNSYNCED})
    service = "ended"
    seen = (EvidenceRule("armed", values=("yes",)),)
    healed = (
        EvidenceRule("operation", unlike=("",)),
        EvidenceRule("exit", values=(137, 70, 64)),
        EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),
    )
    hides = frozenset({"machine", "process"})
    rests_on = frozenset({"machine", "process", "execution", "disk"})
    heal_rests_on = frozenset()
    mechanism = Power
    needs = frozenset[Need]({"power", "disk"})
    parameters = (
        Word("files", "the operations that count: those on these files, or of this sort", FILES, "any"),
        _NUMBER,
        Choice("restarts", "kill the service and start it first: operations of its recovery count", scripted=True),
        Word("crash", "how the service ends at the operation", CRASHES, "kill-after"),
    )
    proven_late = True
    injected_by = "crash-at"
    healed_by = "start"

    def inject(self, by: Power, fault: Fault) -> Evidence:
        disks = required(by.site.disks, LACKING)
        by.prepare(fault.targets)

        def arm(host: Host) -> Evidence:
            if host.service_pid() is None:
                return Evidence("inconclusive", {"error": "no service was running"})
            restarts = fault.parameters.get("restarts") is not None
            if restarts:
                kill_service(host)
            disks.crash_at(host.name, *_point(fault))
            if restarts:
                host.start_service()
            return Evidence("confirmed", {"armed": "yes", "pid": host.service_pid()})

        return combine(on_each(by.site, fault.targets, arm))

    def heal(self, by: Power, fault: Fault) -> Evidence:
        disks = required(by.site.disks, LACKING)
        crashes = {name: disks.end_crash_point(name) for name in fault.targets}
        return combine({name: _back(by, fault, by.site.hosts[name], crash) for name, crash in crashes.items()})

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        rng = drawn.rng()
        (files,) = rng.choices(FILES, [*WEIGHTS.values()])
        number = round(_NUMBER.draw(rng))
        return {
            "files": files,
            "number": number if WEIGHTS[files] == 1 else 1 + number // 4,  # few of the others come while it is in force
            "crash": rng.choice(CRASHES),
            "restarts": drawn.tear,
        }

    def sentence(self, fault: Fault) -> str:
        files, number, crash = _point(fault)
        if crash == _ERROR:
            return f"operation {number} of {files} fails on {listed(fault.targets)}"
        way, _, moment = crash.rpartition("-")
        verb = "is killed" if way == "kill" else "loses power"
        start = " after a restart" if fault.parameters.get("restarts") is not None else ""
        return f"{listed(fault.targets)} {verb} {moment} operation {number} of {files}{start}"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        if "operation" not in heal:
            return "it has not crashed yet"
        if heal["operation"] == "none":
            return f"it crashed at the end of the fault: only {heal.get('operations')} of the operations had come"
        return f"the operation was {heal['operation']}"


def _point(fault: Fault) -> tuple[str, int, str]:
    """The files, the number and the way of the crash."""
    parameters = fault.parameters
    return parameters.get("files", FILES[0]), int(parameters.get("number", 1)), parameters.get("crash", "kill-after")


def _back(by: Power, fault: Fault, host: Host, crash: Facts) -> Evidence:
    """Restore a host's power and its service after its crash, with the facts of that crash."""
    ended = {**crash, "exit": host.service_exit()} if crash else {}
    if by.site.power is not None and not by.site.power.is_on(host.name):
        restored = by.restore(replace(fault, targets=(host.name,)))
        return Evidence(restored.status, {**ended, **(facts_of(restored.detail, host.name) or restored.detail)})
    service = guarded(lambda host: start_and_verify(host, by.site, by.in_force), host)
    return Evidence(service.status, {**ended, "service": service.detail})
