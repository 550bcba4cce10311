"""The decision for KVM: by a boot, kept until the host boots again, unless the user has set it."""

import os
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.worlds.vagrant import driver, kvm, requirements
from orchestrator.worlds.vagrant.driver import Driver
from tests.worlds import hypervisors


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an image; QEMU is what a test puts into `bin` beside it."""
    directory = tmp_path / "image"
    directory.mkdir()
    for name in ("vmlinuz", "initrd"):
        (directory / name).write_text(name)
    (tmp_path / "boot_id").write_text("one\n")
    monkeypatch.setattr(kvm, "BOOT_ID", tmp_path / "boot_id")
    monkeypatch.setattr(kvm, "BOOT_S", 0.5)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv(driver.VARIABLE, raising=False)
    return directory


def calls(image: Path) -> int:
    log = image.with_name("bin") / "calls"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_kvm_that_boots_the_kernel_works(image: Path) -> None:
    hypervisors.emulator(image.with_name("bin"), hypervisors.WORKS)
    answer = kvm.asked(image)
    assert answer.works
    assert answer.detail.startswith("works: the nodes' kernel booted in ")
    tried = (image.with_name("bin") / "calls").read_text().splitlines()[-1]
    assert f"-kernel {image}/vmlinuz -initrd {image}/initrd" in tried
    assert "-accel kvm -cpu host" in tried, "on the processor that nodes are given"
    assert "brownout-42" not in tried, "the kernel says its command line"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            hypervisors.HANGS,
            "the nodes' kernel does not boot within 0.5 s; the last line of its console: Probing EDD (edd=off to "
            "disable)... ok",
        ),
        (hypervisors.IS_SILENT, "the nodes' kernel does not boot within 0.5 s; its console printed nothing"),
        (hypervisors.RESTARTS, "KVM: entry failed, hardware error 0x80000021; its console printed nothing"),
        (
            'echo "qemu-system-x86_64: warning: host doesn\'t support requested feature: pni" >&2; exit 1',
            "warning: host doesn't support requested feature: pni",
        ),
        ("echo 'qemu-system-x86_64: failed to set MSR' >&2; exit 134", "failed to set MSR"),
        ("exit 3", "qemu-system-x86_64 ended with code 3"),
    ],
)
def test_a_kvm_that_does_not_execute_is_not_used(image: Path, script: str, reason: str) -> None:
    hypervisors.emulator(image.with_name("bin"), script)
    assert kvm.asked(image) == kvm.Answer(False, reason)


def test_a_machine_that_does_not_execute_is_reported(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "EXECUTE_S", 0.2)
    hypervisors.emulator(image.with_name("bin"), "exec sleep 60")
    assert kvm.asked(image) == kvm.Answer(False, "a virtual machine starts but executes nothing")


def test_no_emulator_is_an_answer(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(image / "nothing"))
    assert kvm.asked(image) == kvm.Answer(False, "qemu-system-x86_64 is not installed")


def test_without_an_image_the_first_instructions_count(image: Path) -> None:
    hypervisors.emulator(image.with_name("bin"), hypervisors.HANGS)
    assert kvm.asked(None) == kvm.Answer(True, "works, but no image was found to boot")


def test_an_answer_holds_for_this_kernel_this_emulator_and_this_boot_of_the_host(image: Path) -> None:
    program = hypervisors.emulator(image.with_name("bin"), hypervisors.HANGS)
    for _ in range(2):
        assert not kvm.asked(image).works
    once = calls(image)
    assert once == 2, "the ROM and the kernel, for the first question"
    image.with_name("boot_id").write_text("another\n")
    assert (kvm.asked(image).works, calls(image)) == (False, 2 * once)
    (image / "vmlinuz").write_text("another kernel")
    assert (kvm.asked(image).works, calls(image)) == (False, 3 * once)
    os.utime(program, ns=(1, 1))
    assert (kvm.asked(image).works, calls(image)) == (False, 4 * once)
    assert (kvm.asked(image, again=True).works, calls(image)) == (False, 5 * once)
    (image / "kvm.json").write_text("{")
    assert (kvm.asked(image).works, calls(image)) == (False, 6 * once), "what cannot be read was never said"


def test_a_kvm_that_failed_later_is_not_used_again(image: Path) -> None:
    hypervisors.emulator(image.with_name("bin"), hypervisors.WORKS)
    assert kvm.asked(image).works
    kvm.distrust(image, "machines did not come up with it")
    assert kvm.asked(image) == kvm.Answer(False, "machines did not come up with it")
    assert kvm.asked(image, again=True).works, "the doctor looks again"


def test_the_users_driver_runs_the_machines(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hypervisors.emulator(image.with_name("bin"), hypervisors.WORKS)
    monkeypatch.setenv(driver.VARIABLE, "qemu")
    assert driver.choose(image) == Driver("qemu", "BROWNOUT_DRIVER=qemu", is_asked=True)
    monkeypatch.setenv(driver.VARIABLE, "kvm")
    assert driver.choose(image) == Driver("kvm", "BROWNOUT_DRIVER=kvm", is_asked=True)
    assert calls(image) == 0, "a set driver needs no test boot"
    monkeypatch.setenv(driver.VARIABLE, "")
    assert driver.choose(image).name == "kvm"
    monkeypatch.setenv(driver.VARIABLE, "xen")
    with pytest.raises(UsageError, match="BROWNOUT_DRIVER=xen is not known: use kvm or qemu"):
        driver.choose(image)


def test_the_doctor_reports_acceleration_and_its_reason(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hypervisors.emulator(image.with_name("bin"), hypervisors.WORKS)
    said = requirements.acceleration(image)
    assert said.met
    assert said.detail.startswith("works: the nodes' kernel booted in")
    hypervisors.emulator(image.with_name("bin"), hypervisors.IS_SILENT)
    said = requirements.acceleration(image)
    assert not said.met
    assert said.detail.endswith("its console printed nothing: machines are emulated")
    monkeypatch.setenv(driver.VARIABLE, "qemu")
    assert requirements.acceleration(image).detail == "BROWNOUT_DRIVER=qemu: machines are emulated"
