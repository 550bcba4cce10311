"""Whether virtual machines can use the processor itself (KVM) here, found out by running a few instructions in one.

/dev/kvm may be there, and even make machines, where no guest ever executes an instruction, or where the processor that
guests see lacks what every real one has had since 2008: inside other virtual machines, for example. Standard library
only; as a program, for the Vagrantfile, the exit code is 0 where KVM works.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

EMULATOR = "qemu-system-x86_64"
PATIENCE_S = 3.0
"""A machine that works needs 50 ms."""

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


def works(accelerator: str = "kvm") -> tuple[bool, str]:
    """Whether a machine executes its first instructions with this accelerator of QEMU's, and what was seen.

    Raises nothing: no emulator is an answer too."""
    rom = bytearray(_ROM_BYTES)
    rom[-16 : len(_FIRST_INSTRUCTIONS) - 16] = _FIRST_INSTRUCTIONS
    with tempfile.NamedTemporaryFile(suffix=".rom") as file:
        file.write(rom)
        file.flush()
        try:
            done = subprocess.run(
                [
                    *(EMULATOR, "-accel", accelerator, "-cpu", _LEAST_PROCESSOR if accelerator == "kvm" else "max"),
                    *("-M", "q35", "-m", "16", "-nodefaults", "-display", "none", "-bios", file.name),
                    *("-device", f"isa-debug-exit,iobase={_EXIT_PORT:#x},iosize=4"),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except FileNotFoundError:
            return False, f"{EMULATOR} is not installed"
        except subprocess.TimeoutExpired:
            return False, "a virtual machine starts but executes nothing"
    if done.returncode == _EXIT_CODE:
        return True, "works"
    said = done.stderr.strip().splitlines()
    return False, said[0].removeprefix(f"{EMULATOR}: ") if said else f"{EMULATOR} ended with code {done.returncode}"


if __name__ == "__main__":
    sys.exit(0 if works()[0] else 1)
