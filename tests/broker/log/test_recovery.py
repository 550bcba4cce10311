"""The contents of a log after a stop: clean, killed, or without power, with tails torn in every way of disks."""

import random
import struct
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.protocol.records import iter_batches
from tests.broker.log.making import DIRECTORY, batch, in_loop, only_file, open_log, values, write

STORIES = in_loop
TEXT = [f"value {number}" for number in range(6)]


async def written(root: Path, *, close: bool = False) -> PartitionLog:
    """A log of one segment with six batches in two epochs."""
    log = await open_log(RealDisk(str(root)))
    await write(log, 1, *TEXT[:3])
    await write(log, 4, *TEXT[3:])
    if close:
        await log.close()
    return log


def boundaries(data: bytes) -> list[int]:
    return [*(position for position, _ in iter_batches(data)), len(data)]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_closed_log_keeps_every_record(tmp_path: Path, clean: bool) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    expected = [f"value {number}" for number in range(200)]
    await write(log, 1, *expected[:50])
    await write(log, 2, *expected[50:])
    await log.start_leader_epoch(3)
    await log.close()
    log = await open_log(RealDisk(str(tmp_path)), clean=clean)
    assert log.recovered.scanned is not clean
    assert log.recovered.reason is None
    assert values(log) == expected
    assert log.durable_end_offset == 200
    # K101-12: after an unclean stop an epoch without records is not believed.
    assert log.epochs.entries == (((1, 0), (2, 50), (3, 200)) if clean else ((1, 0), (2, 50)))
    await write(log, 4, "more")
    await log.close()
    log = await open_log(RealDisk(str(tmp_path)), clean=True)
    assert not log.recovered.scanned
    assert values(log) == [*expected, "more"]


async def test_a_torn_tail_at_every_byte_of_the_last_batch(tmp_path: Path) -> None:
    await written(tmp_path)
    path = only_file(tmp_path, ".log")
    whole = path.read_bytes()
    starts = boundaries(whole)
    for length in range(starts[-2], len(whole)):
        path.write_bytes(whole[:length])
        log = await open_log(RealDisk(str(tmp_path)))
        assert values(log) == TEXT[:5], f"cut at {length}"
        assert path.stat().st_size == starts[-2]
        assert log.recovered.lost_bytes == length - starts[-2]
        assert (log.recovered.reason is None) == (length == starts[-2])


async def test_zeros_to_the_end_from_every_byte_of_the_last_batch(tmp_path: Path) -> None:
    await written(tmp_path)
    path = only_file(tmp_path, ".log")
    whole = path.read_bytes()
    start = boundaries(whole)[-2]
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length] + bytes(len(whole) - length + 100))
        log = await open_log(RealDisk(str(tmp_path)))
        kept = 6 if whole[length:].strip(b"\0") == b"" else 5  # a batch may end in zeros of its own
        assert values(log) == TEXT[:kept], f"zeros from {length}"


@pytest.mark.parametrize("seed", range(40))
async def test_a_hole_of_zeros_ends_the_log(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, *[f"{number}" * rng.randint(1, 60) for number in range(rng.randint(2, 40))])
    expected = values(log)
    path = rng.choice(sorted((tmp_path / DIRECTORY).glob("*.log")))
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    stop = rng.randint(start + 1, len(data))
    damaged = data[:start] + bytes(stop - start) + data[stop:]
    path.write_bytes(damaged)
    intact = 0
    for position, header in iter_batches(bytes(data)):
        if data[position : position + header.size] != damaged[position : position + header.size]:
            break
        intact += 1
    log = await open_log(RealDisk(str(tmp_path)))
    if damaged == data:
        assert values(log) == expected
    else:
        assert values(log) == expected[: int(path.stem) + intact]
        assert log.recovered.reason is not None
        await write(log, 2, "after")
        assert values(log)[-1] == "after"


@pytest.mark.parametrize("seed", range(40))
async def test_damage_anywhere_costs_no_intact_batch_in_front_of_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    await written(tmp_path)
    path = only_file(tmp_path, ".log")
    data = bytearray(path.read_bytes())
    starts = boundaries(bytes(data))
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    hit = max(index for index, start in enumerate(starts) if start <= at)
    log = await open_log(RealDisk(str(tmp_path)))
    kept = values(log)
    assert kept == TEXT[: len(kept)]
    if 12 <= at - starts[hit] < 16:
        assert len(kept) >= hit, "the epoch is outside of the CRC: a larger epoch is accepted, a smaller one is not"
    else:
        assert len(kept) == hit


