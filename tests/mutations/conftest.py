from __future__ import annotations

from collections.abc import Iterator

import pytest

from analysis.spark import SparkHandle, java_version
from tests.mutations import base_runs
from tests.mutations.bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """With runs that the tool has just made."""
    directory = tmp_path_factory.mktemp("bases")
    bases = {name: base_runs.make(name, directory) for name in base_runs.BASES}
    return Bench(bases, tmp_path_factory.mktemp("mutants"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    if java_version() is None:
        pytest.skip("no Java runtime: install openjdk-17-jre-headless")
    handle = SparkHandle.start_in_background(tmp_path_factory.mktemp("spark"))
    yield handle
    handle.stop()
