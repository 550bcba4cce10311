"""Mutations of high watermarks and leader epochs on disk, and of the small files beside the logs."""

from tests.mutations.mutation import Catalog, fails, unknown
from tests.mutations.stored import Stored

mutation = Catalog("checkpoints")

MARKS = "nodes/n1/data/replication-offset-checkpoint"
EPOCHS = "nodes/n1/data/log-0/leader-epoch-checkpoint"
STAYED = fails("not-converged")
STARTS = fails("epoch-start-mismatch")


@mutation(unknown("high watermark|replication-offset-checkpoint", "n1"))
def high_watermarks_missing_on_one(run: Stored) -> None:
    run.remove(MARKS)


@mutation(unknown("high watermark|replication-offset-checkpoint"))
def high_watermarks_missing_on_all(run: Stored) -> None:
    run.remove("nodes/*/data/replication-offset-checkpoint")


mutation.add(
    "high watermarks emptied", lambda run: run.empty(MARKS), unknown("high watermark|replication-offset-checkpoint")
)


@mutation(unknown("high watermark|replication-offset-checkpoint"))
def high_watermarks_garbled(run: Stored) -> None:
    run.edit(MARKS, lambda data: b"\x00\xffgarbage" + data)


@mutation(unknown("high watermark|replication-offset-checkpoint"))
def high_watermarks_torn(run: Stored) -> None:
    run.edit(MARKS, lambda data: data[:-3])


@mutation(unknown("high watermark|replication-offset-checkpoint"))
def high_watermarks_lack_a_line(run: Stored) -> None:
    run.edit(MARKS, lambda data: b"\n".join(data.split(b"\n")[:-2]) + b"\n")


@mutation(unknown("high watermark|replication-offset-checkpoint", "log-0"))
def a_partition_has_no_high_watermark(run: Stored) -> None:
    run.edit(MARKS, lambda data: b"0\n1\n" + data.split(b"\n")[2] + b"\n")


@mutation(unknown("high watermark|replication-offset-checkpoint"))
def a_partition_has_two_high_watermarks(run: Stored) -> None:
    run.edit(MARKS, lambda data: b"0\n3\n" + b"\n".join(data.split(b"\n")[2:]) + b"log 0 1\n")


@mutation(STAYED, unknown("high watermark"))
def a_high_watermark_beyond_the_log(run: Stored) -> None:
    run.text(MARKS, r"^log 0 (\d+)$", r"log 0 \g<1>7")


mutation.add("a high watermark stayed behind on one", lambda run: run.text(MARKS, r"^log 0 \d+$", "log 0 3"), STAYED)


@mutation(STAYED)
def high_watermarks_stayed_behind_on_all(run: Stored) -> None:
    for node in run.nodes():
        run.text(f"nodes/{node}/data/replication-offset-checkpoint", r"^log 1 \d+$", "log 1 0")


@mutation(unknown("high watermark|replication-offset-checkpoint"), STAYED)
def a_high_watermark_is_negative(run: Stored) -> None:
    run.text(MARKS, r"^log 0 \d+$", "log 0 -5")


@mutation(unknown("high watermark|replication-offset-checkpoint"))
def a_high_watermark_is_not_a_number(run: Stored) -> None:
    run.text(MARKS, r"^log 0 \d+$", "log 0 many")


@mutation(unknown("high watermark|replication-offset-checkpoint|log-9"))
def a_high_watermark_of_a_partition_that_is_not_there(run: Stored) -> None:
    run.edit(MARKS, lambda data: b"0\n3\n" + b"\n".join(data.split(b"\n")[2:]) + b"log 9 12\n")


mutation.add("leader epochs missing on one", lambda run: run.remove(EPOCHS), unknown("epoch", "n1"), STARTS)


@mutation(unknown("epoch"), STARTS)
def leader_epochs_missing_on_all(run: Stored) -> None:
    run.remove("nodes/*/data/log-0/leader-epoch-checkpoint")


mutation.add("leader epochs emptied", lambda run: run.empty(EPOCHS), unknown("epoch"), STARTS)
mutation.add(
    "leader epochs are declared empty", lambda run: run.edit(EPOCHS, lambda _: b"0\n0\n"), unknown("epoch"), STARTS
)
mutation.add(
    "leader epochs garbled", lambda run: run.edit(EPOCHS, lambda _: b"nothing of the kind\n"), unknown("epoch")
)
mutation.add(
    "leader epochs of another version", lambda run: run.edit(EPOCHS, lambda data: b"5" + data[1:]), unknown("epoch")
)
mutation.add("an epoch starts elsewhere on one", lambda run: run.text(EPOCHS, r"^1 (\d+)$", r"1 \g<1>1"), STARTS)


@mutation(STARTS)
def an_epoch_starts_elsewhere_on_all(run: Stored) -> None:
    for node in run.nodes():
        run.text(f"nodes/{node}/data/log-0/leader-epoch-checkpoint", r"^1 (\d+)$", r"1 \g<1>1")


mutation.add("an epoch is missing on one", lambda run: run.edit(EPOCHS, lambda _: b"0\n1\n0 0\n"), STARTS)


@mutation(fails("epoch-regression"), unknown("epoch"))
def epochs_in_the_wrong_order(run: Stored) -> None:
    run.edit(EPOCHS, lambda data: b"0\n2\n" + data.split(b"\n")[3] + b"\n" + data.split(b"\n")[2] + b"\n")


@mutation(unknown("topic"), fails())
def a_replica_is_of_another_topic(run: Stored) -> None:
    """`partition.metadata` names the topic by its id."""
    run.edit("nodes/n1/data/log-0/partition.metadata", lambda data: data.replace(b"topic_id: ", b"topic_id: X")[:-1])


@mutation(unknown("n1"), fails())
def a_nodes_directory_is_another_nodes(run: Stored) -> None:
    run.text("nodes/n1/data/meta.properties", r"^node\.id=1$", "node.id=2")


@mutation(unknown("log-0 on n1 has records, but its partition.metadata has no topic_id"))
def no_replica_names_its_topic(run: Stored) -> None:
    """In the end and in earlier dumps, so that no file contradicts another one."""
    run.remove("nodes/*/data/log-*/partition.metadata", "nodes/*/earlier/log-*/partition.metadata")


@mutation(unknown("meta.properties of n1 has no cluster.id"))
def no_node_names_its_cluster(run: Stored) -> None:
    for path in sorted(run.path.glob("nodes/*/*/meta.properties")):
        run.text(str(path.relative_to(run.path)), r"^cluster\.id=.*\n", "")


@mutation(unknown("meta.properties of the unknown version 99"))
def the_properties_of_a_node_have_an_unknown_version(run: Stored) -> None:
    run.text("nodes/n1/data/meta.properties", r"^version=1$", "version=99")
