"""The processor time of an analysis includes the processes that it started."""

import os
import subprocess
import sys

from analysis.engines.processor_time import Meter, cpu_of_tree_s, tree_of
from analysis.engines.task_map import in_sequence

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
STARTS_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}]); print(flush=True); input()"


def test_ended_children_count() -> None:
    meter = Meter()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert meter.cpu_s >= 0.3
    assert meter.wall_s > 0


def test_a_living_process_counts_with_its_ended_children() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert cpu_of_tree_s(process.pid) >= 0.25, "counted in hundredths of a second"
        assert process.pid in tree_of(os.getpid())
        process.communicate(b"\n")
    assert cpu_of_tree_s(process.pid) == 0, "it has ended"


def test_tasks_count_in_every_map() -> None:
    meter = Meter()
    spread = meter.counted(in_sequence)
    assert (spread(str, [1, 2]), spread(str, []), spread(int, ["3"], [1])) == (["1", "2"], [], [3])
    assert meter.tasks == 3
