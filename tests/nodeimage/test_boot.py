"""The image that was built boots: with plain QEMU, without any network but the machine's own loopback."""

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodeimage
from nodeimage import recipe
from tests.nodeimage.support import ROOT

pytestmark = pytest.mark.vm

# An emulated machine of one CPU takes 6 s on an idle machine of ours.
BOUND_S = 150.0
COMMAND_LINE = (
    f"root=LABEL={recipe.DISK_LABEL} rw console=ttyS0 net.ifnames=0 mitigations=off systemd.show_status=1 "
    "systemd.log_color=0 systemd.hostname=n7"
)


@pytest.fixture(scope="module")
def image() -> nodeimage.Image:
    try:
        return nodeimage.find(ROOT)
    except nodeimage.ImageError as error:
        pytest.skip(str(error))


class Machine:
    """A virtual machine and what it says on its console."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.lines: list[str] = []
        self._port = port
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def console(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while text not in self.console:
            assert self._process.poll() is None, f"QEMU ended:\n{self.console[-2000:]}"
            assert time.monotonic() < deadline, f"no {text!r} on the console:\n{self.console[-2000:]}"
            time.sleep(0.05)

    def banner(self) -> str:
        """What sshd says first."""
        deadline = time.monotonic() + BOUND_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 2) as channel:
                channel.settimeout(5)
                if said := channel.recv(100):
                    return said.decode().strip()
            assert time.monotonic() < deadline, self.console[-2000:]
            time.sleep(0.1)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())


@contextlib.contextmanager
def booted(image: nodeimage.Image, scratch: Path, command_line: str) -> Iterator[Machine]:
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        pytest.skip("qemu-system-x86_64 is not installed: ./brownout install-packages qemu-system-x86")
    root, data = scratch / "root.qcow2", scratch / "data.raw"
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(image.disk), str(root)]
    subprocess.run(create, check=True)
    with open(data, "wb") as file:
        file.truncate(64 << 20)
    with socket.socket() as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    command = [qemu, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-m", "512"]
    # Emulated everywhere: a /dev/kvm may be there and not work.
    command += ["-accel", "tcg", "-cpu", "Nehalem"]
    command += ["-serial", "stdio", "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", command_line]
    # The data disk first: the root disk must be found by its label.
    for number, (path, kind) in enumerate(((data, "raw"), (root, "qcow2"))):
        command += ["-drive", f"file={path},format={kind},if=none,id=d{number}"]
        command += ["-device", f"virtio-blk-pci,drive=d{number},serial=disk{number}"]
    command += ["-netdev", f"user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
    command += ["-device", "virtio-net-pci,netdev=n0,romfile="]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            yield Machine(process, port)
        finally:
            process.kill()


def test_the_image_boots_to_sshd_from_the_second_disk(image: nodeimage.Image, tmp_path: Path) -> None:
    with booted(image, tmp_path, COMMAND_LINE) as machine:
        machine.wait_for("Started ssh.service")
        assert machine.banner().startswith("SSH-2.0-OpenSSH")
        assert "Hostname set to <n7>" in machine.console
        assert "EXT4-fs (vdb): mounted filesystem" in machine.console, "the root disk is the second one here"
        assert "[FAILED]" not in machine.console
        assert "chrony" not in machine.console, "who corrects the clock is the playbook's decision"


def test_a_machine_without_its_root_disk_reports_it_and_stops(image: nodeimage.Image, tmp_path: Path) -> None:
    with booted(image, tmp_path, COMMAND_LINE.replace(recipe.DISK_LABEL, "another")) as machine:
        machine.wait_for("no root filesystem LABEL=another on any disk")
