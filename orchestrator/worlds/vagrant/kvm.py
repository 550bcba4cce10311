"""Whether virtual machines can use the processor itself (KVM) here, found out by booting what nodes boot.

/dev/kvm may be there, and even execute a few instructions, where the kernel of the nodes' image hangs at its beginning:
inside other virtual machines, for example. So KVM is believed once that very kernel has started its first program, from
the image's own initrd, and this has said a word. The answer is kept beside the image, for this boot of the host, this
kernel and this emulator. Standard library only; as a program, for the Vagrantfile, `kvm.py [DIRECTORY OF AN IMAGE]`
exits with 0 where KVM works.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

EMULATOR = "qemu-system-x86_64"
EXECUTE_S = 3.0
"""A machine that works executes its first instructions within 50 ms."""
BOOT_S = 5.0
"""A machine that works has started its first program within a second."""

# QEMU refuses to start where the processor has less. `vme` is a feature that some real ones lack.
_LEAST_PROCESSOR = "Nehalem,vme=off,enforce"
_EXIT_PORT = 0xF4
_SAID = 0x10
# What a processor executes first lies 16 bytes below the end of the ROM:
# mov dx, 0xf4; mov al, 0x10; out dx, al; hlt; jmp to the hlt
_FIRST_INSTRUCTIONS = bytes((0xBA, _EXIT_PORT, 0x00, 0xB0, _SAID, 0xEE, 0xF4, 0xEB, 0xFD))
_ROM_BYTES = 1 << 16
# QEMU's debug device ends it with this code when the guest writes to its port.
_EXIT_CODE = _SAID << 1 | 1
# The kernel repeats its command line on the console: what the program says is not to be found in it.
_WORD = "brownout-42"
# After the dashes: what the first program is given. It has /dev/console, from the initrd.
_COMMAND_LINE = (
    "console=ttyS0 loglevel=6 panic=-1 rdinit=/bin/busybox -- "
    'sh -c "echo brownout-$((6 * 7)); exec /bin/busybox poweroff -f"'
)
_KEPT = "kvm.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Answer:
    """Whether KVM works, and what was seen."""

    works: bool
    detail: str


def asked(image: Path | None, *, anew: bool = False) -> Answer:
    """Whether the image in this directory boots with KVM, as far as that was found out since the host's boot, else by
    trying; `anew`: by trying. Without an image: whether machines execute anything. Raises nothing: no emulator is an
    answer too."""
    if image is None or not (image / "vmlinuz").exists():
        answer = executes()
        return Answer(True, f"{answer.detail}, but no image is there to be booted") if answer.works else answer
    key = _key(image)
    if not anew and (kept := _read(image, key)) is not None:
        return kept
    answer = boots(image)
    _write(image, key, answer)
    return answer


def distrust(image: Path, reason: str) -> None:
    """Have `asked` say no from now on, until the host boots or is asked anew: machines did not come up with KVM."""
    _write(image, _key(image), Answer(False, reason))


def executes(accelerator: str = "kvm") -> Answer:
    """Whether a machine executes its first instructions with this accelerator of QEMU's."""
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
        except OSError as error:  # such as one of another user
            return Answer(False, f"{EMULATOR} cannot be run: {error.strerror}")
        except subprocess.TimeoutExpired:
            return Answer(False, "a virtual machine starts but executes nothing")
    return Answer(True, "works") if done.returncode == _EXIT_CODE else _complaint(done)


def boots(image: Path, accelerator: str = "kvm") -> Answer:
    """Whether the kernel of the image starts a program with this accelerator of QEMU's, on the processor that nodes
    are given."""
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
        said = (error.output or b"").decode(errors="replace")
        if _WORD not in said:
            return Answer(False, f"the nodes' kernel does not boot within {BOOT_S:g} s; {_last_line(said)}")
    else:
        if _WORD not in done.stdout:
            return _complaint(done, _last_line(done.stdout))
    return Answer(True, f"works: the nodes' kernel booted in {time.monotonic() - began:.1f} s")


def _emulate(accelerator: str, processor: str, patience_s: float, *options: str) -> subprocess.CompletedProcess[str]:
    """Raises `FileNotFoundError`, `subprocess.TimeoutExpired`."""
    return subprocess.run(
        [
            *(EMULATOR, "-accel", accelerator, "-cpu", processor, "-M", "q35", "-nodefaults", "-display", "none"),
            *options,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=patience_s,
        check=False,
    )


def _complaint(done: subprocess.CompletedProcess[str], besides: str = "") -> Answer:
    said = done.stderr.strip().splitlines()
    words = said[0].removeprefix(f"{EMULATOR}: ") if said else f"{EMULATOR} ended with code {done.returncode}"
    return Answer(False, f"{words}; {besides}" if besides else words)


def _last_line(console: str) -> str:
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    return f"the last line of its console: {lines[-1]}" if lines else "its console said nothing"


def _key(image: Path) -> dict[str, str]:
    """What an answer holds for."""
    program = shutil.which(EMULATOR)
    with contextlib.suppress(OSError):
        return {
            "boot": BOOT_ID.read_text(encoding="ascii").strip(),
            "kernel": hashlib.sha256((image / "vmlinuz").read_bytes()).hexdigest(),
            "emulator": f"{program} {os.stat(program).st_mtime_ns if program else ''}",
        }
    return {}


def _read(image: Path, key: dict[str, str]) -> Answer | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((image / _KEPT).read_text(encoding="utf-8"))
        if key and kept["for"] == key:
            return Answer(bool(kept["works"]), str(kept["detail"]))
    return None


def _write(image: Path, key: dict[str, str], answer: Answer) -> None:
    """Where it cannot be kept, it is found out again."""
    draft = image / f".{_KEPT}-{os.getpid()}"
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps({"for": key, **asdict(answer)}), encoding="utf-8")
        draft.replace(image / _KEPT)


if __name__ == "__main__":
    sys.exit(0 if asked(Path(sys.argv[1]) if len(sys.argv) > 1 else None).works else 1)
