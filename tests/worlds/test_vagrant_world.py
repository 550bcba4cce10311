"""The vagrant world with real machines (run with `-m vm`), and its messages on a machine without them (always run)."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from installation.files import PROJECT_ROOT
from nodeimage import ImageError
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine import packages as system_packages
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.vagrant import driver, kvm, lab, requirements
from orchestrator.worlds.vagrant.lab import VagrantUp
from systems import Software
from tests.campaign_text import campaign_text, random_faults
from tests.nodeimage.support import pretend_built, small_project
from tests.worlds import hypervisors
from tests.worlds.footprint import Footprint, machine_wide
from tests.worlds.support import launch, play

MODULE = "tests.worlds.vagrant_scenarios"
PATIENCE_S = 220.0
SMOKE = campaign_text(
    "smoke",
    topology={"nodes": 1, "world": "vagrant"},
    broker={"log.flush.interval.messages": 1},
    workload={"partitions": 1, "replication_factor": 1, "producers": 1, "consumers": 1, "rate": 20, "duration_s": 15},
    nemesis=random_faults("power-loss", "clock-jump", interval_s=[1.0, 2.0], duration_s=[2.0, 3.0]),
    # however slow the machine is
    checks={"min_ok": 10, "min_share": 0.05, "required_faults": ["power-loss", "clock-jump"]},
)


@pytest.fixture
def machines(tmp_path: Path) -> None:
    """Skips where virtual machines cannot be made; what can be installed is."""
    try:
        lab.VagrantLab.prepare(LabSpec(1, "ext4", tmp_path / "lab"))
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.vm
@pytest.mark.usefixtures("machines")
def test_a_machine_is_booted_stopped_cut_off_restored_and_collected(tmp_path: Path) -> None:
    before = machine_wide()
    sandbox = launch("life", str(tmp_path), module=MODULE)
    try:
        stdout, stderr = sandbox.process.communicate(timeout=PATIENCE_S)
    finally:
        sandbox.kill()
    assert sandbox.process.returncode == 0, stderr
    seen: dict[str, Any] = json.loads(stdout.splitlines()[-1])

    assert {"n1 is booting", "n1 answers"} <= set(seen["said"])
    assert seen["states"] == ["running", "stalled", "running", "frozen", "running"]
    assert seen["answers"] == "yes"
    assert (seen["on"], seen["other_boot"]) == (False, True)
    assert seen["kept"] == {"synced": 4096, "cached": 0, "direct": 0}, "the disk's own cache is volatile"
    assert seen["cut"]["writes_lost"] >= 1
    assert seen["cut"]["flushes"] >= 1
    assert seen["after_restore"] == ["lost+found"], "each run starts with the state after provisioning"
    assert abs(seen["clock_ahead_s"]) < 1.0
    assert seen["shell"] == "n1\n"
    records = tmp_path / "run" / "nodes" / "n1"
    assert "recovery complete" in (records / "kernel.log").read_text(), "the filesystem replayed its journal"
    assert (records / "journal.log").stat().st_size > 0
    assert (records / "console.log").exists()
    assert not {"br-control", "br-data"} & set(seen["links"])
    assert seen["left"] == ["sandbox"]
    assert machine_wide() == before


@pytest.mark.root
def test_machines_that_fail_with_kvm_are_emulated_once(tmp_path: Path) -> None:
    hypervisors.emulator(tmp_path / "bin", hypervisors.WORKS)
    vagrant = 'echo "==> n1: Starting domain."; echo "no luck with $BROWNOUT_DRIVER"; exit 1'
    hypervisors.libvirt(tmp_path / "bin", vagrant)
    seen = play("not_even_emulated", str(tmp_path), module=MODULE)
    no_luck = "vagrant up ended with code 1: no luck with {}; its output is in "
    steps = [line for line in seen["said"] if "starting libvirt" in line or "KVM" in line]
    assert steps[0] == "starting libvirt; machines are virtual (KVM)"
    assert steps[1].startswith("machines did not boot with KVM, and are now emulated: " + no_luck.format("kvm"))
    assert steps[2] == "starting libvirt; machines are emulated"
    assert len(steps) == 3, "once"
    assert seen["error"].startswith(no_luck.format("qemu"))
    assert seen["time_scale"] == lab.EMULATED_TIME_SCALE
    assert seen["limits"][0].startswith("machines are emulated (machines did not boot with KVM: vagrant up ended")
    assert seen["believed"] == "machines did not boot with it", "the next lab does not lose the same time again"
    assert (seen["left"], seen["running"]) == (["sandbox"], [])
    assert not {"br-control", "br-data"} & set(seen["links"])


@pytest.mark.root
@pytest.mark.parametrize(("given", "tried"), [("kvm", "virtual (KVM)"), ("qemu", "emulated")])
def test_an_explicit_driver_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, tried: str) -> None:
    monkeypatch.setenv(driver.VARIABLE, given)
    hypervisors.emulator(tmp_path / "bin", hypervisors.IS_SILENT)
    hypervisors.libvirt(tmp_path / "bin", 'echo "no luck with $BROWNOUT_DRIVER"; exit 1')
    seen = play("not_even_emulated", str(tmp_path), module=MODULE)
    assert [line for line in seen["said"] if "starting libvirt" in line] == [f"starting libvirt; machines are {tried}"]
    assert f"no luck with {given}" in seen["error"]


@pytest.mark.root
def test_programs_of_the_machines_run_in_their_files_and_leave_the_image_unchanged(tmp_path: Path) -> None:
    seen = play("image_root", str(tmp_path), module=MODULE)
    assert (seen["text"], seen["devices"], seen["key"]) == ("classes", True, True)
    assert seen["changed"] < time.time() - 86400, "as the playbooks unpack it: archives of classes go by the jars' time"
    assert seen["files"] == ["made", "one.jar"]
    assert (seen["rootfs"], seen["left"], seen["mounted"]) == ([], ["sandbox"], False)


@pytest.mark.root
def test_an_ended_libvirt_is_reported_with_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(driver.VARIABLE, "qemu")
    hypervisors.libvirt(
        tmp_path / "bin",
        "exit 1",
        libvirtd=f"touch {tmp_path}/runs; sleep 0.5; echo 'cannot allocate memory' >&2; exit 1",
        virsh=f"""case "$*" in
  *uri) [ -e {tmp_path}/runs ] ;;
  *) sleep 2; echo "error: failed to connect" >&2; exit 1 ;;
