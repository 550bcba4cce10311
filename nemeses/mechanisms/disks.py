"""Disks that fail, fill up, become slow, block, rot, or are replaced."""

import errno
import math
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final, Literal

from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine, worst
from nemeses.in_force import InForce
from nemeses.kind import Facts, Need, NodeKind
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each, required
from nemeses.mechanisms.service import start_and_verify
from nemeses.mechanisms.shell import ask, kill_script
from nemeses.ports import Disks, Host, HostError, Site

LACKING = "this world cannot inject faults of disks"
HANG_S = 1.0
"""A probe that has not returned after this time counts as blocked."""
_LONGEST_S = 30.0
_TRIES = 20
"""In this number of syncs, at least one is about as fast as the disk can be."""

DEFECTS = (0, 1)
"""Exit codes that a service must not have after a disk fault: success, and an uncaught exception."""

UNENDED = "it has not ended"

Act = Callable[[Host, Disks], Evidence]
Effect = tuple[Literal["fails", "full", "slow", "hangs"], float]
"""What a fault does to a disk; for `slow` with the additional seconds of each sync."""
FAILS: Final[Effect] = ("fails", 0.0)
FULL: Final[Effect] = ("full", 0.0)
HANGS: Final[Effect] = ("hangs", 0.0)
ENDED_BY_OTHERS: Final = "another fault ended it"


