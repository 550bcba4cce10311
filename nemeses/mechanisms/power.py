"""Power loss: a machine loses everything that is not on its disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from history.damage import Damage
from history.fault_looks import FaultGroup
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, Status, combine, worst
from nemeses.kind import Facts, Kind, Need, RandomDraw, facts_of, listed, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.disk_marks import Marks
from nemeses.mechanisms.parallel import guarded, on_each
from nemeses.mechanisms.service import start_and_verify
from nemeses.mechanisms.unsynced_files import AtStake
from nemeses.parameters import Choice, Files, Parameter, ParameterError
from nemeses.ports import Host, HostError, PowerSwitch, Site

_NOT_LOST = "the cut should lose its unsynced data, but all of it had been written back before"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Power(Mechanism):
    """The power of all hosts, and what their disks keep after a cut."""

    stage = 20
    part = "power"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._marks = Marks(site)
        self._at_stake = AtStake()
        self._boot_before: dict[str, str] = {}

    def arm(self) -> Evidence | None:
        """Write a synced mark on every host, which must survive every cut."""
        if self.site.power is None:
            return None
        return combine(on_each(self.site, self.site.hosts, self._marks.renew))

    def cut(self, fault: Fault) -> Evidence:
        power = self.site.power
        if power is None:
            return Evidence("inconclusive", {"error": "this world has no power switch"})
        self._prepare(fault.targets)
        if (pattern := fault.parameters.get("loses")) is not None:
            noted = combine(on_each(self.site, fault.targets, lambda host: self._note(host, pattern)))
            if not noted.confirmed:
                return noted
        try:
            lost = power.cut(fault.targets, fault.parameters.get("tear"))
        except HostError as error:
            return Evidence("inconclusive", {"error": str(error)})
        return combine(
            on_each(self.site, fault.targets, lambda host: self._silent(host, power, lost.get(host.name, {})))
        )

    def restore(self, fault: Fault) -> Evidence:
        power = self.site.power
        if power is None:
            return Evidence("inconclusive", {"error": "this world has no power switch"})
        try:
            booted = power.restore(fault.targets)
        except HostError as error:
            return Evidence("inconclusive", {"error": str(error)})
        seen = on_each(self.site, fault.targets, lambda host: self._back(host, booted.get(host.name, {})))
        evidence = combine(seen)
        kept = {name: each.detail["kept"] for name, each in seen.items() if each.detail.get("at_stake") == "kept"}
        if not kept:
            return evidence
        because = [f"{name}: its disk kept all of {', '.join(files)}: {_NOT_LOST}" for name, files in kept.items()]
        return Evidence(evidence.status, {**evidence.detail, "because": because})

    def heal_all(self) -> Evidence | None:
        return None if self.site.power is None else switch_on(self.site, self.site.power)

    def _prepare(self, targets: Collection[str]) -> None:
        """Read the boot ids of the hosts that answer, and write an unsynced mark on them; for a host without power, the
        earlier notes stay."""

        def note(host: Host) -> Evidence:
            self._boot_before[host.name] = read_boot_id(host)
            self._marks.leave_unsynced(host)
            return Evidence("confirmed", {})

        on_each(self.site, targets, note)

    def _note(self, host: Host, pattern: str) -> Evidence:
        self._at_stake.note(host, pattern)
        return Evidence("confirmed", {})

    def _silent(self, host: Host, power: PowerSwitch, lost: dict[str, Any]) -> Evidence:
        answers = self.site.answers(host)
        off = not power.is_on(host.name)
        return Evidence("confirmed" if off and not answers else "mismatch", {**lost, "off": off, "answers": answers})

    def _back(self, host: Host, booted: dict[str, Any]) -> Evidence:
        boot_id, before = read_boot_id(host), self._boot_before.get(host.name)
        marks = guarded(self._marks.look_after_cut, host)
        at_stake = guarded(self._at_stake.look_after_cut, host)  # before the service starts and repairs its files
        service = start_and_verify(host, self.site)
        boot: Status = "inconclusive" if before is None else "mismatch" if boot_id == before else "confirmed"
        detail = {"boot_id_before": before, "boot_id": boot_id, **booted, **marks.detail, **at_stake.detail}
        statuses = [boot, marks.status, at_stake.status, service.status]
        return Evidence(worst(statuses), {**detail, "service": service.detail})


def switch_on(site: Site, power: PowerSwitch) -> Evidence:
    """Every host has power and answers, with any boot id."""
    dark = [name for name in site.hosts if not power.is_on(name)]
    try:
        booted = power.restore(dark)
    except HostError as error:
        return Evidence("inconclusive", {"error": str(error)})
    still_dark = [name for name in dark if not power.is_on(name)]
    return Evidence("mismatch" if still_dark else "confirmed", {"booted": booted, "still_off": still_dark})


def read_boot_id(host: Host) -> str:
    """The kernel's id of the current boot. Raises `HostError` when it cannot be read."""
    result = host.run(f"cat {BOOT_ID}")
    if not result.ok or not result.stdout.strip():
        raise HostError(f"{host.name}: {BOOT_ID} cannot be read: {result.stderr.strip()}")
    return result.stdout.strip()


