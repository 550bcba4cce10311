"""Tiered storage: how fast an empty replica joins (KIP-1023), what uploads cost producers, how fast remote records are.

    python -m benchmarks.tiered_storage [--mebibytes 2048] [--rounds 3] [--seconds S] [--only KIND] [--json]

Three brokers share a directory as object store.

join: A partition of the given size has 30 equal parts on brokers 1 and 2. 27 parts are in the store (90 %), and the
first one has no local copy any more. Broker 3 becomes a replica, and is removed again, in turns without and with
`follower.fetch.last.tiered.offset.enable`. The time is that from the request until the replica is in the ISR, the bytes
are those of its log then.
read: A client reads parts 2 to 27 from the leader's files; then their local copies are removed, and it reads the same
offsets from the store. The cache of remote chunks is smaller than these parts, so no round finds a chunk of the last
one.
produce: A client produces at full speed with acks=all to a new cluster, in turns to a topic without and with remote
storage. `uploaded` is the share of the produced bytes that is in the store at the end of the load.

The figures are medians of the rounds. Progress goes to stderr. The brokers are killed and all files are removed at the
end, also after an error, an interrupt or SIGTERM, and after `--limit` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.load_client import LoadClient, produce_frame, wait_for_topic
from benchmarks.tiered_cluster import TieredTopic, flush, log_bytes, tiered_cluster
from broker.protocol.messages.list_offsets import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP
from broker.protocol.records import Record, build_batch
from broker.topic_settings import FROM_LAST_TIERED

KINDS = ("join", "read", "produce")
TOPIC = "tiered"
RECORD_BYTES, RECORDS = 1_000, 250
PARTS, TIERED_PARTS = 30, 27
LARGEST_SEGMENT = 1 << 30
SETTINGS_FOLLOW_S = 1.0
"""Longer than the brokers take to follow a changed setting."""
LOAD_SEGMENT_BYTES = 16 << 20
LOAD_RECORDS = 1_000
WARM_S = 1.0
LEAST_MEBIBYTES = 32
LARGEST_CACHE, LEAST_CACHE = 64 << 20, 12 << 20
EXIT_USAGE, EXIT_FAILED = 64, 1
GOALS = {
    "join: bytes, on / off": ("<=", 0.15),
    "join: time, on / off": ("<=", 0.15),
    "read: rate, remote / local": (">=", 0.60),
    "produce: rate, on / off": (">=", 0.90),
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """One measurement of a kind. `mode`: off or on, local or remote."""

    kind: str
    mode: str
    bytes: int
    seconds: float
    uploaded: float = 0.0

    @property
    def rate(self) -> float:
        """In MB/s."""
        return self.bytes / self.seconds / 1e6


@dataclass(frozen=True)
class Layout:
    """How the partition's batches are distributed over its parts."""

    batch_bytes: int
    batches_per_part: int

    @classmethod
    def of(cls, mebibytes: int) -> Layout:
        batch = len(build_batch([Record(0, 1_700_000_000_000, None, bytes(RECORD_BYTES))] * RECORDS))
        return cls(batch, max(1, round((mebibytes << 20) / PARTS / batch)))

    @property
    def part_bytes(self) -> int:
        return self.batch_bytes * self.batches_per_part

    def offset(self, part: int) -> int:
        """The first offset of a part; parts count from 0."""
        return part * self.batches_per_part * RECORDS

    @property
    def cache_bytes(self) -> int:
        """Smaller than what is read."""
        return min(LARGEST_CACHE, max(LEAST_CACHE, (TIERED_PARTS - 1) * self.part_bytes * 3 // 4))


@dataclass
class Benchmark:
    """`patience_s`: the longest wait for one state of the cluster."""

    directory: Path
    layout: Layout
    rounds: int
    seconds: float
    patience_s: float
    say: Say
    results: list[Round] = field(default_factory=list)

    async def run(self, kinds: list[str]) -> None:
        if "join" in kinds or "read" in kinds:
            await self._with_tiered_partition(kinds)
        if "produce" in kinds:
            for number in range(self.rounds):
                for mode in ("off", "on"):
                    await self._produce(number, mode)

    def _note(self, result: Round) -> None:
        self.results.append(result)
        more = f", {result.uploaded:.0%} uploaded" if result.kind == "produce" and result.mode == "on" else ""
        self.say(
            f"{result.kind} {result.mode}: {result.bytes / 1e6:,.1f} MB in {result.seconds:.3f} s, "
            f"{result.rate:,.0f} MB/s{more}"
        )

    def _place(self, name: str) -> Path:
        place = self.directory / name
        place.mkdir()
        return place

    # -- join and read ------------------------------------------------------------------------------------------

    async def _with_tiered_partition(self, kinds: list[str]) -> None:
        place = self._place("partition")
        with tiered_cluster(place, remote_log_reader_cache_bytes=self.layout.cache_bytes) as nodes:
            topic = TieredTopic(nodes, TOPIC, self.patience_s)
            await self._fill(topic)
            if "join" in kinds:
                for _ in range(self.rounds):
                    for mode in ("off", "on"):
                        await self._join(topic, mode)
            if "read" in kinds:
                await self._read(topic)
        shutil.rmtree(place)

    async def _fill(self, topic: TieredTopic) -> None:
        """27 parts become one closed segment each, which the leader uploads; three parts are the last segment."""
        layout, part = self.layout, self.layout.batches_per_part
        self.say(f"filling a partition of {PARTS * layout.part_bytes / 1e6:,.0f} MB on two brokers")
        await topic.create(
            [1, 2],
            {
                "remote.storage.enable": "true",
                "segment.bytes": str(layout.part_bytes),
                "local.retention.bytes": str((PARTS - 1) * layout.part_bytes - 1),
            },
        )
        await topic.fill(TIERED_PARTS * part + 1, RECORD_BYTES, RECORDS)  # one more: it closes the last of them
        await topic.alter("segment.bytes", str(LARGEST_SEGMENT))
        await asyncio.sleep(SETTINGS_FOLLOW_S)
        await topic.fill((PARTS - TIERED_PARTS) * part - 1, RECORD_BYTES, RECORDS)
        self.say("waiting for the uploads")
        tiered, second = layout.offset(TIERED_PARTS), layout.offset(1)
        await topic.offset_reached(EARLIEST_PENDING_UPLOAD_TIMESTAMP, tiered, "27 parts are in the store")
        await topic.offset_reached(EARLIEST_LOCAL_TIMESTAMP, second, "only the first part has no local copy")

    async def _join(self, topic: TieredTopic, mode: str) -> None:
        """Broker 3 becomes a replica, is measured, and is removed again."""
        await topic.alter_brokers(FROM_LAST_TIERED, "true" if mode == "on" else "false")
        await asyncio.sleep(SETTINGS_FOLLOW_S)
        flush(topic.nodes)
        began = time.perf_counter()
        await topic.reassign([1, 2, 3])
        await topic.in_sync([1, 2, 3])
        elapsed = time.perf_counter() - began
        directory = topic.directory(3)
        moved, start = log_bytes(directory), min(int(path.stem) for path in directory.glob("*.log"))
        expected = self.layout.offset(TIERED_PARTS if mode == "on" else 1)
        assert start == expected, f"the new replica starts at {start}, not at {expected}"
        self._note(Round("join", mode, moved, elapsed))
        await topic.reassign([1, 2])
        await topic.in_sync([1, 2])
        await topic.removed(3)

    async def _read(self, topic: TieredTopic) -> None:
        start, end = self.layout.offset(1), self.layout.offset(TIERED_PARTS)
        await self._read_rounds(topic, "local", start, end)
        self.say("removing the local copies")
        await topic.alter("local.retention.bytes", "1")
        await topic.offset_reached(EARLIEST_LOCAL_TIMESTAMP, end, "the local copies are removed")
        await self._read_rounds(topic, "remote", start, end)

    async def _read_rounds(self, topic: TieredTopic, mode: str, start: int, end: int) -> None:
        flush(topic.nodes)
        for _ in range(self.rounds):
            received, elapsed = await topic.read(start, end)
            self._note(Round("read", mode, received, elapsed))

    # -- produce ------------------------------------------------------------------------------------------------

    async def _produce(self, number: int, mode: str) -> None:
        place = self._place(f"produce-{number}-{mode}")
        with tiered_cluster(place, min_insync_replicas=2) as nodes:
            topic = TieredTopic(nodes, TOPIC, self.patience_s)
            settings = {"segment.bytes": str(LOAD_SEGMENT_BYTES)}
            if mode == "on":
                settings["remote.storage.enable"] = "true"
            await topic.create([1, 2, 3], settings)
            answered, elapsed = await self._load(topic)
            uploaded = log_bytes(place / "store") / log_bytes(topic.directory((await topic.leader()).node_id))
        self._note(Round("produce", mode, answered * RECORD_BYTES * LOAD_RECORDS, elapsed, uploaded))
        shutil.rmtree(place)

    async def _load(self, topic: TieredTopic) -> tuple[int, float]:
        """Acknowledged requests after a second of warming, and the time for them."""
        port = (await topic.leader()).port
        await wait_for_topic(port, topic.name, produce_frame(topic.name, -1, 100, 1))
        client = LoadClient(topic.name, produce_frame(topic.name, -1, RECORD_BYTES, LOAD_RECORDS), 8)
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
        try:
            await client.send_for(WARM_S)
            before, began = client.answered, time.perf_counter()
            await client.send_for(self.seconds)
            return client.answered - before, time.perf_counter() - began
        finally:
            client.close()


def figures(results: list[Round]) -> dict[str, float]:
    """The ratios of the medians, of the kinds that were measured."""

    def ratio(kind: str, over: str, under: str, of: Callable[[Round], float]) -> float | None:
        found = [[of(it) for it in results if (it.kind, it.mode) == (kind, mode)] for mode in (over, under)]
        return statistics.median(found[0]) / statistics.median(found[1]) if all(found) else None

    ratios = {
        "join: bytes, on / off": ratio("join", "on", "off", lambda it: it.bytes),
        "join: time, on / off": ratio("join", "on", "off", lambda it: it.seconds),
        "read: rate, remote / local": ratio("read", "remote", "local", lambda it: it.rate),
        "produce: rate, on / off": ratio("produce", "on", "off", lambda it: it.rate),
    }
    return {name: value for name, value in ratios.items() if value is not None}


def medians(results: list[Round]) -> list[str]:
    """One line per kind and mode."""
    lines = []
    for kind, mode in dict.fromkeys((it.kind, it.mode) for it in results):
        rounds = [it for it in results if (it.kind, it.mode) == (kind, mode)]
        moved, took = (
            statistics.median(values) for values in zip(*((it.bytes, it.seconds) for it in rounds), strict=True)
        )
        rate = statistics.median(it.rate for it in rounds)
        share = statistics.median(it.uploaded for it in rounds)
        uploaded = f" {share:6.0%} uploaded" if share else ""
        lines.append(f"{kind:8} {mode:7} {moved / 1e6:10,.1f} MB {took:8.3f} s {rate:8,.0f} MB/s{uploaded}")
    return lines


def is_met(name: str, value: float) -> bool:
    comparison, goal = GOALS[name]
    return value <= goal if comparison == "<=" else value >= goal


def report(results: list[Round], mebibytes: int, as_json: bool) -> None:
    """Print the rounds' medians and the ratios, each with its goal."""
    found = figures(results)
    if as_json:
        ratios = [
            {
                "name": name,
                "value": round(value, 4),
                "goal": " ".join(map(str, GOALS[name])),
                "met": is_met(name, value),
            }
            for name, value in found.items()
        ]
        rounds = [asdict(each) for each in results]
        json.dump({"mebibytes": mebibytes, "load": os.getloadavg()[0], "rounds": rounds, "ratios": ratios}, sys.stdout)
        print()
        return
    print("\n".join(medians(results)))
    for name, value in found.items():
        comparison, goal = GOALS[name]
        print(f"{name:27} {value:6.1%}  goal {comparison} {goal:.0%}: {'met' if is_met(name, value) else 'missed'}")


async def measured(benchmark: Benchmark, kinds: list[str], limit_s: float) -> None:
    """Run the benchmark; SIGTERM and the limit end it as an error does."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, task.cancel)
    async with asyncio.timeout(limit_s):
        await benchmark.run(kinds)


def needed_bytes(mebibytes: int, seconds: float) -> int:
    """Disk space: three replicas and the store, and at least what a fast machine produces."""
    return max(5 * (mebibytes << 20), int((seconds + WARM_S) * 2e9))


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tiered_storage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mebibytes", type=int, default=2048, help="size of the partition (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="load per produce round (default: %(default)s)")
    parser.add_argument("--only", choices=KINDS, action="append", help="measure this; may be repeated (default: all)")
    parser.add_argument("--directory", type=Path, help="where brokers and store keep data (default: a temporary one)")
    parser.add_argument("--limit", type=float, default=1200.0, metavar="S", help="give up after (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if options.mebibytes < LEAST_MEBIBYTES or options.rounds < 1 or options.seconds <= 0 or options.limit <= 0:
        _refuse(f"--mebibytes must be at least {LEAST_MEBIBYTES}, --rounds 1, --seconds and --limit above 0")
    place = options.directory or Path(tempfile.gettempdir())
    if not place.is_dir():
        _refuse(f"--directory {place}: the directory does not exist; create it")
    needed, free = needed_bytes(options.mebibytes, options.seconds), shutil.disk_usage(place).free
    if free < needed:
        _refuse(f"{place} has {free >> 20} MiB free, {needed >> 20} are needed: use --directory or less --mebibytes")
    return options


def _refuse(message: str) -> None:
    print(f"tiered_storage: {message}", file=sys.stderr)
    sys.exit(EXIT_USAGE)


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(
        prefix="brownout-bench-", dir=options.directory, ignore_cleanup_errors=True
    ) as place:
        layout = Layout.of(options.mebibytes)
        benchmark = Benchmark(Path(place), layout, options.rounds, options.seconds, options.limit, say)
        try:
            asyncio.run(measured(benchmark, options.only or list(KINDS), options.limit))
        except (TimeoutError, AssertionError, OSError, EOFError) as error:
            reason = str(error) or f"--limit of {options.limit:g} s reached"
            say(f"ended after {len(benchmark.results)} rounds: {reason}")
            return EXIT_FAILED
        except (asyncio.CancelledError, KeyboardInterrupt):
            say("interrupted")
            return EXIT_FAILED
    report(benchmark.results, options.mebibytes, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