class DiskTroubles(Mechanism):
    """The disks of all hosts. They are healthy again before any machine gets its power back."""

    stage = 15
    part = "disks"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._before: dict[str, tuple[int, int]] = {}  # failed syncs and rejected writes, by host
        self._in_force = InForce[Effect]()

    # --- faults that end services

    def fail(self, targets: Collection[str], effect: Effect) -> Evidence:
        """Make syncs fail, or leave no space, and check that with a probe; the heal shows the services' reaction."""

        def act(host: Host, disks: Disks) -> Evidence:
            self._begin(host, disks, effect)
            error = _error_of(disks, host.name)
            counts = disks.counts(host.name)
            self._before[host.name] = counts.failed_syncs, counts.refused_writes
            expected = errno.errorcode[errno.ENOSPC if effect == FULL else errno.EIO]
            return Evidence("confirmed" if error == expected else "mismatch", {"probe": error})

        return self._on_each(targets, act)

    def repair(self, targets: Collection[str], effect: Effect) -> Evidence:
        """Check the services' reaction, end the effect, reboot the machines whose syncs failed (their page caches have
        data that their disks do not have), and start the services."""

        def act(host: Host, disks: Disks) -> Evidence:
            counts = disks.counts(host.name)
            failed, refused = self._before.pop(host.name, (counts.failed_syncs, counts.refused_writes))
            self._end(host, disks, effect)  # also for a machine that does not answer
            judged = self._judge(host, counts.failed_syncs - failed, counts.refused_writes - refused)
            if counts.failed_syncs > failed and self.site.power is not None:
                self.site.power.cut([host.name])
                self.site.power.restore([host.name])
                self.in_force.booted.add(host.name)
            service = start_and_verify(host, self.site, self.in_force)
            return Evidence(worst([judged.status, service.status]), {**judged.detail, "service": service.detail})

        return self._on_each(targets, act)

    def _judge(self, host: Host, failed: int, refused: int) -> Evidence:
        """A service that got the error must have ended, with an exit code that shows it."""
        detail: dict[str, Any] = {"failed_syncs": failed, "refused_writes": refused}
        if host.service_pid() is not None:
            if failed or refused:
                return Evidence(
                    "mismatch",
                    {**detail, "state": "runs", "exit": UNENDED, "error": "it continues as if no error had occurred"},
                )
            return Evidence("confirmed", {**detail, "state": "runs", "exit": UNENDED})
        if self.in_force.hiding(host.name, {"process"}) or host.name in self.in_force.withheld:
            return Evidence("confirmed", {**detail, "state": "gone", "exit": ENDED_BY_OTHERS})
        code = host.service_exit()
        detail |= {"state": "gone", "exit": code}
        return Evidence("mismatch" if code in DEFECTS else "confirmed", detail)

    # --- faults that services survive

    def delay(self, targets: Collection[str], by_s: float) -> Evidence:
        """Make syncs take longer, and check that with a probe."""

        def act(host: Host, disks: Disks) -> Evidence:
            before_s = _probe(disks, host.name, _LONGEST_S)
            self._begin(host, disks, ("slow", by_s))
            took_s = _probe(disks, host.name, _LONGEST_S)
            detail = {"sync_before_ms": _ms(before_s), "sync_ms": _ms(took_s)}
            return Evidence("confirmed" if took_s is None or took_s >= by_s else "mismatch", detail)

        return self._on_each(targets, act)

    def hang(self, targets: Collection[str]) -> Evidence:
        """Make syncs block, and check that with a probe."""

        def act(host: Host, disks: Disks) -> Evidence:
            self._begin(host, disks, HANGS)
            took_s = _probe(disks, host.name, HANG_S)
            return Evidence("confirmed" if took_s is None else "mismatch", {"silent_s": HANG_S, "sync_ms": _ms(took_s)})

        return self._on_each(targets, act)

    def soothe(self, targets: Collection[str], effect: Effect) -> Evidence:
        """End an effect that services survive, and check that a sync is as fast as before. Under another slow fault a
        probe waits behind the slow syncs of services, so it is compared with a probe before the heal."""

        def act(host: Host, disks: Disks) -> Evidence:
            slower_s = _slower_s(self._in_force.on(host.name)) if effect != HANGS else math.inf
            if sum(kind == "slow" for kind, _ in self._in_force.on(host.name)) > 1:
                slower_s = max(slower_s, _probe(disks, host.name, _LONGEST_S) or 0.0)
            self._end(host, disks, effect)
            return self._see_whole(host, disks, slower_s or math.inf)

        return self._on_each(targets, act)

    # --- changed and replaced disks

    def rot(self, targets: Collection[str], count: int, seed: int) -> Evidence:
        """Kill services, flip bits in their logs, and start them: each detects the damage, or starts."""

        def act(host: Host, disks: Disks) -> Evidence:
            killed = _kill(host)
            flipped = disks.flip(host.name, seed, count)
            detail: dict[str, Any] = {**killed, "flipped": flipped, "bits": len(flipped)}
            if not flipped:
                return Evidence("inconclusive", {**detail, "error": "it has no log in which a bit could be flipped"})
            host.start_service()
            return Evidence("confirmed", detail)

        return self._on_each(targets, act)

    def restore(self, targets: Collection[str]) -> Evidence:
        """Do what a service that detected the damage requests: restore the bits. Then start it."""

        def act(host: Host, disks: Disks) -> Evidence:
            noticed = host.service_pid() is None
            detail: dict[str, Any] = (
                {"state": "gone", "exit": host.service_exit()} if noticed else {**_kill(host), "exit": UNENDED}
            )
            detail["mended"] = disks.mend(host.name)
            service = start_and_verify(host, self.site, self.in_force)
            as_known = detail.get("exit") not in DEFECTS
            status = worst(["confirmed" if as_known else "mismatch", service.status])
            return Evidence(status, {**detail, "noticed": noticed, "service": service.detail})

        return self._on_each(targets, act)

    def wipe(self, targets: Collection[str]) -> Evidence:
        """Kill services and replace their disks by empty ones."""

        def act(host: Host, disks: Disks) -> Evidence:
            killed = _kill(host)
            had = disks.replace(host.name, by_copy=False)
            self.in_force.new_disks.add(host.name)
            return Evidence("confirmed" if had else "inconclusive", {**killed, "files_before": had})

        return self._on_each(targets, act)

    def copy(self, targets: Collection[str]) -> Evidence:
        """Copy the disks as they are now; the services continue."""

        def act(host: Host, disks: Disks) -> Evidence:
            return Evidence("confirmed", {"files_copied": disks.keep_copy(host.name)})

        return self._on_each(targets, act)

    def put_back(self, targets: Collection[str]) -> Evidence:
        """Kill services, replace their disks by the copies, and start them."""

        def act(host: Host, disks: Disks) -> Evidence:
            detail: dict[str, Any] = {**_kill(host), "files_before": disks.replace(host.name, by_copy=True)}
            self.in_force.new_disks.add(host.name)
            service = start_and_verify(host, self.site, self.in_force)
            return Evidence(service.status, {**detail, "service": service.detail})

        return self._on_each(targets, act)

    def start(self, targets: Collection[str]) -> Evidence:
        """Start the services with their current disks."""

        def act(host: Host, _: Disks) -> Evidence:
            service = start_and_verify(host, self.site, self.in_force)
            return Evidence(service.status, {"service": service.detail})

        return self._on_each(targets, act)

    def heal_all(self) -> Evidence | None:
        if self.site.disks is None:
            return None

        def act(host: Host, disks: Disks) -> Evidence:
            slower_s = _slower_s(self._in_force.on(host.name))
            self._in_force.end_all(host.name)
            self._apply(host, disks)
            return self._see_whole(host, disks, slower_s or math.inf)

        return self._on_each(self.site.hosts, act)

    def _begin(self, host: Host, disks: Disks, effect: Effect) -> None:
        self._in_force.add(host.name, effect)
        self._apply(host, disks)

    def _end(self, host: Host, disks: Disks, effect: Effect) -> None:
        self._in_force.end(host.name, effect)
        self._apply(host, disks)

    def _apply(self, host: Host, disks: Disks) -> None:
        """Let the disk do what all effects in force say together."""
        effects = self._in_force.on(host.name)
        disks.fail_syncs(host.name, FAILS in effects)
        disks.leave(host.name, 0 if FULL in effects else None)
        disks.slow_down(host.name, _slower_s(effects))
        disks.hang(host.name, HANGS in effects)

    def _see_whole(self, host: Host, disks: Disks, slower_s: float) -> Evidence:
        """A sync returns, and one of a few is faster than any one with the ended effect could be: `slower_s`."""
        took_s = None
        for _ in range(_TRIES):
            try:
                took_s = disks.probe(host.name, _LONGEST_S)
            except OSError as error:
                return Evidence("mismatch", {"probe": _name_of(error)})
            if took_s is None or took_s < slower_s:
                break
        is_fast = took_s is not None and took_s < slower_s
        return Evidence("confirmed" if is_fast else "mismatch", {"sync_ms": _ms(took_s)})

    def _on_each(self, targets: Collection[str], act: Act) -> Evidence:
        disks = required(self.site.disks, LACKING)
        return combine(on_each(self.site, targets, lambda host: act(host, disks)))


