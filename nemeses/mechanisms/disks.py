"""Disks that fail, fill up, become slow, hang, rot, or are not the ones that they were."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Collection
from typing import Any

from nemeses.fault import Evidence, combine, worst
from nemeses.kind import Facts, Kind, Need, facts_of, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.service import start_and_verify
from nemeses.mechanisms.shell import ask, kill_script
from nemeses.ports import Disks, Host, HostError, Site

LACKING = "this world's disks cannot be told to misbehave"
HANG_S = 1.0
"""A probe that has not returned after so long does not return."""
_LONGEST_S = 30.0
_TRIES = 20
"""Syncs, of which one at least is about as fast as a disk can be."""

DEFECTS = (0, 1)
"""How no service may end that a disk makes end: as if nothing were wrong, or by an exception that nobody caught."""

UNENDED = "it has not ended"

Act = Callable[[Host, Disks], Evidence]


class DiskTroubles(Mechanism):
    """The disks of all hosts. They are whole again before any machine is given its power back."""

    stage = 15
    part = "disks"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._before: dict[str, tuple[int, int]] = {}  # failed syncs and refused writes, by host
        self._slower_s: dict[str, float] = {}  # by how much each sync is made to take longer, by host

    # --- what services end by

    def fail(self, targets: Collection[str], *, full: bool) -> Evidence:
        """Have syncs fail, or no space left, and see that of a probe; what services make of it is seen at the end."""

        def act(host: Host, disks: Disks) -> Evidence:
            if full:
                disks.leave(host.name, 0)
            else:
                disks.fail_syncs(host.name, True)
            error = _error_of(disks, host.name)
            counts = disks.counts(host.name)
            self._before[host.name] = counts.failed_syncs, counts.refused_writes
            wanted = errno.errorcode[errno.ENOSPC if full else errno.EIO]
            return Evidence("confirmed" if error == wanted else "mismatch", {"probe": error})

        return self._on_each(targets, act)

    def repair(self, targets: Collection[str]) -> Evidence:
        """See what the services made of it, end it, boot the machines whose syncs failed, for their page caches show
        what is not on their disks, and start the services."""

        def act(host: Host, disks: Disks) -> Evidence:
            counts = disks.counts(host.name)
            failed, refused = self._before.pop(host.name, (counts.failed_syncs, counts.refused_writes))
            self._make_whole(host, disks)  # also of a machine that does not answer
            judged = self._judge(host, counts.failed_syncs - failed, counts.refused_writes - refused)
            if counts.failed_syncs > failed and self.site.power is not None:
                self.site.power.cut([host.name])
                self.site.power.restore([host.name])
            service = start_and_verify(host, self.site)
            return Evidence(worst([judged.status, service.status]), {**judged.detail, "service": service.detail})

        return self._on_each(targets, act)

    def _judge(self, host: Host, failed: int, refused: int) -> Evidence:
        """A service that has met it must have ended, in a way that says so."""
        detail: dict[str, Any] = {"failed_syncs": failed, "refused_writes": refused}
        if host.service_pid() is not None:
            if failed or refused:
                return Evidence(
                    "mismatch",
                    {**detail, "state": "runs", "exit": UNENDED, "error": "it goes on as if nothing had failed"},
                )
            return Evidence("confirmed", {**detail, "state": "runs", "exit": UNENDED})
        code = host.service_exit()
        detail |= {"state": "gone", "exit": code}
        return Evidence("mismatch" if code in DEFECTS else "confirmed", detail)

    # --- what services live through

    def delay(self, targets: Collection[str], by_s: float) -> Evidence:
        """Have syncs take longer, and see one do so."""

        def act(host: Host, disks: Disks) -> Evidence:
            before_s = _probe(disks, host.name, _LONGEST_S)
            self._slower_s[host.name] = by_s
            disks.slow_down(host.name, by_s)
            took_s = _probe(disks, host.name, _LONGEST_S)
            detail = {"sync_before_ms": _ms(before_s), "sync_ms": _ms(took_s)}
            return Evidence("confirmed" if took_s is None or took_s >= by_s else "mismatch", detail)

        return self._on_each(targets, act)

    def hang(self, targets: Collection[str]) -> Evidence:
        """Have no sync return, and see one that does not."""

        def act(host: Host, disks: Disks) -> Evidence:
            disks.hang(host.name, True)
            took_s = _probe(disks, host.name, HANG_S)
            return Evidence("confirmed" if took_s is None else "mismatch", {"silent_s": HANG_S, "sync_ms": _ms(took_s)})

        return self._on_each(targets, act)

    def soothe(self, targets: Collection[str]) -> Evidence:
        """End what services live through, and see a sync return as soon as any."""

        def act(host: Host, disks: Disks) -> Evidence:
            self._make_whole(host, disks)
            return self._see_whole(host, disks)

        return self._on_each(targets, act)

    # --- disks that are not what they were

    def rot(self, targets: Collection[str], count: int, seed: int) -> Evidence:
        """Kill services, turn bits over in their logs, and start them: each notices, or starts."""

        def act(host: Host, disks: Disks) -> Evidence:
            killed = _kill(host)
            flipped = disks.flip(host.name, seed, count)
            detail: dict[str, Any] = {**killed, "flipped": flipped, "bits": len(flipped)}
            if not flipped:
                return Evidence("inconclusive", {**detail, "error": "there is no log in which a bit could be flipped"})
            host.start_service()
            return Evidence("confirmed", detail)

        return self._on_each(targets, act)

    def restore(self, targets: Collection[str]) -> Evidence:
        """Do what a service asks for that has noticed: put back what was there. Then start it."""

        def act(host: Host, disks: Disks) -> Evidence:
            noticed = host.service_pid() is None
            detail: dict[str, Any] = (
                {"state": "gone", "exit": host.service_exit()} if noticed else {**_kill(host), "exit": UNENDED}
            )
            detail["mended"] = disks.mend(host.name)
            service = start_and_verify(host, self.site)
            as_known = detail.get("exit") not in DEFECTS
            status = worst(["confirmed" if as_known else "mismatch", service.status])
            return Evidence(status, {**detail, "noticed": noticed, "service": service.detail})

        return self._on_each(targets, act)

    def wipe(self, targets: Collection[str]) -> Evidence:
        """Kill services and give them empty disks."""

        def act(host: Host, disks: Disks) -> Evidence:
            killed = _kill(host)
            had = disks.replace(host.name, by_copy=False)
            return Evidence("confirmed" if had else "inconclusive", {**killed, "files_before": had})

        return self._on_each(targets, act)

    def copy(self, targets: Collection[str]) -> Evidence:
        """Put aside copies of the disks as they are now; the services go on."""

        def act(host: Host, disks: Disks) -> Evidence:
            return Evidence("confirmed", {"files_copied": disks.keep_copy(host.name)})

        return self._on_each(targets, act)

    def put_back(self, targets: Collection[str]) -> Evidence:
        """Kill services, put in the copies of their disks, and start them."""

        def act(host: Host, disks: Disks) -> Evidence:
            detail: dict[str, Any] = {**_kill(host), "files_before": disks.replace(host.name, by_copy=True)}
            service = start_and_verify(host, self.site)
            return Evidence(service.status, {**detail, "service": service.detail})

        return self._on_each(targets, act)

    def start(self, targets: Collection[str]) -> Evidence:
        """Start the services on whatever disks they have now."""

        def act(host: Host, _: Disks) -> Evidence:
            service = start_and_verify(host, self.site)
            return Evidence(service.status, {"service": service.detail})

        return self._on_each(targets, act)

    def heal_all(self) -> Evidence | None:
        if self.site.disks is None:
            return None

        def act(host: Host, disks: Disks) -> Evidence:
            self._make_whole(host, disks)
            return self._see_whole(host, disks)

        return self._on_each(self.site.hosts, act)

    def _make_whole(self, host: Host, disks: Disks) -> None:
        disks.fail_syncs(host.name, False)
        disks.leave(host.name, None)
        disks.slow_down(host.name, 0.0)
        disks.hang(host.name, False)

    def _see_whole(self, host: Host, disks: Disks) -> Evidence:
        """A sync returns, and one of a few sooner than any could that is slowed down."""
        slower_s, took_s = self._slower_s.pop(host.name, math.inf), None
        for _ in range(_TRIES):
            try:
                took_s = disks.probe(host.name, _LONGEST_S)
            except OSError as error:
                return Evidence("mismatch", {"probe": _name_of(error)})
            if took_s is None or took_s < slower_s:
                break
        whole = took_s is not None and took_s < slower_s
        return Evidence("confirmed" if whole else "mismatch", {"sync_ms": _ms(took_s)})

    def _on_each(self, targets: Collection[str], act: Act) -> Evidence:
        disks = self.site.disks
        if disks is None:
            return Evidence("inconclusive", {"error": LACKING})
        return combine(on_each(self.site, targets, lambda host: act(host, disks)))


def _kill(host: Host) -> dict[str, Any]:
    """End a service where it runs, so that nothing works on its disk. Raises `HostError`."""
    pid = host.service_pid()
    if pid is None:
        return {"state": "gone"}
    seen = ask(host, kill_script(pid, host.address, host.port))
    if seen.get("state") != "gone":
        raise HostError(f"{host.name}: its service does not end")
    return {"state": "gone"}


def _probe(disks: Disks, name: str, seconds: float) -> float | None:
    """As `Disks.probe`. Raises `HostError` where the disk has another fault, so that nothing can be seen of this."""
    try:
        return disks.probe(name, seconds)
    except OSError as error:
        raise HostError(f"{name}: {error}") from error


def _error_of(disks: Disks, name: str) -> str:
    """What a small write and its sync run into."""
    try:
        took_s = disks.probe(name, HANG_S)
    except OSError as error:
        return _name_of(error)
    return "hangs" if took_s is None else "none"


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)


class DiskKind(Kind[DiskTroubles]):
    """Evidence: what a probe's write and sync met, or what was found when the service was started again."""

    mechanism = DiskTroubles
    needs = frozenset[Need]({"disk"})
    ended_by = "mend"


class FailingDiskKind(DiskKind):
    """Evidence: a probe's write or sync fails in the same way; healed: a service that has met it had ended, with an
    exit code that says so, and one that was started runs."""

    service = "ended"
    proven_late = True

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(f"{name}: {_tell(facts, facts_of(after, name))}" for name, facts in node_facts(seen).items())


def _tell(facts: Facts, after: Facts) -> str:
    words = f"a probe met {facts.get('probe')}"
    if after.get("state") == "gone":
        return f"{words}; the service ended with {after.get('exit')}"
    return f"{words}; the service asked nothing of the disk and runs" if after.get("state") == "runs" else words