class PowerLossKind(Kind[Power]):
    """Evidence: the switch is off and the host does not answer; healed: the boot id has changed, the synced mark
    exists, the service runs."""

    group = FaultGroup.POWER
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY, Damage.UNSYNCED})
    action = (
        "namespaces: link down, filesystem shut down without flushing, every process killed, disk mounted again; "
        "virtual machines: the hypervisor's process killed, unflushed disk writes removed; inventory: its power "
        "command"
    )
    proven_by = (
        "the node does not answer; later it has another boot id; a synced mark on the disk survives (`synced_mark: "
        "kept`). An unsynced mark, written just before the cut, should be lost (`unsynced_mark: lost`): this "
        "distinguishes a power loss from a clean stop"
    )
    service = "ended"
    seen = (EvidenceRule("off", values=(True,)), EvidenceRule("answers", values=(False,)))
    healed = (
        EvidenceRule("boot_id", differs_from="boot_id_before"),
        EvidenceRule("synced_mark", values=("kept",)),
        EvidenceRule("service.port", values=("open",)),
    )
    mechanism = Power
    needs = frozenset[Need]({"power"})
    parameters: ClassVar[tuple[Parameter | Choice | Files, ...]] = (
        Choice("tear", "write back some dirty pages first, as a failing machine may (chosen by a seed)", scripted=True),
    )
    proven_late = True
    healed_by = "power-on"

    def check(self, parameters: Mapping[str, Any]) -> None:
        super().check(parameters)
        if parameters.get("loses") is not None and parameters.get("tear") is not None:
            raise ParameterError("loses", "a cut that tears may keep anything; leave tear out")

    def inject(self, by: Power, fault: Fault) -> Evidence:
        return by.cut(fault)

    def heal(self, by: Power, fault: Fault) -> Evidence:
        return by.restore(fault)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"tear": drawn.tear}

    def sentence(self, fault: Fault) -> str:
        verb, together = ("loses", "") if len(fault.targets) == 1 else ("lose", " at the same moment")
        kept = (
            "unsynced pages are lost"
            if fault.parameters.get("tear") is None
            else "unsynced pages reach the disk partly"
        )
        return f"{listed(fault.targets)} {verb} power{together}; {kept}"

    def proof(self, seen: Facts, after: Facts) -> str:
        nodes = node_facts(seen)
        booted = {name: facts_of(after, name) for name in nodes if "boot_id" in facts_of(after, name)}
        restarted = [name for name, facts in booted.items() if facts["boot_id"] != facts.get("boot_id_before")]
        phrases = [f"another boot id on {listed(restarted)}" if booted else f"no power on {listed(list(nodes))}"]
        for fact, words in (("pages_dropped", "dirty pages lost"), ("writes_lost", "unflushed disk writes lost")):
            counts = [int(facts[fact] or 0) for facts in nodes.values() if fact in facts]
            if any(counts) or (counts and fact == "pages_dropped"):
                phrases.append(f"{sum(counts)} {words}")
        marks = [facts_of(after, name) for name in nodes if "synced_mark" in facts_of(after, name)]
        fates = {name: facts_of(after, name).get("at_stake") for name in nodes}
        phrases += [f"what was at stake on {name}: {fate}" for name, fate in fates.items() if fate is not None]
        if marks:
            kept = sum(mark["synced_mark"] == "kept" for mark in marks)
            lost = sum(mark.get("unsynced_mark") == "lost" for mark in marks)
            phrases.append(f"marks: {kept} of {len(marks)} synced kept, {lost} of {len(marks)} unsynced lost")
        return "; ".join(phrases)