def _slower_s(effects: Collection[Effect]) -> float:
    """By how much all effects together slow down each sync."""
    return sum(by_s for kind, by_s in effects if kind == "slow")


def _kill(host: Host) -> dict[str, Any]:
    """Kill a running service, so that no process uses its disk. Raises `HostError`."""
    pid = host.service_pid()
    if pid is None:
        return {"state": "gone"}
    answer = ask(host, kill_script(pid, host.address, host.port))
    if answer.get("state") != "gone":
        raise HostError(f"{host.name}: its service does not end")
    return {"state": "gone"}


def _probe(disks: Disks, name: str, seconds: float) -> float | None:
    """As `Disks.probe`. Raises `HostError` when the disk has another fault, which hides the one to be observed."""
    try:
        return disks.probe(name, seconds)
    except OSError as error:
        raise HostError(f"{name}: {error}") from error


def _error_of(disks: Disks, name: str) -> str:
    """The error of a small write and its sync."""
    try:
        took_s = disks.probe(name, HANG_S)
    except OSError as error:
        return _name_of(error)
    return "hangs" if took_s is None else "none"


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)


class DiskKind(NodeKind[DiskTroubles]):
    """Evidence: the result of a probe's write and sync, or what was found when the service was started again."""

    group = FaultGroup.DISK
    rests_on = heal_rests_on = frozenset({"machine", "disk"})
    mechanism = DiskTroubles
    needs = frozenset[Need]({"disk"})
    healed_by = "mend"


class FailingDiskKind(DiskKind):
    """Evidence: a probe's write or sync fails in the same way; healed: a service that got the error had ended, with an
    exit code that shows it, and a started service runs."""

    hides = frozenset({"process", "disk"})
    service = "ended"
    healed = (
        EvidenceRule("exit", unlike=DEFECTS),
        EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),
    )
    proven_late = True
    effect: ClassVar[Effect]

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.fail(fault.targets, self.effect)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.repair(fault.targets, self.effect)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        phrase = f"a probe met {facts.get('probe')}"
        if heal.get("state") == "gone":
            return f"{phrase}; the service ended with {heal.get('exit')}"
        return f"{phrase}; the service asked nothing of the disk and runs" if heal.get("state") == "runs" else phrase
