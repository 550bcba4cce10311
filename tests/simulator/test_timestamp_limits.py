"""The limits of timestamps follow the clock of the machine that leads."""

import pytest

from simulator.client import RefusedError
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import started

MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.mark.conforms("LOG-5")
def test_a_leader_refuses_timestamps_an_hour_ahead_of_its_own_clock() -> None:
    with SimulatedCluster(1) as cluster:

        async def story() -> int:
            client = await started(cluster)
            await client.create_topic("log")
            leader = f"n{await client.leader_of('log', 0)}"
            far_ms = cluster.wall_ns(cluster.machines[leader]) // 1_000_000 + HOUR + MINUTE
            await client.produce("log", 0, [b"in time"], timestamp=far_ms - 2 * MINUTE)
            await client.produce("log", 0, [b"long ago"], timestamp=1)
            with pytest.raises(RefusedError, match="INVALID_TIMESTAMP"):
                await client.produce("log", 0, [b"too far ahead"], timestamp=far_ms)
            cluster.move_clock(leader, 2 * MINUTE / 1000)
            await client.produce("log", 0, [b"in time by now"], timestamp=far_ms)
            return len(await client.read_all("log", 0))

        assert cluster.run(story()) == 3
