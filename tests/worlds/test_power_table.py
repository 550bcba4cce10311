"""The simulated disk and a real one leave the same after a power cut, row by row of the table."""

import random
from pathlib import Path

import pytest

from simulator.disk import FileSystem, SimulatedDisk, Tear
from simulator.loop import new_loop
from tests.simulator.power_table import MIDDLE, PAGE, ROWS, SYNCED, TAIL, contents, synced_and_tail
from tests.worlds.support import play

MODULE = "tests.worlds.power_scenarios"


@pytest.mark.root
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_simulation_and_kernel_agree_on_every_row(filesystem: str, tmp_path: Path) -> None:
    real = play("table", filesystem, str(tmp_path), module=MODULE)
    for row, left in zip(ROWS, real, strict=True):
        loop = new_loop()
        disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem(filesystem))
        held = loop.run_until_complete(row.play(disk))
        disk.power_loss(random.Random(0), commit=False)
        del held
        simulated = {name: content.hex() for name, content in contents(disk).items()}
        assert simulated == left, f"{filesystem}: {row}"
        assert left == {name: content.hex() for name, content in getattr(row, filesystem).items()}, str(row)


@pytest.mark.root
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_pages_in_the_middle_leave_a_hole_of_zeros_in_both(filesystem: str, tmp_path: Path) -> None:
    real = bytes.fromhex(play("middle", filesystem, str(tmp_path), module=MODULE)["old"])
    assert len(real) >= MIDDLE.stop * PAGE, "the kernel wrote the requested pages, in whole folios"
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem(filesystem))
    loop.run_until_complete(synced_and_tail(disk))
    disk.write_range("old", MIDDLE.start * PAGE, len(real))
    disk.power_loss(random.Random(0), commit=True, tear=Tear.LOST)
    simulated = contents(disk)["old"]
    assert simulated == real
    hole = bytes((MIDDLE.start - 1) * PAGE)
    assert simulated == SYNCED + hole + TAIL[: len(real) - MIDDLE.start * PAGE]
