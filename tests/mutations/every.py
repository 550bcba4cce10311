"""All mutations, by subject."""

from __future__ import annotations

from itertools import chain
from typing import Final

from tests.mutations import (
    checkpoints,
    client_files,
    client_rows,
    derived,
    fault_lines,
    journal_lines,
    metadata_quorum,
    plans,
    registers,
    replica_batches,
    replica_directories,
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
    registers.mutation,
    derived.mutation,
)
ON_SPARK: Final = (
    replica_directories.mutation,
    replica_batches.mutation,
    client_files.mutation,
    client_rows.mutation,
    registers.mutation,
)
"""Those of what Spark's workers read."""
MUTATIONS: Final[tuple[Mutation, ...]] = tuple(chain(*CATALOGS))
