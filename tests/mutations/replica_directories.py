"""Mutations of the directories of replicas, and of whole nodes' files."""

from tests.mutations.mutation import PASSES, Catalog, fails, unknown
from tests.mutations.segments import end_of, of_batches, rebased, split
from tests.mutations.stored import FIRST_SEGMENT, Stored

mutation = Catalog("replica directories")

SHORTER = fails("not-converged", "lost-acknowledged-write", "replica-order-mismatch", "prefix-changed")


mutation.add("one replica deleted", lambda run: run.remove("nodes/n2/data/log-0"), unknown("log-0", "n2"))
mutation.add(
    "two replicas deleted", lambda run: run.remove("nodes/n1/data/log-0", "nodes/n3/data/log-0"), unknown("log-0", "n1")
)
mutation.add("a partition deleted everywhere", lambda run: run.remove("nodes/*/data/log-1"), unknown("log-1"))
mutation.add("all replicas deleted everywhere", lambda run: run.remove("nodes/*/data/log-*"), unknown("log-"))
mutation.add(
    "one replica emptied", lambda run: run.empty("nodes/n2/data/log-0"), unknown("log-0", "n2"), fails("not-converged")
)


@mutation(unknown("log-0", "n2"), fails("not-converged"))
def one_segment_deleted(run: Stored) -> None:
    run.remove(f"nodes/n2/data/log-0/{FIRST_SEGMENT}")


@mutation(unknown("log-0", "n2"), fails("not-converged"))
def one_segment_emptied(run: Stored) -> None:
    run.empty(f"nodes/n2/data/log-0/{FIRST_SEGMENT}")


@mutation(unknown("log-0"), fails("lost-acknowledged-write"))
def all_segments_of_a_partition_emptied(run: Stored) -> None:
    for name in run.logs():
        run.empty(name)


@mutation(fails("replica-divergence", "replica-order-mismatch"))
def a_nodes_partitions_swapped(run: Stored) -> None:
    run.swap("nodes/n2/data/log-0", "nodes/n2/data/log-1")


@mutation(fails("replica-divergence", "replica-order-mismatch"))
def a_nodes_segments_swapped(run: Stored) -> None:
    run.swap(f"nodes/n1/data/log-0/{FIRST_SEGMENT}", f"nodes/n1/data/log-1/{FIRST_SEGMENT}")


@mutation(fails("replica-divergence", "replica-order-mismatch"))
def a_replica_replaced_by_another_partitions(run: Stored) -> None:
    run.copy("nodes/n3/data/log-1", "nodes/n3/data/log-0")


@mutation(fails("replica-order-mismatch", "lost-acknowledged-write", "phantom"))
def a_partition_replaced_by_another_everywhere(run: Stored) -> None:
    for node in run.nodes():
        run.copy(f"nodes/{node}/data/log-1", f"nodes/{node}/data/log-0")


