"""The archive of base runs has the files that today's tool writes."""

from pathlib import Path

import pytest

from tests.mutations import base_runs
from tests.mutations.bench import Bench
from tests.mutations.shape import shape


@pytest.mark.rotating(len(base_runs.BASES))
@pytest.mark.parametrize("name", base_runs.BASES)
def test_a_base_run_made_again_has_the_shape_of_the_archived_one(bench: Bench, name: str, tmp_path: Path) -> None:
    made, archived = shape(base_runs.make(name, tmp_path)), shape(bench.bases[name])
    assert made == archived, base_runs.STALE
