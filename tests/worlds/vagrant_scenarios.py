"""The actions of virtual machines in tests, each as `python -m tests.worlds.vagrant_scenarios NAME ...` in a
sandbox."""

import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

from nemeses.ports import Host
from orchestrator.errors import WorldError
from orchestrator.machine.sandbox import PRIVATE_ROOT
from orchestrator.worlds.base import WorldSpec, no_progress
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.remote.world import RemoteWorld
from orchestrator.worlds.vagrant import kvm
from orchestrator.worlds.vagrant.lab import VagrantLab, with_made_files
from systems import MachineRoot, Software
from tests.nodeimage.support import pretend_built, small_project
from tests.worlds.support import StandIns

# Each file is made and its name made durable first: what is looked at afterwards is what is in it.
WRITE = """python3 -c '
import mmap, os
directory = os.open("/data", os.O_RDONLY)
def fresh(name, flags=0):
    os.close(os.open(f"/data/{name}", os.O_CREAT | os.O_WRONLY))
    os.truncate(f"/data/{name}", 4096)
    os.posix_fallocate(file := os.open(f"/data/{name}", os.O_WRONLY), 0, 4096)
    os.fsync(file), os.fsync(directory)
    return os.open(f"/data/{name}", os.O_WRONLY | flags)
page = mmap.mmap(-1, 4096)
page.write(b"x" * 4096)
synced, cached, direct = fresh("synced"), fresh("cached"), fresh("direct", os.O_DIRECT)
os.write(synced, page), os.fsync(synced)
os.write(direct, page)
os.write(cached, page)
'"""
READ = "for name in synced cached direct; do tr -d '\\0' < /data/$name | wc -c; done"


def life(directory: str) -> dict[str, Any]:
    """One machine: booted, provisioned, stopped in every way, cut off its power, restored, collected."""
    said: list[str] = []
    lab = VagrantLab(LabSpec(1, "ext4", Path(directory, "lab")))
    seen: dict[str, Any] = {"said": said}
    try:
        lab.open(said.append)
        world = lab.world(WorldSpec(run_id="run", run_dir=Path(directory, "run"), node_count=1, deployment=StandIns()))
        assert isinstance(world, RemoteWorld)
        world.up(said.append)
        seen |= _stops(world) | _power_cut(world)
        world.collect_all()
        world.down()
        world.up(said.append)
        seen["after_restore"] = world.hosts["n1"].run("ls -A /data").stdout.split()
        seen["clock_ahead_s"] = _clock_ahead(world.hosts["n1"])
        world.down()
        seen["shell"] = subprocess.run(lab.shell("n1", ["hostname"]), capture_output=True, text=True).stdout
    finally:
        lab.close()
    return seen | {"links": sorted(os.listdir("/sys/class/net")), "left": sorted(os.listdir(PRIVATE_ROOT))}


def not_even_emulated(directory: str) -> dict[str, Any]:
    """A lab that cannot be opened, of a missing image, with the programs in `directory`/bin; its output."""
    os.environ["PATH"] = f"{directory}/bin:{os.environ['PATH']}"
    image = pretend_built(small_project(Path(directory)))
    with tarfile.open(image.box, "w") as box:
        for name in ("metadata.json", "Vagrantfile"):
            box.addfile(tarfile.TarInfo(name))
    lab = VagrantLab(LabSpec(1, "ext4", Path(directory, "lab")))
    said: list[str] = []
    try:
        with mock.patch("orchestrator.worlds.vagrant.lab.find", return_value=image):
            lab.open(said.append)
    except WorldError as error:
        return {
            "said": said,
            "error": str(error),
            "limits": lab.limits,
            "time_scale": lab.time_scale,
            "believed": kvm.asked(image.directory).detail,
            "left": sorted(os.listdir(PRIVATE_ROOT)),
            "links": sorted(os.listdir("/sys/class/net")),
            "running": [name for name in ("libvirtd", "vagrant") if _runs(f"{directory}/bin/{name}")],
        }
    raise AssertionError("the lab was opened")


def _runs(program: str) -> bool:
    return subprocess.run(["pgrep", "-f", program], capture_output=True, check=False).returncode == 0


def image_root(directory: str) -> dict[str, Any]:
    """What a system finds that makes a file among the machines' own, and what is left of it."""
    image = pretend_built(small_project(Path(directory)))
    for name in ("dev", "proc"):
        (image.rootfs / name).mkdir()
    jar = Path(directory, "one.jar")
    jar.write_text("classes")
    seen: dict[str, Any] = {}

    def make(root: MachineRoot, _: object) -> dict[str, Path]:
        with root.open() as path:
            unpacked = path / root.files_dir.lstrip("/") / jar.name
            seen.update(text=unpacked.read_text(), changed=unpacked.stat().st_mtime, key=root.key == image.key)
            seen["devices"] = (path / "dev" / "null").is_char_device()
            (path / "usr" / "written").touch()
        return {"made": jar}

    (software,) = with_made_files(image, (Software("S 1", "s/1", {jar.name: jar}, make=make),), no_progress)
    mounts = Path("/proc/self/mounts").read_text()
    return seen | {
        "files": sorted(software.files),
        "rootfs": sorted(os.listdir(image.rootfs / "usr")),
        "left": sorted(os.listdir(PRIVATE_ROOT)),
        "mounted": "image-root" in mounts,
    }


def emulated(directory: str) -> dict[str, Any]:
    """One machine, where QEMU is what `directory`/bin has."""
    os.environ["PATH"] = f"{directory}/bin:{os.environ['PATH']}"
    lab = VagrantLab(LabSpec(1, "ext4", Path(directory, "lab")))
    said: list[str] = []
    try:
        lab.open(said.append)
        return {"said": said, "limits": lab.limits, "time_scale": lab.time_scale, "nodes": list(lab.hosts)}
    finally:
        lab.close()


def wait_to_be_killed(directory: str) -> str:
    """Print `booting` as soon as a machine boots; continue until a signal."""

    def say(text: str) -> None:
        print(json.dumps(text), flush=True)

    lab = VagrantLab(LabSpec(1, "ext4", Path(directory, "lab")))
    lab.open(say)
    say("ready")
    threading.Event().wait()
    return "not reached"


def _stops(world: RemoteWorld) -> dict[str, Any]:
    suspender, host = world.site.suspender, world.hosts["n1"]
    assert suspender is not None
    states = [suspender.state("n1")]
    for stop in (suspender.stall, suspender.freeze):
        stop(["n1"])
        states.append(suspender.state("n1"))
        suspender.resume(["n1"])
        states.append(suspender.state("n1"))
    return {"states": states, "answers": host.run("echo yes").stdout.strip()}


def _power_cut(world: RemoteWorld) -> dict[str, Any]:
    power, host = world.power, world.hosts["n1"]
    assert power is not None
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = host.run(boot_id).stdout
    wrote = host.run(WRITE)
    assert wrote.ok, wrote.stderr
    cut = power.cut(["n1"])["n1"]
    on = power.is_on("n1")
    restored = power.restore(["n1"])["n1"]
    kept = host.run(READ).stdout.split()
    return {
        "cut": cut,
        "on": on,
        "restored": restored,
        "other_boot": host.run(boot_id).stdout != before,
        "kept": dict(zip(("synced", "cached", "direct"), map(int, kept), strict=True)),
    }


def _clock_ahead(host: Host) -> float:
    return float(host.run("date +%s.%N").stdout) - time.time()


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
