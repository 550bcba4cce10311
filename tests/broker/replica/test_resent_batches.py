"""A batch of an idempotent producer that comes again while the first one is not committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.protocol.records import Record, build_batch
from broker.replica.manager import ProduceResult
from tests.broker.replica.cluster import TOPIC, Cluster, until


@pytest.mark.conforms("K98-3")
def test_a_batch_that_comes_again_waits_for_the_commit_as_it_did_the_first_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, replica_lag_time_max_ms=60_000) as cluster:
            await cluster.start(1, 2, 3)
            await cluster.create_topic([1, 2, 3])
            leader = cluster.nodes[1]
            cluster.cut |= {(2, 1), (3, 1)}

            def sent() -> asyncio.Future[ProduceResult]:
                records = [Record(0, 1000, None, b"a")]
                numbered = bytearray(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0))
                return asyncio.ensure_future(leader.manager.produce(TOPIC, 0, numbered, -1, 60.0))

            first = sent()
            await until(lambda: len(leader.partition().commits) == 1)
            again = sent()
            for _ in range(100):
                await asyncio.sleep(0)
            assert not again.done(), "nobody else has the record yet"
            cluster.cut.clear()
            answers = await asyncio.gather(first, again)
            assert [(it.error, it.base_offset) for it in answers] == [(ErrorCode.NONE, 0)] * 2
            assert leader.content() == ["a"]

    asyncio.run(story())
