"""Faults of the store of remote segments, in a real directory and with real mounts."""

import hashlib
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemeses import Fault, Nemesis
from nemeses.fault import Evidence
from nemeses.ports import Result, Site
from tests.nemeses.fakes import FakeHost
from tests.nemeses.machines import FakeTime


class ShellHost(FakeHost):
    """A host whose commands run in a real shell, in a mount namespace of its own if it has the pid of one."""

    inside: tuple[str, ...] = ()

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        done = subprocess.run(
            [*self.inside, "sh", "-c", command], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two objects."""
    directory = tmp_path / "store" / "log-0"
    directory.mkdir(parents=True)
    for number in (0, 7):
        (directory / f"{number:020d}-id.log").write_bytes(bytes([number]) * 10_000)
        (directory / f"{number:020d}-id.index").write_bytes(bytes([number]) * 100)
    return tmp_path / "store"


def site(store: Path, *inside: str) -> Site:
    host = ShellHost("n1")
    host.inside = inside
    return Site({"n1": host}, store_dir=str(store), scheduler=FakeTime())


@pytest.fixture
def own_mounts(store: Path) -> Iterator[tuple[str, ...]]:
    """The words that run a command in a mount namespace of its own, in which the store is a mount, as on a node."""
    namespace = ("unshare", "--mount", "--propagation", "private")
    if shutil.which("nsenter") is None or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    with subprocess.Popen([*namespace, "cat"], stdin=subprocess.PIPE) as process:
        # `cat` runs once the namespace exists.
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != "cat":
            pass
        inside = ("nsenter", "--target", str(process.pid), "--mount")
        subprocess.run([*inside, "mount", "--bind", str(store), str(store)], check=True)
        yield inside
        process.kill()


def inject(world: Site, kind: str) -> tuple[Nemesis, Fault, Evidence]:
    nemesis, fault = Nemesis(world), Fault(kind, ("n1",))
    return nemesis, fault, nemesis.inject(fault)


def digests(store: Path) -> dict[str, str]:
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in store.rglob("*") if each.is_file()}


@pytest.mark.parametrize("kind", ["object-missing", "object-cut", "object-corrupt"])
def test_an_object_changes_and_the_heal_puts_it_back(store: Path, kind: str) -> None:
    before = digests(store)
    nemesis, fault, seen = inject(site(store), kind)
    assert seen.status == "confirmed", seen
    first = store / "log-0" / f"{0:020d}-id.log"
    changed = {each for each, digest in before.items() if digests(store).get(each) != digest}
    assert changed == {str(first)}
    assert first.exists() == (kind != "object-missing")
    if kind == "object-cut":
        assert first.stat().st_size == 5_000
    assert nemesis.heal(fault).status == "confirmed"
    assert digests(store) == before, "nothing else is left"


@pytest.mark.parametrize("seed", range(3))
def test_a_segment_gets_the_objects_of_another_one_with_its_first_offset(store: Path, seed: int) -> None:
    other = store / "log-1"
    other.mkdir()
    for number in (0, 7):
        for suffix in (".log", ".index"):
            (other / f"{number:020d}-id{suffix}").write_bytes(bytes([100 + number]) * 10)
    before, contents = digests(store), {path: path.read_bytes() for path in store.rglob("*.*")}
    nemesis, fault = Nemesis(site(store)), Fault("object-corrupt", ("n1",), 1.0, {"replaced": seed})
    seen = nemesis.inject(fault)
    assert seen.status == "confirmed", seen
    changed = {Path(each) for each, digest in before.items() if digests(store).get(each) != digest}
    records = store / seen.detail["n1"]["object"]
    assert changed == {records, records.with_suffix(".index")}
    partner = "log-1" if records.parent.name == "log-0" else "log-0"
    for path in changed:
        assert path.read_bytes() == contents[store / partner / path.name]
    assert nemesis.heal(fault).status == "confirmed"
    assert digests(store) == before, "nothing else is left"


def test_the_only_segment_of_a_store_cannot_be_replaced(store: Path) -> None:
    for path in (store / "log-0").glob(f"{7:020d}*"):
        path.unlink()
    seen = Nemesis(site(store)).inject(Fault("object-corrupt", ("n1",), 1.0, {"replaced": 1}))
    assert seen.status == "inconclusive"
    assert "no object to change" in str(seen.detail)


@pytest.mark.parametrize("kind", ["object-missing", "object-cut", "object-corrupt"])
def test_an_object_that_the_cluster_has_deleted_stays_deleted(store: Path, kind: str) -> None:
    nemesis, fault, seen = inject(site(store), kind)
    assert seen.status == "confirmed", seen
    for path in (store / "log-0").glob(f"{0:020d}*"):
        path.unlink()
    left = digests(store).keys() - {*map(str, store.glob(".brownout-aside/**/*"))}
    healed = nemesis.heal(fault)
    assert healed.status == "confirmed", healed
    assert healed.detail["n1"]["restored"] == "deleted"
    assert digests(store).keys() == left


def test_a_fault_waits_for_the_first_object(tmp_path: Path) -> None:
    """A random schedule may inject it before the first upload."""

    class UploadingTime(FakeTime):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            (tmp_path / f"{0:020d}-id.log").write_bytes(b"uploaded")

    world = Site({"n1": ShellHost("n1")}, store_dir=str(tmp_path), scheduler=UploadingTime())
    _, _, seen = inject(world, "object-corrupt")
    assert seen.status == "confirmed", seen


def test_a_store_without_objects_is_inconclusive(tmp_path: Path) -> None:
    _, _, seen = inject(site(tmp_path), "object-missing")
    assert seen.status == "inconclusive"
    assert "no object to change" in str(seen.detail)


OBJECTS = ("object-missing", "object-cut", "object-corrupt")
COVERS = ("store-down", "store-read-only", "store-full")


@pytest.mark.parametrize("heals_first", [0, 1])
@pytest.mark.parametrize(("one", "other"), [*itertools.product(OBJECTS, repeat=2)])
def test_two_faults_change_two_objects(store: Path, one: str, other: str, heals_first: int) -> None:
    before, nemesis = digests(store), Nemesis(site(store))
    faults = Fault(one, ("n1",), 1.0), Fault(other, ("n1",), 2.0)
    seen = [nemesis.inject(fault) for fault in faults]
    assert [each.status for each in seen] == ["confirmed"] * 2, seen
    objects = [each.detail["n1"]["object"].removeprefix("./") for each in seen]
    assert len({*objects}) == 2
    third = Fault("object-cut", ("n1",), 3.0)
    assert nemesis.inject(third).detail["n1"]["prevented_by"] == other, "the store has two objects"
    assert nemesis.heal(third).status == "prevented"
    assert nemesis.heal(faults[heals_first]).status == "confirmed"
    changed = {each for each, digest in before.items() if digests(store).get(each) != digest}
    assert changed == {str(store / objects[1 - heals_first])}
    assert nemesis.heal(faults[1 - heals_first]).status == "confirmed"
    assert digests(store) == before, "nothing else is left"


@pytest.mark.parametrize("heals_first", [0, 1])
@pytest.mark.parametrize(("one", "other"), [*itertools.product(COVERS, repeat=2)])
def test_the_heal_of_a_cover_leaves_another_one(
    store: Path, one: str, other: str, heals_first: int, own_mounts: tuple[str, ...]
) -> None:
    before, world = digests(store), site(store, *own_mounts)
    nemesis, faults = Nemesis(world), (Fault(one, ("n1",), 1.0), Fault(other, ("n1",), 2.0))
    host, mounts = world.hosts["n1"], "wc -l < /proc/self/mountinfo"
    mounted = host.run(mounts).stdout
    for fault in faults:
        assert (seen := nemesis.inject(fault)).status == "confirmed", seen
    left = faults[1 - heals_first]
    healed = nemesis.heal(faults[heals_first])
    assert healed.status == "confirmed", healed
    facts = healed.detail["n1"]
    assert facts["covered_by"] == left.kind
    assert facts["write"] == ("ENOSPC" if left.kind == "store-full" else "EROFS")
    assert facts["objects"] == (0 if left.kind == "store-down" else 2)
    healed = nemesis.heal(left)
    assert healed.status == "confirmed", healed
    assert (healed.detail["n1"]["objects"], healed.detail["n1"]["write"]) == (2, "done")
    assert host.run(mounts).stdout == mounted, "every mount is removed"
    assert digests(store) == before


@pytest.mark.parametrize("one", COVERS)
@pytest.mark.parametrize("other", OBJECTS)
def test_an_object_that_a_node_cannot_see_is_put_back_when_it_can(
    store: Path, one: str, other: str, own_mounts: tuple[str, ...]
) -> None:
    before, nemesis = digests(store), Nemesis(site(store, *own_mounts))
    cover, change = Fault(one, ("n1",)), Fault(other, ("n1",))
    assert nemesis.inject(change).confirmed
    assert nemesis.inject(cover).confirmed
    assert nemesis.hidden(change) == one
    assert nemesis.inject(change).status == "prevented"
    nemesis.heal(change)
    assert nemesis.heal(cover).confirmed
    assert nemesis.hidden(change) == ""
    assert nemesis.heal(change).confirmed
    assert digests(store) == before


def test_a_system_without_a_store_is_inconclusive(store: Path) -> None:
    _, _, seen = inject(Site({"n1": ShellHost("n1")}), "object-cut")
    assert seen.status == "inconclusive"
    assert "no store" in str(seen.detail)
    assert store.exists()


def test_the_end_of_a_run_heals_remaining_changes(store: Path) -> None:
    before = digests(store)
    nemesis, _, _ = inject(site(store), "object-corrupt")
    nemesis.heal_all()
    assert digests(store) == before


@pytest.mark.parametrize("kind", ["store-down", "store-read-only", "store-full"])
def test_a_node_sees_another_store_and_the_others_do_not(store: Path, kind: str, own_mounts: tuple[str, ...]) -> None:
    before, world = digests(store), site(store, *own_mounts)
    nemesis, fault, seen = inject(world, kind)
    assert seen.status == "confirmed", seen
    facts = seen.detail["n1"]
    assert (facts["objects"], facts["objects_before"]) == (0 if kind == "store-down" else 2, 2)
    assert facts["write"] == ("ENOSPC" if kind == "store-full" else "EROFS")
    assert digests(store) == before
    healed = nemesis.heal(fault)
    assert healed.status == "confirmed", healed
    assert (healed.detail["n1"]["objects"], healed.detail["n1"]["write"]) == (2, "done")
    assert digests(store) == before, "no probe is left"


@pytest.mark.parametrize("kind", ["store-down", "store-read-only", "store-full"])
def test_a_missing_mount_is_inconclusive(store: Path, kind: str) -> None:
    """Without the right to mount, the probe shows the store as it is."""
    world = site(store, "env", "PATH=/nowhere:/usr/bin:/bin", "unshare", "--map-current-user", "--user")
    _, _, seen = inject(world, kind)
    assert seen.status != "confirmed"