esac""",
    )
    seen = play("not_even_emulated", str(tmp_path), module=MODULE)
    assert seen["error"].startswith("libvirt has ended unexpectedly: cannot allocate memory; see ")
    assert seen["left"] == ["sandbox"]


@pytest.mark.vm
@pytest.mark.usefixtures("machines")
def test_a_machine_boots_emulated_after_a_false_kvm_probe(tmp_path: Path) -> None:
    """The probe succeeds falsely; libvirt then cannot use KVM, and the kernel cannot either."""
    to_probe = f'case "$*" in *-bios* | *rdinit=*)\n{hypervisors.WORKS}\n;;'
    hypervisors.emulator(tmp_path / "bin", f'{to_probe} *) exec {shutil.which(kvm.EMULATOR)} "$@" ;; esac')
    if kvm.executes().works:
        pytest.skip("KVM works here")
    seen = play("emulated", str(tmp_path), module=MODULE, deadline_s=2 * PATIENCE_S)
    assert any(line.startswith("machines did not boot with KVM, and are now emulated: ") for line in seen["said"])
    assert (seen["time_scale"], seen["nodes"]) == (lab.EMULATED_TIME_SCALE, ["n1"])


@pytest.mark.vm
@pytest.mark.usefixtures("machines")
def test_a_lab_killed_during_a_boot_leaves_no_process(tmp_path: Path) -> None:
    before = machine_wide()
    sandbox = launch("wait_to_be_killed", str(tmp_path), module=MODULE)
    try:
        assert sandbox.process.stdout is not None
        for line in sandbox.process.stdout:
            if "is booting" in line:
                break
        assert _comes_to_run("guest=brownout_n1,")
        footprint = Footprint(sandbox.process.pid, "lab")
    finally:
        sandbox.kill()
        sandbox.process.communicate()
    assert footprint.wait_gone() == {}
    assert machine_wide() == before
    assert not (tmp_path / "lab").exists()


@pytest.mark.vm
@pytest.mark.usefixtures("machines")
def test_a_campaign_passes_on_an_emulated_machine(tmp_path: Path) -> None:
    """Also where KVM works, because times of emulated machines are longer."""
    before = machine_wide()
    path, store = tmp_path / "smoke.toml", tmp_path / "store"
    path.write_text(SMOKE)
    for arguments in (["run", str(path), "--store", str(store), "--engine", "in-process"], ["gate", str(store)]):
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=PROJECT_ROOT,
            env={**os.environ, driver.VARIABLE: "qemu"},
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads((store / "latest" / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["world"]) == ("pass", "vagrant")
    described = tomllib.loads((store / "latest" / "run.toml").read_text())
    assert described["time_scale"] == lab.EMULATED_TIME_SCALE
    assert {fault["kind"]: fault["status"] for fault in verdict["faults"]} == {
        "power-loss": "confirmed",
        "clock-jump": "confirmed",
    }
    assert machine_wide() == before


def _comes_to_run(argument: str) -> bool:
    """Wait for a process with this in its command line."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        if argument in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("image", ["built", "not built"])
