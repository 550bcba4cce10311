"""Disks with faults: confirmed when a probe meets the fault; a service that met it must have exited, with its code."""

import errno
import os
from typing import Any

import pytest

from nemeses import Evidence, Fault, Nemesis, Site
from nemeses.ports import DiskCount
from tests.nemeses.fakes import FakeHost, FakePower, lines

ERROR, FULL, SLOW = (
    Fault("disk-error", ("n1",)),
    Fault("disk-full", ("n1",)),
    Fault("disk-slow", ("n1",), 0, {"sync_ms": 50}),
)
HANG, FLIP, WIPE, OLD = (Fault(kind, ("n1",)) for kind in ("disk-hang", "disk-flip", "disk-wipe", "old-disk"))
EVERY = (ERROR, FULL, SLOW, HANG, FLIP, WIPE, OLD)


class Service(FakeHost):
    """A service that ends with `code` when its disk makes it."""

    def __init__(self) -> None:
        super().__init__("n1", self._say)
        self.code: int | None = None

    def _say(self, command: str) -> str:
        if "kill -9" in command:
            self.pid = None
            return lines(start="7", signalled="yes", state="gone", port="closed")
        return lines(port="open", start="7", after="S", signalled="yes")

    def ends(self, code: int) -> None:
        self.pid, self.code = None, code

    def service_exit(self, pid: int | None = None) -> int | None:
        del pid
        return self.code


