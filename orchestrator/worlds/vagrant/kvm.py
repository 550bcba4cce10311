"""Determines whether virtual machines can use the processor itself (KVM), by booting the nodes' kernel.

/dev/kvm may exist, and even execute a few instructions, on hosts where the kernel of the nodes' image hangs at its
start, for example inside other virtual machines. So KVM counts as working once that kernel has started its first
program, from the image's own initrd, and the program has printed a word. The answer is cached beside the image, for
this boot of the host, this kernel and this emulator. Standard library only; as a program, for the Vagrantfile, `kvm.py
[DIRECTORY OF AN IMAGE]` exits with 0 if KVM works.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from history.regular_files import sha256_of
from installation.programs import run_program

EMULATOR = "qemu-system-x86_64"
EXECUTE_S = 3.0
"""A working machine executes its first instructions within 50 ms."""
BOOT_S = 5.0
"""A working machine has started its first program within a second."""

# QEMU refuses to start on a processor with fewer features. `vme` is missing in some real ones.
_LEAST_PROCESSOR = "Nehalem,vme=off,enforce"
_EXIT_PORT = 0xF4
_SAID = 0x10
# The first executed instructions are 16 bytes below the end of the ROM:
# mov dx, 0xf4; mov al, 0x10; out dx, al; hlt; jmp to the hlt
_FIRST_INSTRUCTIONS = bytes((0xBA, _EXIT_PORT, 0x00, 0xB0, _SAID, 0xEE, 0xF4, 0xEB, 0xFD))
_ROM_BYTES = 1 << 16
# The exit code of QEMU's debug device when the guest writes to its port.
_EXIT_CODE = _SAID << 1 | 1
# The kernel prints its command line on the console, so the expected output must not be in it.
_WORD = "brownout-42"
# After the dashes: the arguments of the first program. Its /dev/console is in the initrd.
_COMMAND_LINE = (
    "console=ttyS0 loglevel=6 panic=-1 rdinit=/bin/busybox -- "
    'sh -c "echo brownout-$((6 * 7)); exec /bin/busybox poweroff -f"'
)
_KEPT = "kvm.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Answer:
    """Whether KVM works, and the observation."""

    works: bool
    detail: str


def asked(image: Path | None, *, again: bool = False) -> Answer:
    """Whether the image in this directory boots with KVM: from the cache of this boot, else by trying; with `again`,
    always by trying. Without an image: whether machines execute anything. Never raises: a missing emulator is an
    answer, too."""
    if image is None or not (image / "vmlinuz").exists():
        answer = executes()
        return Answer(True, f"{answer.detail}, but no image was found to boot") if answer.works else answer
    key = _key(image)
    if not again and (stored := _read(image, key)) is not None:
        return stored
    answer = boots(image)
    _write(image, key, answer)
    return answer


def distrust(image: Path, reason: str) -> None:
    """Make `asked` return no until the host boots or a new trial is requested: machines did not boot with KVM."""
    _write(image, _key(image), Answer(False, reason))


def executes(accelerator: str = "kvm") -> Answer:
    """Whether a machine executes its first instructions with this accelerator of QEMU."""
    rom = bytearray(_ROM_BYTES)
    rom[-16 : len(_FIRST_INSTRUCTIONS) - 16] = _FIRST_INSTRUCTIONS
    processor = _LEAST_PROCESSOR if accelerator == "kvm" else "max"
    with tempfile.NamedTemporaryFile(suffix=".rom") as file:
        file.write(rom)
        file.flush()
        exit_port = ("-device", f"isa-debug-exit,iobase={_EXIT_PORT:#x},iosize=4")
        try:
            done = _emulate(accelerator, processor, EXECUTE_S, "-m", "16", "-bios", file.name, *exit_port)
        except FileNotFoundError:
            return Answer(False, f"{EMULATOR} is not installed")
        except OSError as error:  # for example another user's
            return Answer(False, f"{EMULATOR} cannot be run: {error.strerror}")
        except subprocess.TimeoutExpired:
            return Answer(False, "a virtual machine starts but executes nothing")
    return Answer(True, "works") if done.returncode == _EXIT_CODE else _complaint(done)


def boots(image: Path, accelerator: str = "kvm") -> Answer:
    """Whether the kernel of the image starts a program with this accelerator of QEMU, on the nodes' processor type."""
    first = executes(accelerator)
    if not first.works:
        return first
    processor = "host" if accelerator == "kvm" else "Nehalem"
    files = ("-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"))
    console = ("-serial", "stdio", "-no-reboot")
    began = time.monotonic()
    try:
        done = _emulate(accelerator, processor, BOOT_S, "-m", "512", *console, *files, "-append", _COMMAND_LINE)
    except FileNotFoundError:
        return Answer(False, f"{EMULATOR} is not installed")
    except OSError as error:
        return Answer(False, f"{EMULATOR} cannot be run: {error.strerror}")
    except subprocess.TimeoutExpired as error:
        console_text = (error.output or b"").decode(errors="replace")
        if _WORD not in console_text:
            return Answer(False, f"the nodes' kernel does not boot within {BOOT_S:g} s; {_last_line(console_text)}")
    else:
        if _WORD not in done.stdout:
            return _complaint(done, _last_line(done.stdout))
    return Answer(True, f"works: the nodes' kernel booted in {time.monotonic() - began:.1f} s")


def _emulate(accelerator: str, processor: str, patience_s: float, *options: str) -> subprocess.CompletedProcess[str]:
    """Raises `FileNotFoundError`, `subprocess.TimeoutExpired`."""
    return run_program(
        [
            *(EMULATOR, "-accel", accelerator, "-cpu", processor, "-M", "q35", "-nodefaults", "-display", "none"),
            *options,
        ],
        timeout=patience_s,
    )


def _complaint(done: subprocess.CompletedProcess[str], besides: str = "") -> Answer:
    lines = done.stderr.strip().splitlines()
    problem = lines[0].removeprefix(f"{EMULATOR}: ") if lines else f"{EMULATOR} ended with code {done.returncode}"
    return Answer(False, f"{problem}; {besides}" if besides else problem)


def _last_line(console: str) -> str:
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    return f"the last line of its console: {lines[-1]}" if lines else "its console printed nothing"


def _key(image: Path) -> dict[str, str]:
    """The conditions under which a cached answer is valid."""
    program = shutil.which(EMULATOR)
    with contextlib.suppress(OSError):
        return {
            "boot": BOOT_ID.read_text(encoding="ascii").strip(),
            "kernel": sha256_of(image / "vmlinuz"),
            "emulator": f"{program} {os.stat(program).st_mtime_ns if program else ''}",
        }
    return {}


def _read(image: Path, key: dict[str, str]) -> Answer | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads((image / _KEPT).read_text(encoding="utf-8"))
        if key and stored["for"] == key:
            return Answer(bool(stored["works"]), str(stored["detail"]))
    return None


def _write(image: Path, key: dict[str, str], answer: Answer) -> None:
    """Cache an answer; errors are ignored, since the trial can be repeated."""
    draft = image / f".{_KEPT}-{os.getpid()}"
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps({"for": key, **asdict(answer)}), encoding="utf-8")
        draft.replace(image / _KEPT)


if __name__ == "__main__":
    sys.exit(0 if asked(Path(sys.argv[1]) if len(sys.argv) > 1 else None).works else 1)
