from __future__ import annotations

import pytest

from tests.mutations import base_runs
from tests.mutations.bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """With runs that the tool has just made."""
    directory = tmp_path_factory.mktemp("bases")
    bases = {name: base_runs.make(name, directory) for name in base_runs.BASES}
    return Bench(bases, tmp_path_factory.mktemp("mutants"))
