"""Mutations of the earlier dumps of the nodes' files, which are compared with those at the end."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.mutations.mutation import PASSES, Catalog, Change, Want, fails, unknown
from tests.mutations.segments import EPOCH_AT, of_batches, put
from tests.mutations.stored import FIRST_SEGMENT, Line, Stored

DOUBT: Final = unknown("earlier dump")
MARKS: Final = "replication-offset-checkpoint"
SEGMENT: Final = f"nodes/n2/earlier/log-0/{FIRST_SEGMENT}"
METADATA_DIRECTORY: Final = "nodes/n1/earlier/__cluster_metadata-0"
METADATA: Final = f"{METADATA_DIRECTORY}/{FIRST_SEGMENT}"
EPOCHS: Final = "leader-epoch-checkpoint"
WHOSE: Final = "nodes/n1/earlier/meta.properties"
ANOTHER: Final = "cluster.id=another"
OTHER_EPOCHS: Final = {
    "an epoch too few": ((0, 0),),
    "an epoch too early": ((0, 0), (1, 1), (2, 2)),
    "falling epochs": ((1, 0), (0, 3)),
}


def _dumps(line: Line) -> bool:
    return "dumped" in line


def _in_every_dump(name: str, pattern: str, replacement: str) -> Change:
    def change(run: Stored) -> None:
        for node in run.nodes():
            run.text(f"nodes/{node}/earlier/{name}", pattern, replacement)

    return change


def _starting_later(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(lambda batches: batches[2:]))
    path = run / SEGMENT
    path.rename(path.with_name(f"{int.from_bytes(path.read_bytes()[:8], 'big'):020d}.log"))


def _from_before_most_was_acknowledged(run: Stored) -> None:
    """On all nodes, with the marks that belong to it."""
    for node in run.nodes():
        run.edit(f"nodes/{node}/earlier/log-0/{FIRST_SEGMENT}", of_batches(lambda batches: batches[:2]))
        run.text(f"nodes/{node}/earlier/{MARKS}", r"^log 0 \d+$", "log 0 1")


def _reported_for(*nodes: str) -> Change:
    return lambda run: run.change_lines(_dumps, lambda line: line.update(dumped=list(nodes)))


def _one_fewer(run: Stored) -> None:
    _reported_for("n1", "n2")(run)
    run.remove("nodes/n3/earlier")


def _without_a_journal_line(run: Stored) -> None:
    run.drop_lines(_dumps)
    run.remove("nodes/*/earlier")


def _torn_behind_its_mark(run: Stored) -> None:
    """As one may be that was made while the service wrote."""
    run.edit(SEGMENT, lambda data: data + data[:30])


def _of_another_disk(run: Stored) -> None:
    for place in ("earlier", "data"):
        run.text(f"nodes/n1/{place}/meta.properties", r"^directory\.id=.*$", f"directory.id={'A' * 21}g")


def _half_of_the_metadata(run: Stored) -> None:
    run.edit(METADATA, of_batches(lambda batches: batches[: len(batches) // 2]))


def _before_a_snapshot(run: Stored) -> None:
    """The snapshot is durable before the log is started again at its end."""
    _half_of_the_metadata(run)
    run.copy(f"{METADATA_DIRECTORY}/quorum-state", f"{METADATA_DIRECTORY}/{1 << 20:020d}-0000000001.checkpoint")


def _shortened(at: Callable[[int], int]) -> Change:
    return lambda run: run.edit(SEGMENT, of_batches(lambda batches: batches[: at(len(batches))]))


def _epochs(name: str, *entries: tuple[int, int]) -> Change:
    """An epoch file with these entries (epoch, start offset)."""
    text = "".join(f"{line}\n" for line in ("0", len(entries), *(f"{epoch} {start}" for epoch, start in entries)))
    return lambda run: run.edit(name, lambda _: text.encode())


def changes() -> Iterator[tuple[str, Change, Want]]:
    """By name, each with what is honest then."""
    missing = {
        "all": "nodes/*/earlier",
        "one": "nodes/n1/earlier",
        "a partition": "nodes/n3/earlier/log-0",
        "a partition everywhere": "nodes/*/earlier/log-0",
        "a segment": SEGMENT,
        "its marks": f"nodes/n1/earlier/{MARKS}",
        "its epochs": "nodes/n2/earlier/log-0/leader-epoch-checkpoint",
        "the node of a dump": WHOSE,
        "the topic of a partition": "nodes/n1/earlier/log-0/partition.metadata",
    }
    for what, name in missing.items():
        yield f"missing: {what}", lambda run, name=name: run.remove(name), DOUBT  # type: ignore[misc]
    for name in ("nodes/n1/earlier", "nodes/n2/earlier/log-0", SEGMENT, f"nodes/n3/earlier/{MARKS}"):
        yield f"emptied: {name}", lambda run, name=name: run.empty(name), DOUBT  # type: ignore[misc]
    yield "of another node", lambda run: run.copy("nodes/n2/earlier", "nodes/n1/earlier"), DOUBT
    yield (
        "of another node by its word",
        lambda run: run.text("nodes/n1/earlier/meta.properties", r"^node\.id=1$", "node.id=3"),
        DOUBT,
    )
    yield (
        "of another cluster",
        lambda run: run.text("nodes/n1/earlier/meta.properties", r"^cluster.*", ANOTHER),
        DOUBT,
    )
    yield (
        "of another topic",
        _in_every_dump("log-0/partition.metadata", r"^topic_id: .*", "topic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
        DOUBT,
    )
    yield "without the mark of a partition", _in_every_dump(MARKS, r"^log 0 \d+\n", ""), DOUBT
    yield "with a mark of nothing", lambda run: run.text(f"nodes/n1/earlier/{MARKS}", r"^log 0 ", "log 7 "), DOUBT
    yield "shorter than its mark", _shortened(lambda count: count // 2), DOUBT
    yield "without a record", _shortened(lambda count: count - count), DOUBT
    yield "with a hole", lambda run: run.edit(SEGMENT, of_batches(lambda them: [*them[:2], *them[3:]])), DOUBT
    yield "starting later", _starting_later, DOUBT
    yield "from before most was acknowledged", _from_before_most_was_acknowledged, DOUBT
    yield "without a line for one node", _reported_for("n1", "n2"), DOUBT
    yield "of no node of the plan", _reported_for("n1", "n2", "n3", "n9"), DOUBT
    yield "one fewer", _one_fewer, DOUBT
    yield "without any line", _without_a_journal_line, DOUBT
    yield (
        "with two lines",
        lambda run: run.insert_line(_dumps, event="note", text="again", dumped=["n1", "n2", "n3"]),
        DOUBT,
    )
    yield "with an empty line", _reported_for(), DOUBT
    yield (
        "of another directory",
        lambda run: run.text("nodes/n1/earlier/meta.properties", r"^directory\.id=.*$", f"directory.id={'A' * 22}"),
        DOUBT,
    )
    yield (
        "with a lower mark than its node had written",
        lambda run: run.text(f"nodes/n1/earlier/{MARKS}", r"^log 0 \d+$", "log 0 1"),
        DOUBT,
    )
    yield "of another directory, and so in the end", _of_another_disk, unknown("of another disk")
    yield "without an election state", lambda run: run.remove(f"{METADATA_DIRECTORY}/quorum-state"), DOUBT
    yield "without the metadata's epochs", lambda run: run.remove(f"{METADATA_DIRECTORY}/{EPOCHS}"), DOUBT
    for name in ("quorum-state", EPOCHS):
        path = f"{METADATA_DIRECTORY}/{name}"
        yield f"with an empty {name}", lambda run, path=path: run.empty(path), DOUBT  # type: ignore[misc]
        yield (
            f"with a torn {name}",
            lambda run, path=path: run.edit(path, lambda data: data[: len(data) // 2]),  # type: ignore[misc]
            DOUBT,
        )
    yield "without the metadata log", lambda run: run.remove("nodes/n1/earlier/__cluster_metadata-0"), DOUBT
    yield "with an empty metadata log", lambda run: run.empty(METADATA), DOUBT
    yield (
        "with other metadata",
        lambda run: run.edit(METADATA, of_batches(lambda them: [put(them[0], EPOCH_AT, ">i", 77), *them[1:]])),
        fails("prefix-changed"),
    )
    yield "with half of the metadata", _half_of_the_metadata, DOUBT
    yield "with half of the metadata, before its node starts from a snapshot", _before_a_snapshot, PASSES
    for directory in ("nodes/n2/earlier/log-0", METADATA_DIRECTORY):
        for what, entries in OTHER_EPOCHS.items():
            yield f"with {what} in {directory}", _epochs(f"{directory}/{EPOCHS}", *entries), unknown("epoch file")
    yield "torn behind its mark", _torn_behind_its_mark, PASSES
    yield (
        "with other records",
        lambda run: run.edit(SEGMENT, of_batches(lambda them: [put(them[0], EPOCH_AT, ">i", 77), *them[1:]])),
        fails("prefix-changed"),
    )


def _catalog(base: str) -> Catalog:
    catalog = Catalog(f"earlier dumps of the {base} run", base=base)
    for name, change, want in changes():
        catalog.add(name, change, want)
    return catalog


CATALOGS: Final = tuple(map(_catalog, ("log", "simulated")))
