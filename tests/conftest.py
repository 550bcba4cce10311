"""What tests of several rooms share."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from analysis.spark import SparkHandle, java_version

LONGEST: Final = (
    "tests/mutations/test_mutations_on_spark.py",
    "tests/conformance/test_breaks.py",
    "tests/mutations/test_mutations.py",
    "tests/playbooks/test_playbooks.py",
    "tests/orchestrator/test_scenarios.py",
    "tests/orchestrator/test_brokers_that_end.py",
    "tests/simulator/test_directed_campaigns.py",
    "tests/search/test_replay.py",
    "tests/simulator/test_leases.py",
    "tests/house/test_tools.py",
)
"""The files whose tests take longest, some at work and some waiting."""

# Without bytecode every process that a test starts would compile all that it imports, and every worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin first, so that none is still under way, alone, when all others have ended; then those of
    few tests, for these are often whole clusters. The tests of a file stay together, in its order."""
    sizes = Counter(map(_file, items))
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: (places.get(file := _file(item), len(LONGEST)), sizes[file], file))


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    """A session for a module: one that lasted longer would be ended by the tests that begin and end their own."""
    if java_version() is None:
        pytest.skip("no Java runtime: install openjdk-17-jre-headless")
    handle = SparkHandle.start_in_background(tmp_path_factory.mktemp("spark"))
    yield handle
    handle.stop()
