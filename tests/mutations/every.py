"""All mutations, by subject."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from tests.mutations import (
    checkpoints,
    client_files,
    client_rows,
    configuration,
    derived,
    earlier_dumps,
    fault_lines,
    groups,
    journal_lines,
    metadata_quorum,
    oddities,
    oracles,
    plans,
    registers,
    replica_batches,
    replica_directories,
    requests,
    tiered,
    unjudged,
)
from tests.mutations.mutation import Mutation

CATALOGS: Final = (
    replica_directories.mutation,
    replica_batches.mutation,
    checkpoints.mutation,
    metadata_quorum.mutation,
    client_files.mutation,
    client_rows.mutation,
    journal_lines.mutation,
    fault_lines.mutation,
    plans.mutation,
    oddities.mutation,
    registers.mutation,
    groups.mutation,
    oracles.mutation,
    derived.mutation,
    tiered.mutation,
    *requests.CATALOGS,
    configuration.mutation,
    *earlier_dumps.CATALOGS,
    *unjudged.CATALOGS,
)
OF_OPERATIONS: Final = (client_rows.mutation, registers.mutation)
"""Mutations that Spark analyzes by its own plan: logs' operations by blocks of offsets, registers by key, then
merged."""
OF_FILES: Final = (
    replica_directories.mutation,
    replica_batches.mutation,
    checkpoints.mutation,
    client_files.mutation,
    oddities.mutation,
)
"""Mutations of evidence that Spark's workers read, and analyze by the same function as the in-process engine."""
MUTATIONS: Final[tuple[Mutation, ...]] = tuple(chain(*CATALOGS))
ON_WORKERS: Final[tuple[Mutation, ...]] = tuple(chain(*OF_OPERATIONS, *OF_FILES))
IN_PROCESS: Final[tuple[Mutation, ...]] = tuple(each for each in MUTATIONS if each not in ON_WORKERS)
"""All the others: these are judged in the process that asks the workers, whichever engine it is."""


def parameters(mutations: Iterable[Mutation]) -> Iterator[ParameterSet]:
    """For `pytest.mark.parametrize`; a mutation whose catalog has changed is in every tier."""
    for mutation in mutations:
        yield pytest.param(mutation, id=str(mutation), marks=pytest.mark.rotating(files=[mutation.file]))