def test_the_vagrantfile_is_valid_for_both_providers(tmp_path: Path, image: str) -> None:
    if any(requirement.name in ("vagrant", requirements.PLUGIN_PACKAGE) for requirement in requirements.missing()):
        pytest.skip("vagrant and vagrant-libvirt are not installed")
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "node.box").write_bytes(b"")
    for provider in ("libvirt", "virtualbox"):
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "VAGRANT_HOME": str(tmp_path / "home"),
            "VAGRANT_DOTFILE_PATH": str(tmp_path / "dotfile"),
            "VAGRANT_DEFAULT_PROVIDER": provider,
            "BROWNOUT_NODES": "2",
            "BROWNOUT_DRIVER": "qemu",
            "BROWNOUT_IMAGE": str(tmp_path / image),
        }
        command = ["vagrant", "validate", "--ignore-provider"]
        done = subprocess.run(
            command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_need_that_is_not_met_has_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.machine.requirement.find_program", lambda _: None)
    lacks = {requirement.name: requirement.remedy for requirement in requirements.missing()}
    assert lacks["vagrant"] == "apt-get install vagrant"
    assert lacks["virsh"] == "apt-get install libvirt-clients"
    assert all(lacks.values())


def test_a_machine_with_another_processor_is_refused_with_the_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    (lack,) = [each for each in requirements.missing() if each.name == "x86_64"]
    assert lack.detail == "this machine is aarch64"
    assert "use the namespace world, or hosts of an inventory" in lack.remedy


def test_an_unknown_driver_is_refused_before_any_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(driver.VARIABLE, "xen")
    monkeypatch.setattr(system_packages, "ensure", lambda *_: pytest.fail("packages were asked for"))
    with pytest.raises(UsageError, match="BROWNOUT_DRIVER=xen is not known: use kvm or qemu"):
        lab.VagrantLab.prepare(LabSpec(1, "ext4", tmp_path))


@pytest.mark.parametrize(("least_java", "emulated"), [(0, 4.0), (17, 12.0)])
def test_a_plan_lists_the_time_scales_with_and_without_emulation(
    tmp_path: Path, least_java: int, emulated: float
) -> None:
    software = (Software("Some System 1.0", "some/1.0", least_java=least_java),)
    assert lab.VagrantLab.time_scales(LabSpec(1, "ext4", tmp_path, software)) == (1.0, emulated)


def test_a_missing_image_is_refused_before_any_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: object) -> None:
        raise ImageError("the nodes' image has not been built; build it: ./brownout image build")

    monkeypatch.setattr(lab, "find", missing)
    monkeypatch.setattr(requirements, "missing", list)
    monkeypatch.setattr(system_packages, "ensure", lambda *_: None)
    with pytest.raises(UsageError, match=r"\./brownout image build"):
        lab.VagrantLab.prepare(LabSpec(1, "ext4", tmp_path))


