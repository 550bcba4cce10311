"""Evidence that no run produces: links, pipes, strange bytes, missing or excessive numbers."""

import os
import struct
from collections.abc import Callable

from history.record.schemas import INF
from tests.mutations.client_rows import one, produced
from tests.mutations.mutation import Catalog, fails, unknown
from tests.mutations.segments import of_batches, put, summed
from tests.mutations.stored import FIRST_SEGMENT, Stored
from tests.mutations.streams import Row, rewrite

mutation = Catalog("oddity")

PLAN = "run.toml"
SEGMENT = f"nodes/n2/data/log-0/{FIRST_SEGMENT}"
HIGH_WATERMARKS = "nodes/n1/data/replication-offset-checkpoint"
EPOCHS = "nodes/n1/data/log-0/leader-epoch-checkpoint"
NO_TEXT = b"\xff\xfe\x80"


# ---- links and the like


def _linked(run: Stored, name: str, target: str) -> None:
    run.remove(name)
    (run / name).symlink_to(os.path.relpath(run / target, (run / name).parent))


@mutation(unknown("log-0|nodes/n2"))
def a_replica_is_a_link_to_another_nodes(run: Stored) -> None:
    _linked(run, "nodes/n2/data/log-0", "nodes/n1/data/log-0")


@mutation(unknown("log-0|nodes/n2"))
def a_segment_is_a_link_to_another_nodes(run: Stored) -> None:
    _linked(run, SEGMENT, f"nodes/n1/data/log-0/{FIRST_SEGMENT}")


mutation.add(
    "a segment is a link to nothing", lambda run: _linked(run, SEGMENT, "nowhere"), unknown("log-0|nodes/n2"), fails()
)


@mutation(unknown("producer-1"))
def a_record_is_a_link_to_a_copy(run: Stored) -> None:
    run.copy("history/operations/producer-1-1.arrows", "tables/copy.arrows")
    _linked(run, "history/operations/producer-1-1.arrows", "tables/copy.arrows")


@mutation(unknown("run.toml"))
def the_plan_is_a_link_to_a_copy(run: Stored) -> None:
    run.copy(PLAN, "tables/copy.toml")
    _linked(run, PLAN, "tables/copy.toml")


# ---- strange bytes


def _strange(name: str) -> Callable[[Stored], None]:
    return lambda run: run.edit(name, lambda data: data[:-3] + NO_TEXT)


for _name, _want in (
    (HIGH_WATERMARKS, unknown("replication-offset-checkpoint", "n1")),
    (EPOCHS, unknown("leader-epoch-checkpoint", "n1")),
    ("nodes/n1/data/meta.properties", unknown("n1")),
    ("nodes/n1/data/log-0/partition.metadata", unknown("partition.metadata|topic")),
    ("nodes/n1/data/__cluster_metadata-0/quorum-state", unknown("n1|quorum-state")),
    ("nodes/n1/events.jsonl", unknown("n1")),
    ("history/journal.jsonl", unknown("journal")),
    (PLAN, unknown("run.toml")),
):
    mutation.add(f"no text in {_name}", _strange(_name), _want)


# ---- numbers

HUGE = 10**30


@mutation(unknown("replication-offset-checkpoint|high watermark", "n1"), fails("not-converged"))
def a_huge_high_watermark(run: Stored) -> None:
    run.text("nodes/n1/data/replication-offset-checkpoint", r"^log 0 \d+$", f"log 0 {HUGE}")


@mutation(unknown("leader-epoch-checkpoint", "n1"), fails("epoch-start-mismatch"))
def a_huge_epoch(run: Stored) -> None:
    run.edit(EPOCHS, lambda data: data.replace(data.split(b"\n")[-2], b"%d 0" % HUGE))


TELLS = unknown("producer-1")


def _row(name: str, *more: object, **fields: object) -> None:
    def change(run: Stored) -> None:
        def edit(row: Row) -> None:
            row.update(fields)

        rewrite(run, "producer-1-1.arrows", one(produced, edit))

    mutation.add(name, change, TELLS, *more)  # type: ignore[arg-type]


_row("an acknowledged append that never returned", ret=INF)
_row("an append before all time", inv=-1)
_row("an append at the least time of all", inv=-(2**63))
_row("an append acknowledged at a negative offset", offset=-7)
_row("an append acknowledged at the largest offset", fails("lost-acknowledged-write", "gap"), offset=2**63 - 1)
_row("an append of a negative value", value=-9)
_row("an append of the largest value", value=2**63 - 1)
_row("an append to a negative partition", partition=-1)
_row("an append to a partition of a large number", partition=2**31 - 1)
_row("an append to no topic", topic="")
_row("an append to a topic with a path in its name", topic="../../log")
_row("an operation of a kind that there is not", f=99)
_row("an outcome that there is not", type=77)


# ---- records


@mutation(unknown("."), fails())
def every_client_recorded_nothing_and_counted_so(run: Stored) -> None:
    for path in sorted((run / "history/operations").glob("*.arrows")):
        rewrite(run, path.name, lambda _: [])


@mutation(unknown("log-0"), fails())
def the_largest_base_offset_on_all(run: Stored) -> None:
    def last(batches: list[bytes]) -> list[bytes]:
        return [*batches[:-1], struct.pack(">q", 2**63 - 1) + batches[-1][8:]]

    for name in run.logs():
        run.edit(name, of_batches(last))


@mutation(unknown("log-0"), fails())
def the_largest_leader_epoch_on_all(run: Stored) -> None:
    for name in run.logs():
        run.edit(name, of_batches(lambda batches: [*batches[:-1], put(batches[-1], 12, ">i", 2**31 - 1)]))


@mutation(unknown("log-0"), fails())
def a_batch_in_a_codec_that_it_is_not_in_on_all(run: Stored) -> None:
    for name in run.logs():
        run.edit(name, of_batches(lambda batches: [*batches[:-1], summed(put(batches[-1], 21, ">h", 2))]))
