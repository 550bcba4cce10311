"""The counters that prove partitions: they count each dropped packet, and no packet that passes."""

import pytest

from tests.worlds.support import play

pytestmark = pytest.mark.root


def test_a_dropped_packet_is_counted_once_at_its_filter() -> None:
    assert play("counted", module="tests.worlds.filter_scenarios") == {
        "open": [1, 0],
        "cut": [2, 1],
        "cut and rejected": [3, 2],  # what is dropped is not answered as well
        "rejected": [3, 1],  # what is rejected does not come as far as where packets are seen
        "cut, and not dropped": [4, 0],
    }