def test_a_system_that_runs_on_java_needs_an_image_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = small_project(tmp_path)
    monkeypatch.setattr(lab, "PROJECT_ROOT", project)
    monkeypatch.setattr(requirements, "missing", list)
    monkeypatch.setattr(system_packages, "ensure", lambda *_: None)
    pretend_built(project)

    def prepare(**needs: Any) -> None:
        lab.VagrantLab.prepare(LabSpec(1, "ext4", tmp_path, (Software("Some System 1.0", "some/1.0", **needs),)))

    prepare()
    remedy = r"Some System 1\.0 needs Java on its machines: .* build it: \S*brownout image build --with java$"
    with pytest.raises(UsageError, match=remedy):
        prepare(least_java=17)
    with pytest.raises(UsageError, match=r"needs Java 99, and images of virtual machines have Java 17; test it in"):
        prepare(least_java=99)
    with pytest.raises(UsageError, match=r"needs etcd \(package etcd-server\), which the image .* does not have"):
        prepare(programs={"etcd": "etcd-server"})
    image = pretend_built(project, ("java",))
    prepare(least_java=17)
    (image.rootfs / "usr/bin").mkdir()
    (image.rootfs / "usr/bin/etcd").touch()
    prepare(least_java=17, programs={"etcd": "etcd-server"})


def vagrant_saying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> VagrantUp:
    """A `vagrant up` of n1 and n2 whose program is this script; n2's machine ends as soon as it was seen."""
    program = tmp_path / "vagrant"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    looks = {"n2": 0}

    def alive(name: str) -> bool:
        looks[name] = looks.get(name, 0) + 1
        return name == "n1" or looks[name] == 1

    return VagrantUp(["n1", "n2"], {}, tmp_path / "vagrant.log", alive, lambda name: f"the end of {name}'s console")


def test_only_important_lines_of_vagrant_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
for n in n1 n2; do echo "==> $n:  -- Memory: 512M"; done
echo "==> n1: Starting domain."
echo "==> n1: Machine booted and ready!"
echo "==> n2: Machine booted and ready!"
"""
    said: list[str] = []
    vagrant_saying(tmp_path, monkeypatch, script).run(1.0, said.append)
    assert said == ["n1 is booting", "n1 answers", "n2 answers"]
    assert "Memory: 512M" in (tmp_path / "vagrant.log").read_text()


def test_a_machine_that_ends_while_it_boots_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up = vagrant_saying(tmp_path, monkeypatch, 'echo "==> n2: Starting domain."; sleep 60')
    with pytest.raises(WorldError, match="n2: the virtual machine ended while it booted; the end of n2's console"):
        up.run(1.0, lambda _: None)


def test_a_machine_that_does_not_boot_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up = vagrant_saying(tmp_path, monkeypatch, 'echo "==> n1: Machine booted and ready!"; sleep 60')
    with pytest.raises(WorldError, match=r"n2: the virtual machine has not booted within [\d.]+ s; .*vagrant\.log"):
        up.run(0.01, lambda _: None)


def test_vagrants_own_complaint_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up = vagrant_saying(tmp_path, monkeypatch, 'echo "==> n1: Creating domain"; echo "No such network." >&2; exit 1')
    with pytest.raises(WorldError, match=r"vagrant up ended with code 1: No such network\..*vagrant\.log"):
        up.run(1.0, lambda _: None)


def test_the_message_of_a_vagrant_exception_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = r"""
echo "/usr/lib/ruby/a.rb:7:in \`create': Network not found (Libvirt::Error)"
printf "\tfrom /usr/lib/ruby/b.rb:7:in \`action'\n"
exit 1
"""
    up = vagrant_saying(tmp_path, monkeypatch, script)
    with pytest.raises(WorldError, match=r"code 1: Network not found \(Libvirt::Error\); its output"):
        up.run(1.0, lambda _: None)
