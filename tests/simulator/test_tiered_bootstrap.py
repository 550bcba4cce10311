"""An empty follower of a partition that is mostly in remote storage, on simulated brokers (KIP-1023)."""

from __future__ import annotations

import pytest

from tests.simulator.tiered_bootstrap import Joining, run


@pytest.mark.conforms("K1023-3", "K1023-6", "K1023-11", "K1023-12", "K1023-13")
@pytest.mark.parametrize("feature", [False, True])
def test_an_empty_follower_starts_at_the_local_start_or_after_the_last_tiered_offset(feature: bool) -> None:
    async def story(joining: Joining) -> None:
        await joining.begin()
        await joining.fill()
        led = joining.led
        assert led.remote is not None
        tiered = led.remote.highest_tiered()
        assert tiered is not None
        local, pending = led.log.local_start_offset, tiered.offset + 1
        assert local < pending
        joined = await joining.join()
        assert joined.log.local_start_offset == (pending if feature else local)
        assert joined.log.log_start_offset == led.log.log_start_offset == 0
        assert joined.log.log_end_offset == led.log.log_end_offset
        with_records = [entry for entry in led.log.epochs.entries if entry.start_offset < led.log.log_end_offset]
        assert list(joined.log.epochs.entries) == with_records
        assert len(with_records) > 1

    run(1, story, feature=feature)
