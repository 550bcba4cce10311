"""docs/by-hand.md lists every key of the broker, and is up to date. (`tests/broker/clients` runs its commands.)"""

from __future__ import annotations

from dataclasses import fields

import pytest

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.setting_descriptions import OPTIONAL, REQUIRED
from docs.generators.by_hand import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.by_hand"


def test_exactly_the_listed_settings_are_required() -> None:
    values = {"node.id": "1", "listeners": "h:1", "quorum.voters": "1@h:1", "log.dir": "d"}
    assert values.keys() == REQUIRED.keys()
    BrokerConfig.from_properties(values)
    for key in values:
        with pytest.raises(StartupError, match=rf"{key} is missing"):
            BrokerConfig.from_properties({name: value for name, value in values.items() if name != key})


def test_every_key_has_a_text() -> None:
    assert list(OPTIONAL) == [spec.metadata["key"] for spec in fields(BrokerConfig) if "key" in spec.metadata]
