"""CPU time and peak memory of the replica check: python -m benchmarks.replica_ranges [MEGABYTES] [--workers N]"""

import argparse
import resource
import struct
import tempfile
from pathlib import Path

from analysis.core.replica_evidence import Circumstances
from analysis.engines.processor_time import own_cpu_s
from analysis.engines.replica import DATA, check_replicas, tasks_of
from analysis.engines.task_map import WorkerProcesses, in_sequence
from benchmarks.replica_checker import NODES, segment

KEY = ("log", 0)
RECORDS = 1 << 16
"""Records of a segment file, 10 MB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", nargs="?", type=int, default=200, help="of each of three replicas")
    parser.add_argument("--workers", type=int, default=0, help="worker processes; 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write_replicas(Path(scratch), options.megabytes)
        before = own_cpu_s()
        tasks = tasks_of(Path(scratch), {}, {KEY: NODES}, Circumstances(quiet=True))
        spread = WorkerProcesses(options.workers) if options.workers else in_sequence
        report = check_replicas(tasks, spread)
        assert report.ok
        peaks = [resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        print(
            f"{report.records} records of {len(NODES)} x {options.megabytes} MB: {own_cpu_s() - before:.1f} s of CPU, "
            f"peak {peaks[0]} MB here and {peaks[1]} MB in a worker"
        )


def write_replicas(run: Path, megabytes: int) -> None:
    """Equal replicas of one partition, in segment files of RECORDS records."""
    first = segment(RECORDS, 16)
    for number in range(max(megabytes * 1_000_000 // len(first), 1)):
        content = shifted(first, number * RECORDS)
        for node in NODES:
            directory = run / "nodes" / node / DATA / f"{KEY[0]}-{KEY[1]}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{number * RECORDS:020d}.log").write_bytes(content)
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n", encoding="utf-8")


def shifted(data: bytes, by: int) -> bytes:
    """The batches at offsets that are higher by `by`; no checksum covers the first offset of a batch."""
    out, at = bytearray(data), 0
    while at < len(out):
        base, size = struct.unpack_from(">qi", out, at)
        struct.pack_into(">q", out, at, base + by)
        at += 12 + size
    return bytes(out)


if __name__ == "__main__":
    main()
