"""What tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from analysis.spark import SparkHandle, java_version


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    """A session for a module: one that lasted longer would be ended by the tests that begin and end their own."""
    if java_version() is None:
        pytest.skip("no Java runtime: install openjdk-17-jre-headless")
    handle = SparkHandle.start_in_background(tmp_path_factory.mktemp("spark"))
    yield handle
    handle.stop()
