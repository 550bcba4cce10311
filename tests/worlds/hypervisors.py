"""Stand-ins for QEMU with KVM: one that works, one that prints a false success, one that fails."""

from pathlib import Path

from orchestrator.worlds.vagrant import kvm

_ROM = "*-bios*) exit 33 ;;"  # it executes the instructions that the probe gives it
WORKS = f"""case "$*" in
  {_ROM}
  *-kernel*) echo "[    0.0] Linux version 6.1"; echo brownout-42 ;;
esac"""
HANGS = f"""case "$*" in
  {_ROM}
  *-kernel*) echo "Probing EDD (edd=off to disable)... ok"; exec sleep 60 ;;
esac"""
IS_SILENT = f"""case "$*" in
  {_ROM}
  *-kernel*) exec sleep 60 ;;
esac"""
RESTARTS = f"""case "$*" in
  {_ROM}
  *-kernel*) echo "KVM: entry failed, hardware error 0x80000021" >&2; exit 1 ;;
esac"""


def emulator(directory: Path, script: str) -> Path:
    """A QEMU with this behaviour, for a PATH that starts with the directory; each call is a line in `calls` beside
    it."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / kvm.EMULATOR
    program.write_text(f'#!/bin/sh\necho "$@" >> {directory}/calls\n{script}\n')
    program.chmod(0o755)
    return program


# libvirt and Vagrant as far as a lab asks them before its machines answer: `vagrant up` is what a test says.
_LIBVIRTD = "exec sleep 600"
_VIRSH = """case "$*" in
  *net-start*) for last; do :; done; exec ip link add "br-${last#brownout-}" type bridge ;;
esac"""


def libvirt(directory: Path, vagrant: str, *, libvirtd: str = _LIBVIRTD, virsh: str = _VIRSH) -> None:
    """libvirt's programs and Vagrant, for a PATH that starts with the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, script in {"libvirtd": libvirtd, "virsh": virsh, "vagrant": vagrant}.items():
        program = directory / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