@mutation(fails("not-converged"))
def an_older_copy_of_a_replica(run: Stored) -> None:
    run.edit(f"nodes/n2/data/log-0/{FIRST_SEGMENT}", of_batches(lambda batches: batches[: len(batches) // 2]))
    run.edit("nodes/n2/data/log-0/leader-epoch-checkpoint", lambda _: b"0\n1\n0 0\n")


@mutation(fails("not-converged"))
def an_older_copy_of_a_replica_with_its_high_watermark(run: Stored) -> None:
    name = f"nodes/n3/data/log-1/{FIRST_SEGMENT}"
    run.edit(name, of_batches(lambda batches: batches[: len(batches) // 2]))
    end = end_of(split((run / name).read_bytes()))
    run.text("nodes/n3/data/replication-offset-checkpoint", r"^log 1 \d+$", f"log 1 {end}")


mutation.add("a nodes data deleted", lambda run: run.remove("nodes/n3/data"), unknown("n3"))
mutation.add("a nodes data emptied", lambda run: run.empty("nodes/n3/data"), unknown("n3"))
mutation.add("a node deleted", lambda run: run.remove("nodes/n3"), unknown("n3"))
mutation.add("a node emptied", lambda run: run.empty("nodes/n1"), unknown("n1"))
mutation.add("all nodes deleted", lambda run: run.remove("nodes"), unknown("node|n1|replica"))
mutation.add("all nodes emptied", lambda run: run.empty("nodes"), unknown("node|n1|replica"))


@mutation(unknown("n1|n2"), fails())
def the_files_of_two_nodes_swapped(run: Stored) -> None:
    """Their traces and their `meta.properties` say whose they are."""
    run.swap("nodes/n1", "nodes/n2")


mutation.add("a node replaced by another", lambda run: run.copy("nodes/n1", "nodes/n3"), unknown("n3|n1"), fails())
mutation.add("a node renamed", lambda run: (run / "nodes/n3").rename(run / "nodes/n9"), unknown("n9|n3"))
mutation.add("an unplanned node", lambda run: run.copy("nodes/n3", "nodes/n9"), unknown("n9"))
mutation.add(
    "an unplanned partition", lambda run: run.copy("nodes/n1/data/log-1", "nodes/n1/data/log-7"), unknown("log-7")
)


@mutation(unknown("other-0"))
def an_unplanned_topic(run: Stored) -> None:
    for node in run.nodes():
        run.copy(f"nodes/{node}/data/log-1", f"nodes/{node}/data/other-0")


@mutation(unknown("log-0", "n2"), fails("not-converged"))
def a_replica_is_a_file(run: Stored) -> None:
    run.remove("nodes/n2/data/log-0")
    (run / "nodes/n2/data/log-0").write_bytes(b"log")


@mutation(unknown("log-0", "n1"), fails("not-converged", "replica-divergence"))
def the_only_segment_has_another_name(run: Stored) -> None:
    (run / run.logs()[0]).rename(run / f"nodes/n1/data/log-0/{7:020d}.log")


def _start_later(run: Stored, name: str) -> None:
    path = run / name
    kept = split(path.read_bytes())[3:]
    first = int.from_bytes(kept[0][:8], "big")
    path.unlink()
    path.with_name(f"{first:020d}.log").write_bytes(b"".join(kept))


@mutation(
    unknown("log-1", "n2"),
    fails("not-converged", "lost-acknowledged-write", "replica-order-mismatch", "prefix-changed"),
)
def one_replica_starts_later(run: Stored) -> None:
    """Retention was not configured: the first records of a log may not be deleted."""
    _start_later(run, run.logs(1)[1])


@mutation(unknown("log-1", "start|begin"), fails("lost-acknowledged-write"))
def all_replicas_start_later(run: Stored) -> None:
    for name in run.logs(1):
        _start_later(run, name)


@mutation(PASSES)
def a_segment_was_rolled(run: Stored) -> None:
    """Benign: the broker decides the border between segments."""
    path = run / run.logs(1)[0]
    batches = split(path.read_bytes())
    half = len(batches) // 2
    path.write_bytes(b"".join(batches[:half]))
    later = path.with_name(f"{end_of(batches[:half]):020d}.log")
    later.write_bytes(b"".join(batches[half:]))


@mutation(unknown("log-1", "n1"), SHORTER)
def a_rolled_segment_lacks_its_first_half(run: Stored) -> None:
    a_segment_was_rolled(run)
    run.remove(run.logs(1)[0])


@mutation(unknown("log-1", "n1"), SHORTER)
def a_segment_is_missing_between_two(run: Stored) -> None:
    path = run / run.logs(1)[0]
    batches = split(path.read_bytes())
    third = len(batches) // 3
    path.write_bytes(b"".join(batches[:third]))
    later = path.with_name(f"{end_of(batches[: 2 * third]):020d}.log")
    later.write_bytes(b"".join(batches[2 * third :]))


@mutation(PASSES)
def the_file_system_has_a_directory_of_its_own(run: Stored) -> None:
    """Benign: ext4 makes it."""
    for node in run.nodes():
        (run / f"nodes/{node}/data/lost+found").mkdir()


@mutation(fails("lost-acknowledged-write"))
def the_first_records_are_gone_everywhere_and_the_rest_moved_up(run: Stored) -> None:
    for name in run.logs(1):
        run.edit(name, of_batches(lambda batches: rebased(batches[2:])))
