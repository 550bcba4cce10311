"""The other half of the mutations: those that Spark's workers analyze are honest too, and the same on Spark."""

from collections.abc import Iterable
from typing import Final

import pytest

from analysis.engines.spark import SparkHandle
from tests.mutations.bench import Bench
from tests.mutations.every import MUTATIONS, OF_FILES, OF_OPERATIONS, ON_WORKERS, parameters
from tests.mutations.mutation import Mutation
from tests.mutations.requiring import require_honesty

FEW: Final = 15
"""How many mutations of files are judged on Spark: all of them would take long, and show the same."""

PARTS: Final = 24
"""Of the mutations that are judged on Spark."""


@pytest.mark.rotating(32)
@pytest.mark.parametrize("mutation", list(parameters(ON_WORKERS)))
def test_the_verdict_is_honest_about_a_mutation(bench: Bench, mutation: Mutation) -> None:
    require_honesty(bench, mutation)


@pytest.mark.spark
@pytest.mark.rotating(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_spark_gives_the_same_verdict(bench: Bench, spark: SparkHandle, part: int) -> None:
    """All mutations that it analyzes by its own plan, and some of those that it analyzes by the common function; not
    those of the journal and the plan."""
    alike = [mutation for catalog in OF_FILES for mutation in catalog]
    own = [mutation for catalog in OF_OPERATIONS for mutation in catalog]
    said_alike(bench, spark, (*own, *alike[:: len(alike) // FEW])[part::PARTS])


@pytest.mark.long
@pytest.mark.spark
def test_spark_gives_the_same_verdict_for_all_mutations(bench: Bench, spark: SparkHandle) -> None:
    said_alike(bench, spark, MUTATIONS)


def said_alike(bench: Bench, spark: SparkHandle, mutations: Iterable[Mutation]) -> None:
    different = []
    for mutation in mutations:
        here, there = bench.resealed(mutation), bench.resealed_on_spark(mutation, spark)
        if here != there:
            different.append(f"{mutation}\n  in process {here}\n  on Spark {there}")
    assert not different, "\n".join(different)
