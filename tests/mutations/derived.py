"""Files of an earlier analysis, or of other programs, in a run's directory: none of them is evidence."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.mutations.mutation import PASSES, Catalog
from tests.mutations.stored import Stored

mutation = Catalog("derived")


mutation.add("tables deleted", lambda run: run.remove("tables"), PASSES)


@mutation(PASSES)
def tables_of_a_partition_that_is_not_there(run: Stored) -> None:
    run.copy("tables/operations/topic=log/partition=1", "tables/operations/topic=log/partition=6")
    run.copy("tables/replicas/topic=log/partition=1", "tables/replicas/topic=log/partition=6")


@mutation(PASSES)
def tables_of_another_history(run: Stored) -> None:
    for path in sorted((run / "tables/operations").glob("*/*/appends-*.parquet")):
        pq.write_table(pq.read_table(path, partitioning=None).slice(3), path)


@mutation(PASSES)
def tables_garbled(run: Stored) -> None:
    for path in sorted((run / "tables").rglob("*.parquet")):
        path.write_bytes(b"garbage")


mutation.add("certificate deleted", lambda run: run.remove("certificate"), PASSES)


@mutation(PASSES)
def certificate_garbled(run: Stored) -> None:
    for path in sorted((run / "certificate").iterdir()):
        path.write_bytes(b"garbage")


@mutation(PASSES)
def certificate_of_another_history(run: Stored) -> None:
    path = run / "certificate/part-00000.parquet"
    table: pa.Table = pq.read_table(path)
    pq.write_table(table.slice(2), path)


mutation.add("verdict deleted", lambda run: run.remove("verdict.json"), PASSES)
mutation.add("verdict garbled", lambda run: run.edit("verdict.json", lambda data: data[:100]), PASSES)


@mutation(PASSES)
def verdict_says_fail(run: Stored) -> None:
    run.edit("verdict.json", lambda data: json.dumps(json.loads(data) | {"verdict": "fail", "met": False}).encode())


mutation.add("verdict is a directory", lambda run: _directory(run, "verdict.json"), PASSES)
mutation.add("verdicts draft is a directory", lambda run: _directory(run, "verdict.json.tmp"), PASSES)
mutation.add("report is a directory", lambda run: _directory(run, "report.html"), PASSES)


@mutation(PASSES)
def tables_and_certificate_are_files(run: Stored) -> None:
    for name in ("tables", "certificate"):
        run.remove(name)
        (run / name).write_text("nothing")


def _directory(run: Stored, name: str) -> None:
    """There is a directory with something in it."""
    (run / name).unlink(missing_ok=True)
    (run / name / "notes").mkdir(parents=True)


mutation.add("a note of a user", lambda run: (run / "notes.txt").write_text("looked at this on Monday\n"), PASSES)


@mutation(PASSES)
def the_runs_directory_has_been_copied(run: Stored) -> None:
    """Hard links, owners and times are others; what is in the files is not."""
    for path in sorted((run / "history").rglob("*")):
        if path.is_file():
            path.write_bytes(path.read_bytes())
