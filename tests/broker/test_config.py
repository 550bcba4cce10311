"""The broker's configuration: what is refused, in which words."""

from __future__ import annotations

import pytest

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.properties import parse_properties

LEAST = "node.id=1\nlisteners=n:9092\nquorum.voters=1@n:9092\nlog.dir=log\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "num.partitions=" + "9" * 5000,
            "num.partitions: '" + "9" * 57 + "...' does not",
        ),
        ("num.partitions=9223372036854775808", "num.partitions: '9223372036854775808' does not fit into 64 bits"),
        ("num.partitions=\u00b2", "num.partitions: '\u00b2' is not a whole number"),
        ("num.partitions=--1", "num.partitions: '--1' is not a whole number"),
        ("num.partitions=0", "num.partitions: 0 is smaller than 1"),
    ],
)
def test_a_number_that_is_none_or_far_too_long_is_refused(line: str, words: str) -> None:
    with pytest.raises(StartupError) as caught:
        BrokerConfig.from_properties(parse_properties(LEAST + line, "p"), "p")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("port", ["0", "65536", "\u00b9", "9" * 5000, "-1", ""])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    for text in (LEAST.replace("n:9092\nq", f"n:{port}\nq"), LEAST.replace("1@n:9092", f"1@n:{port}")):
        with pytest.raises(StartupError, match="is not of the form"):
            BrokerConfig.from_properties(parse_properties(text, "p"), "p")
