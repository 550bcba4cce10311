"""docs/by-hand.md lists every key of the broker, and is up to date. (`tests/broker/clients` runs its commands.)"""

from dataclasses import fields

import pytest

from broker.config import BrokerConfig, setting_texts
from broker.errors import StartupError
from docs.generators.by_hand import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it with: .venv/bin/python -m docs.generators.by_hand"


def test_exactly_the_listed_settings_are_required() -> None:
    values = {"node.id": "1", "listeners": "h:1", "quorum.voters": "1@h:1", "log.dir": "d"}
    assert list(values) == [spec.metadata["needed"] for spec in fields(BrokerConfig) if "needed" in spec.metadata]
    BrokerConfig.from_properties(values)
    for key in values:
        with pytest.raises(StartupError, match=rf"{key} is missing"):
            BrokerConfig.from_properties({name: value for name, value in values.items() if name != key})


def test_every_key_has_a_text() -> None:
    assert all(text.endswith(".") for text in setting_texts().values())
    assert len(setting_texts()) == sum(bool({"key", "needed"} & spec.metadata.keys()) for spec in fields(BrokerConfig))
