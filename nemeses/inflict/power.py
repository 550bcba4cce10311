"""Power loss: of a machine, only what its disk holds comes back."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

from nemeses.fault import Evidence, Fault, Status, combine, worst
from nemeses.inflict.kill import start_and_verify
from nemeses.inflict.marks import Marks
from nemeses.inflict.parallel import guarded, on_each
from nemeses.ports import Host, HostError, PowerSwitch, Site

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SILENCE_S = 0.1


class PowerLoss:
    """Evidence: the switch is off and nothing answers; healed: the boot id is another than before, the mark that was
    synced is there, the broker runs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._marks = Marks(site.time_scale)
        self._boot_before: dict[str, str] = {}

    def arm(self) -> Evidence:
        """Leave a synced mark on every host, which no cut may take."""
        return combine(on_each(self._site, self._site.hosts, self._marks.renew))

    def inject(self, fault: Fault) -> Evidence:
        power = self._site.power
        if power is None:
            return Evidence("inconclusive", {"error": "this world has no power switch"})
        self._prepare(fault.targets)
        try:
            lost = power.cut(fault.targets, fault.parameters.get("tear"))
        except HostError as error:
            return Evidence("inconclusive", {"error": str(error)})
        return combine(on_each(self._site, fault.targets, lambda host: _silent(host, power, lost.get(host.name, {}))))

    def heal(self, fault: Fault) -> Evidence:
        power = self._site.power
        if power is None:
            return Evidence("inconclusive", {"error": "this world has no power switch"})
        try:
            booted = power.restore(fault.targets)
        except HostError as error:
            return Evidence("inconclusive", {"error": str(error)})
        return combine(on_each(self._site, fault.targets, lambda host: self._back(host, booted.get(host.name, {}))))

    def _prepare(self, targets: Collection[str]) -> None:
        """Note the boot ids of those that answer and leave them an unsynced mark; a host that is off already keeps what
        was noted before."""

        def note(host: Host) -> Evidence:
            self._boot_before[host.name] = read_boot_id(host)
            self._marks.leave_unsynced(host)
            return Evidence("confirmed", {})

        on_each(self._site, targets, note)

    def _back(self, host: Host, booted: dict[str, Any]) -> Evidence:
        boot_id, before = read_boot_id(host), self._boot_before.get(host.name)
        marks = guarded(self._marks.look_after_cut, host)
        broker = start_and_verify(host, self._site.time_scale)
        boot: Status = "inconclusive" if before is None else "mismatch" if boot_id == before else "confirmed"
        detail = {"boot_id_before": before, "boot_id": boot_id, **booted, **marks.detail, "broker": broker.detail}
        return Evidence(worst([boot, marks.status, broker.status]), detail)


def switch_on(site: Site, power: PowerSwitch) -> Evidence:
    """Every host has power and answers; which boot it is does not matter."""
    dark = [name for name in site.hosts if not power.is_on(name)]
    try:
        booted = power.restore(dark)
    except HostError as error:
        return Evidence("inconclusive", {"error": str(error)})
    still_dark = [name for name in dark if not power.is_on(name)]
    return Evidence("mismatch" if still_dark else "confirmed", {"booted": booted, "still_off": still_dark})


def read_boot_id(host: Host) -> str:
    """The kernel's name for the present boot. Raises `HostError` when it cannot be read."""
    result = host.run(f"cat {BOOT_ID}")
    if not result.ok or not result.stdout.strip():
        raise HostError(f"{host.name}: {BOOT_ID} cannot be read: {result.stderr.strip()}")
    return result.stdout.strip()


def _silent(host: Host, power: PowerSwitch, lost: dict[str, Any]) -> Evidence:
    answers = _answers(host)
    off = not power.is_on(host.name)
    return Evidence("confirmed" if off and not answers else "mismatch", {**lost, "off": off, "answers": answers})


def _answers(host: Host) -> bool:
    try:
        socket.create_connection((host.address, host.probe_port), timeout=_SILENCE_S).close()
    except OSError:
        return False
    return True