class FakeDisks:
    """The disk of one host. `deaf`: it ignores requests; `stuck`: it does not end a fault."""

    def __init__(self) -> None:
        self.deaf = self.stuck = False
        self.errors: set[int] = set()
        self.slow_s = 0.0
        self.hung = False
        self.failed = self.refused = 0
        self.logs = True
        self.flipped = 0
        self.files = 9
        self.copied = 0

    def fail_syncs(self, name: str, failing: bool) -> None:
        self._set(name, errno.EIO, failing)

    def leave(self, name: str, free_bytes: int | None) -> None:
        self._set(name, errno.ENOSPC, free_bytes is not None)

    def _set(self, _: str, error: int, is_met: bool) -> None:
        if is_met and not self.deaf:
            self.errors.add(error)
        elif not self.stuck:
            self.errors.discard(error)

    @property
    def error(self) -> int | None:
        return next(iter(self.errors), None)

    def slow_down(self, name: str, by_s: float) -> None:
        del name
        if by_s or not self.stuck:
            self.slow_s = 0.0 if self.deaf else by_s

    def hang(self, name: str, hung: bool) -> None:
        del name
        self.hung = (hung and not self.deaf) or (self.hung and self.stuck)

    def flip(self, name: str, seed: int, count: int) -> list[str]:
        del name, seed
        self.flipped = count if self.logs else 0
        return [f"bit {n}" for n in range(self.flipped)]

    def mend(self, name: str) -> int:
        del name
        mended, self.flipped = self.flipped, 0
        return mended

    def keep_copy(self, name: str) -> int:
        del name
        self.copied = self.files
        return self.copied

    def replace(self, name: str, *, by_copy: bool) -> int:
        del name
        had, self.files = self.files, self.copied if by_copy else 0
        return had

    def crash_at(self, name: str, files: str, number: int, crash: str) -> None:
        raise NotImplementedError

    def end_crash_point(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def probe(self, name: str, seconds: float) -> float | None:
        del name
        if self.error is not None:
            self.failed += self.error == errno.EIO
            self.refused += self.error == errno.ENOSPC
            raise OSError(self.error, os.strerror(self.error))
        return None if self.hung else min(seconds, 0.001 + self.slow_s)

    def counts(self, name: str) -> DiskCount:
        del name
        return DiskCount(self.failed, self.refused)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def disks() -> FakeDisks:
    return FakeDisks()


def nemesis(service: Service, disks: FakeDisks | None, **more: Any) -> Nemesis:
    return Nemesis(Site({"n1": service}, disks=disks, **more))


def of(evidence: Evidence) -> dict[str, Any]:
    found: dict[str, Any] = evidence.detail["n1"]
    return found


@pytest.mark.parametrize(("fault", "error"), [(ERROR, "EIO"), (FULL, "ENOSPC")])
def test_a_service_that_met_it_has_ended_and_runs_again(
    service: Service, disks: FakeDisks, fault: Fault, error: str
) -> None:
    site = nemesis(service, disks)
    seen = site.inject(fault)
    assert (seen.status, of(seen)["probe"]) == ("confirmed", error)
    disks.failed += 1
    service.ends(70)
    healed = site.heal(fault)
    assert (healed.status, of(healed)["exit"], of(healed)["service"]["port"]) == ("confirmed", 70, "open")
    assert disks.error is None


@pytest.mark.parametrize("code", [0, 1])
def test_an_exit_without_a_reason_is_a_mismatch(service: Service, disks: FakeDisks, code: int) -> None:
    site = nemesis(service, disks)
    site.inject(ERROR)
    disks.failed += 1
    service.ends(code)
    assert site.heal(ERROR).status == "mismatch"


@pytest.mark.parametrize(("fault", "counter"), [(ERROR, "failed"), (FULL, "refused")])
def test_a_service_that_continues_after_a_disk_error_is_a_mismatch(
    service: Service, disks: FakeDisks, fault: Fault, counter: str
) -> None:
    site = nemesis(service, disks)
    site.inject(fault)
    setattr(disks, counter, getattr(disks, counter) + 1)
    healed = site.heal(fault)
    assert (healed.status, of(healed)["state"]) == ("mismatch", "runs")


def test_a_service_that_made_no_disk_request_may_run(service: Service, disks: FakeDisks) -> None:
    site = nemesis(service, disks)
    site.inject(FULL)
    assert site.heal(FULL).status == "confirmed"


def test_a_machine_with_failed_syncs_is_booted(service: Service, disks: FakeDisks) -> None:
    power = FakePower()
    site = nemesis(service, disks, power=power)
    site.inject(ERROR)
    disks.failed += 1
    service.ends(70)
    site.heal(ERROR)
    assert power.boots == 1, "its page cache shows what is not on its disk"


def test_syncs_that_take_longer(service: Service, disks: FakeDisks) -> None:
    site = nemesis(service, disks)
    seen = site.inject(SLOW)
    assert (seen.status, of(seen)["sync_before_ms"], of(seen)["sync_ms"]) == ("confirmed", 1.0, 51.0)
    assert (site.heal(SLOW).status, disks.slow_s) == ("confirmed", 0.0)


def test_syncs_that_do_not_return(service: Service, disks: FakeDisks) -> None:
    site = nemesis(service, disks)
    assert (site.inject(HANG).status, disks.hung) == ("confirmed", True)
    assert (site.heal(HANG).status, disks.hung) == ("confirmed", False)


@pytest.mark.parametrize("fault", [ERROR, FULL, SLOW, HANG])
def test_a_disk_that_does_not_misbehave_is_a_mismatch(service: Service, disks: FakeDisks, fault: Fault) -> None:
    disks.deaf = True
    assert nemesis(service, disks).inject(fault).status == "mismatch"


@pytest.mark.parametrize(("code", "status"), [(64, "confirmed"), (1, "mismatch")])
def test_a_service_that_detects_the_error_has_its_exit_code(
    service: Service, disks: FakeDisks, code: int, status: str
) -> None:
    site = nemesis(service, disks)
    seen = site.inject(FLIP)
    assert (seen.status, of(seen)["bits"]) == ("confirmed", 1)
    service.ends(code)
    healed = site.heal(FLIP)
    assert (healed.status, of(healed)["noticed"], of(healed)["mended"]) == (status, True, 1)


def test_a_service_that_starts_on_flipped_bits_is_ended_and_the_bits_put_back(
    service: Service, disks: FakeDisks
) -> None:
    site = nemesis(service, disks)
    site.inject(FLIP)
    healed = site.heal(FLIP)
    assert (healed.status, of(healed)["noticed"], service.starts) == ("confirmed", False, 2)


def test_a_disk_without_logs_has_no_bits_to_flip(service: Service, disks: FakeDisks) -> None:
    disks.logs = False
    assert nemesis(service, disks).inject(FLIP).status == "inconclusive"


def test_a_service_restarts_on_an_empty_disk_and_on_an_old_one(service: Service, disks: FakeDisks) -> None:
    site = nemesis(service, disks)
    assert (site.inject(OLD).status, disks.copied) == ("confirmed", 9)
    assert (site.inject(WIPE).status, disks.files) == ("confirmed", 0)
    assert site.heal(WIPE).status == "confirmed"
    disks.files = 12
    healed = site.heal(OLD)
    assert (healed.status, of(healed)["files_before"], disks.files) == ("confirmed", 12, 9)


@pytest.mark.parametrize("fault", EVERY)
def test_a_world_without_disk_faults_is_inconclusive(service: Service, fault: Fault) -> None:
    seen = nemesis(service, None).inject(fault)
    assert (seen.status, "cannot inject faults of disks" in seen.detail["error"]) == ("inconclusive", True)


def test_every_disk_is_whole_at_the_end(service: Service, disks: FakeDisks) -> None:
    site = nemesis(service, disks)
    for fault in (ERROR, SLOW, HANG):
        disks.errors.clear()
        site.inject(fault)
    site.heal_all()
    assert (disks.error, disks.slow_s, disks.hung) == (None, 0.0, False)


@pytest.mark.parametrize("fault", [SLOW, HANG])
def test_a_disk_that_stays_as_it_was_made_is_a_mismatch(service: Service, disks: FakeDisks, fault: Fault) -> None:
    site = nemesis(service, disks)
    assert site.inject(fault).status == "confirmed"
    disks.stuck = True
    assert site.heal(fault).status == "mismatch"


@pytest.mark.parametrize("fault", [ERROR, SLOW, HANG])
def test_a_disk_that_is_not_whole_at_the_end_is_a_mismatch(service: Service, disks: FakeDisks, fault: Fault) -> None:
    site = nemesis(service, disks)
    site.inject(fault)
    disks.stuck = True
    assert site.heal_all().status == "mismatch"
