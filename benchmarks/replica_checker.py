"""Duration of reading and comparing replica files: python -m benchmarks.replica_checker [RECORDS] [--batch N]"""

import argparse
import struct
import tempfile
import time
from pathlib import Path

from crc32c import crc32c

from analysis.core.replica_evidence import Circumstances
from analysis.core.replicas import check_partition
from analysis.replicafiles.kafka import read_partition
from history.record.record_payload import record_bytes

RECORD_BYTES = 128
NODES = ("n1", "n2", "n3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="?", type=float, default=1e6)
    parser.add_argument("--batch", type=int, default=10, help="records per batch")
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of wall time, for a shared machine")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    records = int(options.records)
    with tempfile.TemporaryDirectory() as scratch:
        data = segment(records, options.batch)
        for node in NODES:
            directory = Path(scratch) / node / "log-0"
            directory.mkdir(parents=True)
            (directory / f"{0:020d}.log").write_bytes(data)
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n", encoding="utf-8")
        start = clock()
        logs = [read_partition(node, ("log", 0), Path(scratch) / node) for node in NODES]
        middle = clock()
        assert check_partition(logs, circumstances=Circumstances(quiet=True)).ok
        print(f"{len(NODES)} x {records} records: read {middle - start:.3f} s, compared {clock() - middle:.3f} s")


def segment(records: int, batch: int) -> bytes:
    """Batches of `batch` records; the value of each record is its offset."""
    head = b"\0\0"  # attributes, timestamp delta
    out = bytearray()
    for base in range(0, records, batch):
        body = bytearray()
        for delta in range(min(batch, records - base)):
            content = record_bytes(base + delta, RECORD_BYTES)
            record = head + varint(delta) + b"\1" + varint(RECORD_BYTES) + content + b"\0"
            body += varint(len(record)) + record
        count = min(batch, records - base)
        checked = struct.pack(">hiqqqhii", 0, count - 1, base, base, -1, -1, -1, count) + body
        out += struct.pack(">qiibI", base, len(checked) + 9, 1, 2, crc32c(checked)) + checked
    return bytes(out)


def varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


if __name__ == "__main__":
    main()
