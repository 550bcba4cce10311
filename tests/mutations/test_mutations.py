"""The verdict of a mutated run stays honest: missing, damaged or contradictory evidence is never green."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.base_runs import BASES
from tests.mutations.bench import Bench, judge
from tests.mutations.every import IN_PROCESS, MUTATIONS, parameters
from tests.mutations.mutation import Mutation
from tests.mutations.requiring import require_honesty


@pytest.mark.rotating(len(BASES))
@pytest.mark.parametrize("base", BASES)
def test_a_base_passes(bench: Bench, tmp_path: Path, base: str) -> None:
    """A copy of the base: other workers copy the bases at the same time, and an analysis writes into the run. The
    fixture runs the gate on every base."""
    run = bench.bases[base]
    found = judge(Path(shutil.copytree(run, tmp_path / run.name)))
    assert found.verdict == "pass", found


def test_every_mutation_has_a_name_of_its_own() -> None:
    (name, count), *_ = Counter(mutation.name for mutation in MUTATIONS).most_common()
    assert count == 1, name


@pytest.mark.rotating(32)
@pytest.mark.parametrize("mutation", list(parameters(IN_PROCESS)))
def test_the_verdict_is_honest_about_a_mutation(bench: Bench, mutation: Mutation) -> None:
    require_honesty(bench, mutation)
