"""Whatever is done to a stored run, its verdict stays honest: nothing that is missing, damaged or forged is green."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from analysis.spark import SparkHandle
from tests.mutations.bench import Bench, judge
from tests.mutations.every import MUTATIONS, OF_FILES, OF_OPERATIONS
from tests.mutations.mutation import Judgement, Mutation, Want

SOME: Final = 50
FEW: Final = 15
"""How many mutations are judged where all of them would take long, and show the same."""


def require(mutation: Mutation, found: Judgement, wants: tuple[Want, ...]) -> None:
    told = f"{mutation}\n  wanted {' / '.join(map(str, wants))}\n  got {found}"
    assert any(want.met_by(found) for want in wants), told
    assert found.stored in (None, found.verdict), f"{told}\n  but verdict.json says {found.stored}"


def test_the_bases_pass(bench: Bench) -> None:
    for run in bench.bases.values():
        found = judge(run)
        assert found.verdict == "pass", found


def test_every_mutation_has_a_name_of_its_own() -> None:
    (name, count), *_ = Counter(mutation.name for mutation in MUTATIONS).most_common()
    assert count == 1, name


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_of_a_run_that_ended_so(bench: Bench, mutation: Mutation) -> None:
    """Sealed with the change in it: its own evidence must tell."""
    require(mutation, bench.resealed(mutation), mutation.resealed)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_seal_tells_of_every_change(bench: Bench, mutation: Mutation) -> None:
    """It names a file that is not what it was, and nothing when none of the evidence has changed."""
    found, changed = bench.complaints(mutation)
    assert bool(found) == bool(changed)
    told = any(name in each for name in [*changed, "not sealed"] for each in found)
    assert told or not changed, (found, changed)


@pytest.mark.parametrize("mutation", MUTATIONS[:: len(MUTATIONS) // SOME], ids=str)
def test_of_a_run_that_was_changed_afterwards(bench: Bench, mutation: Mutation) -> None:
    """What the seal tells makes the run unknown, unless it fails all the same."""
    found, wants = bench.as_is(mutation)
    require(mutation, found, wants)


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_of_any_run_that_was_changed_afterwards(bench: Bench, mutation: Mutation) -> None:
    found, wants = bench.as_is(mutation)
    require(mutation, found, wants)


@pytest.mark.spark
def test_spark_says_the_same(bench: Bench, spark: SparkHandle) -> None:
    """Of all that it judges in its own way, and some of what it judges in the same way elsewhere: not of what the
    journal and the plan say."""
    alike = [mutation for catalog in OF_FILES for mutation in catalog]
    own = [mutation for catalog in OF_OPERATIONS for mutation in catalog]
    said_alike(bench, spark, (*own, *alike[:: len(alike) // FEW]))


@pytest.mark.long
@pytest.mark.spark
def test_spark_says_the_same_of_all(bench: Bench, spark: SparkHandle) -> None:
    said_alike(bench, spark, MUTATIONS)


def said_alike(bench: Bench, spark: SparkHandle, mutations: Iterable[Mutation]) -> None:
    different = []
    for mutation in mutations:
        here, there = bench.resealed(mutation), bench.resealed_on_spark(mutation, spark)
        if here != there:
            different.append(f"{mutation}\n  in process {here}\n  on Spark {there}")
    assert not different, "\n".join(different)