@pytest.mark.parametrize(
    "length", [2**31 - 1, -1, -(2**31), 0, 48, 10_000_000], ids=["huge", "minus one", "least", "zero", "short", "long"]
)
async def test_a_senseless_length_ends_the_log(tmp_path: Path, length: int) -> None:
    await written(tmp_path)
    path = only_file(tmp_path, ".log")
    data = bytearray(path.read_bytes())
    start = boundaries(bytes(data))[-2]
    struct.pack_into(">i", data, start + 8, length)
    path.write_bytes(data)
    assert values(await open_log(RealDisk(str(tmp_path)))) == TEXT[:5]


@pytest.mark.parametrize("missing", [0, 1, 2])
async def test_segments_after_a_gap_are_removed(tmp_path: Path, missing: int) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, *["v" * 50] * 60)
    await log.close()
    segments = sorted((tmp_path / DIRECTORY).glob("*.log"))
    assert len(segments) > 4
    segments[missing].unlink()
    for clean in (True, False):
        log = await open_log(RealDisk(str(tmp_path)), clean=clean)
        if missing:
            assert (log.log_start_offset, log.log_end_offset) == (0, int(segments[missing].stem))
        else:
            assert (log.log_start_offset, log.log_end_offset) == (int(segments[1].stem), 60)
            assert log.epochs.entries == ((1, log.log_start_offset),)
        await log.close()


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "flipped", "foreign", "too long"])
async def test_an_unusable_index_is_rebuilt(tmp_path: Path, damage: str) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    expected = [f"value {number}" for number in range(100)]
    await write(log, 1, *expected)
    await log.close()
    path = sorted((tmp_path / DIRECTORY).glob("*.positions"))[1]
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        flipped = bytes([data[0] ^ 255, *data[1:]])
        other = sorted((tmp_path / DIRECTORY).glob("*.positions"))[-1].read_bytes()
        path.write_bytes(
            {"empty": b"", "short": data[:-1], "flipped": flipped, "foreign": other, "too long": data + data}[damage]
        )
    log = await open_log(RealDisk(str(tmp_path)), clean=True)
    assert log.recovered.scanned
    assert values(log) == expected
    assert all(log.read(offset, 1, 100) for offset in range(100))
    await log.close()
    assert not (await open_log(RealDisk(str(tmp_path)), clean=True)).recovered.scanned


@pytest.mark.conforms("K101-12", "H27")
async def test_after_a_crash_epochs_at_or_past_the_end_are_removed(tmp_path: Path) -> None:
    await written(tmp_path)
    (tmp_path / DIRECTORY / "leader-epoch-checkpoint").write_text("0\n4\n1 0\n4 3\n5 6\n7 9\n")
    log = await open_log(RealDisk(str(tmp_path)))
    assert log.epochs.entries == ((1, 0), (4, 3)), "5 starts at the end, 7 past it"
    assert (tmp_path / DIRECTORY / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n4 3\n"


@pytest.mark.conforms("K101-12", "H8")
async def test_an_epoch_on_disk_from_before_a_truncation_is_ignored(tmp_path: Path) -> None:
    """The file states that epoch 6 starts at 2, but the records there are still those of epochs 1 and 4."""
    await written(tmp_path)
    (tmp_path / DIRECTORY / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n6 2\n")
    log = await open_log(RealDisk(str(tmp_path)))
    assert log.epochs.entries == ((1, 0), (4, 3))


@pytest.mark.conforms("H10")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"0\n2\n1 0\n", b"\0" * 14], ids=["missing", "empty", "torn", "zeros"])
async def test_a_lost_epoch_file_is_rebuilt_from_the_batches(
    tmp_path: Path, content: bytes | None, clean: bool
) -> None:
    await written(tmp_path, close=True)
    path = tmp_path / DIRECTORY / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    log = await open_log(RealDisk(str(tmp_path)), clean=clean)
    assert log.epochs.entries == ((1, 0), (4, 3))
    assert path.read_text() == "0\n2\n1 0\n4 3\n"


async def test_an_intact_batch_of_a_smaller_epoch_ends_the_log(tmp_path: Path) -> None:
    await written(tmp_path)
    path = only_file(tmp_path, ".log")
    with path.open("ab") as file:
        file.write(batch("stale", base=6, epoch=2))
    assert values(await open_log(RealDisk(str(tmp_path)))) == TEXT


async def test_an_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / "notes.txt").write_text("not a segment")
    for clean in (False, True):
        log = await open_log(RealDisk(str(tmp_path)), clean=clean)
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch, log.size) == (0, 0, -1, 0)
        await log.close()


async def test_a_log_that_does_not_start_at_zero(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.truncate_fully_and_start_at(42)
    await log.replicate(batch("a", base=42, epoch=3), 3)
    await log.flush()
    log = await open_log(RealDisk(str(tmp_path)))
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (42, 43, ((3, 42),))
