"""The table of seconds counts every operation once, however the record is split."""

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from history.record.schemas import APPEND, INF, OK, OPERATIONS, READ
from history.record.shapes import LOG
from history.seconds import BUCKETS, SECONDS, SECONDS_FILE, SecondCounts, write_seconds
from tests.analysis.log_histories import ok, read, table

SECOND = 1_000_000_000


def random_rows(seed: int) -> pa.Table:
    rng = random.Random(seed)
    rows = table([ok(1, 10, 20, 0), read(0, [1], 10, 20, hi=1)]).to_pylist()
    found = []
    for _ in range(60):
        inv = rng.randrange(5 * SECOND)
        ret = INF if rng.random() < 0.1 else inv + rng.choice([0, 999, 1_500, 10**6, 10**9, 10**13])
        kind = 2 if ret == INF else rng.choice([0, 0, 0, 1])
        found.append(rng.choice(rows) | {"inv": inv, "ret": ret, "type": kind})
    return pa.Table.from_pylist(found, OPERATIONS)


@pytest.mark.parametrize("seed", range(6))
def test_the_table_agrees_with_the_rows_for_every_split(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed)
    cuts = [0, *sorted(random.Random(seed).sample(range(60), 3)), 60]
    parts = [rows.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    write_seconds(SecondCounts.union(SecondCounts.of(part, LOG) for part in parts).table(), tmp_path)
    found = pq.read_table(tmp_path / SECONDS_FILE)
    assert found.schema.equals(SECONDS)
    assert found.to_pylist() == SecondCounts.of(rows, LOG).table().to_pylist()
    for row in found.to_pylist():
        mine = [
            each
            for each in rows.to_pylist()
            if (each["f"], each["type"]) == (row["f"], row["type"])
            and (each["inv"] if each["ret"] == INF else each["ret"]) // SECOND == row["second"]
        ]
        assert row["operations"] == len(mine) > 0
        assert row["records"] == sum(len(each["values"]) for each in mine)
        took = [each["ret"] - each["inv"] for each in mine if each["ret"] < INF]
        assert sum(row["latency"]) == len(took)
        for bucket in range(1, BUCKETS - 1):
            low, high = 1e3 * 2 ** (bucket / 4), 1e3 * 2 ** ((bucket + 1) / 4)
            assert row["latency"][bucket] == len([each for each in took if low <= each < high])
    assert sum(found["operations"].to_pylist()) == rows.num_rows


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_gap_is_that_between_acknowledgements(seed: int) -> None:
    rng = random.Random(seed)
    returned = sorted(rng.randrange(4 * SECOND) for _ in range(40))
    rows = table([ok(n + 1, 0, ret, n) for n, ret in enumerate(returned)])
    order = list(range(40))
    rng.shuffle(order)
    parts = [SecondCounts.of(rows.take(order[part::3]), LOG) for part in range(3)]
    found = SecondCounts.union(parts).table().to_pylist()
    gaps = {row["second"]: row["longest_gap_ns"] for row in found}
    expected: dict[int, int] = {}
    for a, b in itertools.pairwise(returned):
        if b - a > 20_000_000:
            expected[b // SECOND] = max(expected.get(b // SECOND, 0), b - a)
    assert {second: gap for second, gap in gaps.items() if gap and gap > 20_000_000} == expected
    assert {row["f"] for row in found} == {APPEND}
    assert {row["type"] for row in found} == {OK}


def test_queries_have_no_gaps() -> None:
    rows = table([read(0, [], 10, 20, hi=0), read(0, [], 5 * SECOND, 6 * SECOND, hi=0)])
    found = SecondCounts.of(rows, LOG).table().to_pylist()
    assert {(row["f"], row["longest_gap_ns"]) for row in found} == {(READ, None)}


def test_no_operations_make_an_empty_table() -> None:
    assert SecondCounts.of(OPERATIONS.empty_table(), LOG).table().num_rows == 0
    assert SecondCounts.union([]).table().schema.equals(SECONDS)
