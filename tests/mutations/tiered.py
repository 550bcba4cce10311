"""Mutations of a run with tiered storage: each object, event of the metadata, report and file of a node is lost,
damaged or exchanged. None of them may stay a pass."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.mutations.mutation import Catalog, Want, fails, unknown
from tests.mutations.segments import Batches, rebased, split
from tests.mutations.stored import Line, Stored, event

mutation = Catalog("tiered storage", base="tiered")

NO_PASS: Final[tuple[Want, ...]] = (unknown(), fails())
TOPIC: Final = "__remote_log_metadata"
SUFFIXES: Final = (".log", ".index", ".epochs", ".snapshot")
PLACES: Final[dict[str, Callable[[Sequence[Path]], Path]]] = {
    "first": lambda paths: paths[0],
    "middle": lambda paths: paths[len(paths) // 2],
    "last": lambda paths: paths[-1],
}
Harm = Callable[[Path], None]


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x41
    path.write_bytes(bytes(data))


def _end(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


HARMS: Final[dict[str, Harm]] = {
    "removed": Path.unlink,
    "emptied": _empty,
    "cut in the middle": _cut,
    "without its last byte": _end,
    "with a wrong byte": _flip,
}


def _objects(run: Stored, suffix: str) -> list[Path]:
    """The objects of this kind of complete segments, by offset."""
    found = sorted((run / "shared").rglob(f"*{suffix}"))
    assert len(found) > 2, f"the base run has {len(found)} objects {suffix}"
    return found


# ---- objects


def _harm_object(suffix: str, place: str, harm: Harm) -> Callable[[Stored], None]:
    return lambda run: harm(PLACES[place](_objects(run, suffix)))


def _exchange(suffix: str, one: int, other: int) -> Callable[[Stored], None]:
    def change(run: Stored) -> None:
        paths = _objects(run, suffix)
        first, second = paths[one].read_bytes(), paths[other].read_bytes()
        assert first != second, f"the objects {suffix} are equal"
        paths[one].write_bytes(second)
        paths[other].write_bytes(first)

    return change


def _remove_all(suffix: str) -> Callable[[Stored], None]:
    def change(run: Stored) -> None:
        for path in _objects(run, suffix):
            path.unlink()

    return change


for suffix in SUFFIXES:
    for place in PLACES:
        for name, harm in HARMS.items():
            mutation.add(f"the {place} object {suffix} is {name}", _harm_object(suffix, place, harm), *NO_PASS)
    mutation.add(f"no segment has an object {suffix}", _remove_all(suffix), *NO_PASS)
    if suffix != ".epochs":  # those of neighbours may be equal
        mutation.add(f"neighbours exchange their objects {suffix}", _exchange(suffix, 1, 2), *NO_PASS)
    mutation.add(f"the first and the last exchange their objects {suffix}", _exchange(suffix, 0, -1), *NO_PASS)


def _other_kind(suffix: str, other: str) -> Callable[[Stored], None]:
    def change(run: Stored) -> None:
        _objects(run, suffix)[1].write_bytes(_objects(run, other)[1].read_bytes())

    return change


for suffix, other in zip(SUFFIXES, (*SUFFIXES[1:], SUFFIXES[0]), strict=True):
    mutation.add(f"an object {suffix} has the content of {other}", _other_kind(suffix, other), *NO_PASS)


mutation.add("the store is missing", lambda run: run.remove("shared"), *NO_PASS)


@mutation(*NO_PASS)
def an_object_is_of_no_segment(run: Stored) -> None:
    path = _objects(run, ".log")[0]
    path.with_name(f"{path.name[:20]}-{'ab' * 16}.log").write_bytes(path.read_bytes())


# ---- the metadata topic


def _metadata(run: Stored, node: str = "*") -> list[Path]:
    """The segments of the metadata's partition with most events."""
    found = sorted(run.path.glob(f"nodes/{node}/data/{TOPIC}-*/*.log"), key=lambda path: -path.stat().st_size)
    return [path for path in found if path.parent.name == found[0].parent.name]


def _events(change: Callable[[Batches], Batches], node: str = "*") -> Callable[[Stored], None]:
    def apply(run: Stored) -> None:
        for path in _metadata(run, node):
            before = path.read_bytes()
            after = b"".join(rebased(change(split(before))))
            assert after != before
            path.write_bytes(after)

    return apply


def _remove(name: str) -> Callable[[Stored], None]:
    return lambda run: run.remove(name)


def _without(number: int) -> Callable[[Batches], Batches]:
    return lambda batches: [each for at, each in enumerate(batches) if at != number % len(batches)]


for number in (0, 1, 2, 3, -2, -1):
    mutation.add(f"event {number} is on no node", _events(_without(number)), *NO_PASS)
    mutation.add(f"event {number} is not on one node", _events(_without(number), "n2"), *NO_PASS)
mutation.add("the last half of the events is on no node", _events(lambda all: all[: len(all) // 2]), *NO_PASS)
mutation.add("events are in another order", _events(lambda all: [all[1], all[0], *all[2:]]), *NO_PASS)
mutation.add("the last event comes twice on one node", _events(lambda all: [*all, all[-1]], "n1"), *NO_PASS)
for node in ("n1", "n2", "n3"):
    for name, harm in HARMS.items():
        mutation.add(
            f"the events on {node} are {name}",
            lambda run, node=node, harm=harm: harm(_metadata(run, node)[0]),  # type: ignore[misc]
            *NO_PASS,
        )
    mutation.add(f"{node} has no replica of the events", _remove(f"nodes/{node}/data/{TOPIC}-*"), *NO_PASS)


mutation.add("no node has events", lambda run: run.remove(f"nodes/*/data/{TOPIC}-*"), *NO_PASS)


# ---- earlier dumps of the metadata topic


def _dumped(run: Stored, node: str) -> Path:
    """The segment of an earlier dump with most events on a node."""
    found = sorted(run.path.glob(f"nodes/{node}/earlier/{TOPIC}-*/*.log"), key=lambda path: -path.stat().st_size)
    assert found[0].stat().st_size, f"the earlier dump of {node} has no events"
    return found[0]


for node in ("n1", "n2", "n3"):
    for name, harm in HARMS.items():
        if name != "without its last byte":  # a copy of a running node's file may end in a torn batch
            mutation.add(
                f"the events in the earlier dump of {node} are {name}",
                lambda run, node=node, harm=harm: harm(_dumped(run, node)),  # type: ignore[misc]
                *NO_PASS,
            )
    mutation.add(
        f"the earlier dump of {node} has no replica of the events",
        _remove(f"nodes/{node}/earlier/{TOPIC}-*"),
        *NO_PASS,
    )


@mutation(*NO_PASS)
def an_event_of_an_earlier_dump_is_another(run: Stored) -> None:
    path = _dumped(run, "n2")
    before = split(path.read_bytes())
    path.write_bytes(b"".join(rebased([before[1], *before[1:]])))


# ---- reports


REPORTS: Final = ("replica_starts", "remote_segment", "bootstrapped", "partition_role", "replica_progress", "truncated")


def _silence(kind: str, nodes: Sequence[str], *, renumbered: bool) -> Callable[[Stored], None]:
    """The brokers on these nodes lose the reports of a kind, or never made them."""

    def change(run: Stored) -> None:
        lost = 0
        for node in nodes:
            path = run / f"nodes/{node}/events.jsonl"
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            kept = [line for line in lines if line["event"] != kind]
            lost += len(lines) - len(kept)
            path.write_text("".join(json.dumps(line) + "\n" for line in (_numbered(kept) if renumbered else kept)))
        assert lost, f"the base run has no {kind}"

    return change


def _numbered(lines: list[Line]) -> list[Line]:
    number = 0
    for line in lines:
        number = 0 if line["seq"] == 0 else number + 1
        line["seq"] = number
    return lines


ALL_NODES: Final = ("n1", "n2", "n3")
for kind in REPORTS:
    mutation.add(f"{kind} is lost on all nodes", _silence(kind, ALL_NODES, renumbered=False), *NO_PASS)
for kind in ("replica_starts", "remote_segment", "bootstrapped", "partition_role", "replica_progress"):
    mutation.add(f"brokers never report {kind}", _silence(kind, ALL_NODES, renumbered=True), *NO_PASS)
for node in ALL_NODES:
    for name, harm in HARMS.items():
        if name not in ("with a wrong byte", "without its last byte"):  # the last byte is a line's end
            mutation.add(
                f"the reports of {node} are {name}",
                lambda run, node=node, harm=harm: harm(run / f"nodes/{node}/events.jsonl"),  # type: ignore[misc]
                *NO_PASS,
            )


# ---- files of nodes


FILES: Final = (
    "log-0/leader-epoch-checkpoint",
    "log-0/partition.metadata",
    "replication-offset-checkpoint",
    "meta.properties",
    "__cluster_metadata-0/quorum-state",
    "__cluster_metadata-0/00000000000000000000.log",
)
for node in ALL_NODES:
    for file in FILES:
        for name in ("removed", "emptied", "cut in the middle"):
            mutation.add(
                f"{file} of {node} is {name}",
                lambda run, node=node, file=file, name=name: HARMS[name](run / f"nodes/{node}/data/{file}"),  # type: ignore[misc]
                *NO_PASS,
            )
    for name in ("emptied", "cut in the middle"):
        mutation.add(
            f"log-0/remote-log-start of {node} is {name}",
            lambda run, node=node, name=name: HARMS[name](run / f"nodes/{node}/data/log-0/remote-log-start"),  # type: ignore[misc]
            *NO_PASS,
        )
    for place in PLACES:
        for name, harm in HARMS.items():
            mutation.add(
                f"the {place} segment of {node} is {name}",
                lambda run, node=node, place=place, harm=harm: harm(  # type: ignore[misc]
                    PLACES[place](sorted(run.path.glob(f"nodes/{node}/data/log-0/*.log")))
                ),
                *NO_PASS,
            )


# ---- a new replica


mutation.add("the journal has no new replica", lambda run: run.drop_lines(event("joined")), *NO_PASS)


@mutation(*NO_PASS)
def the_journal_has_neither_the_new_replica_nor_its_assignment(run: Stored) -> None:
    run.drop_lines(lambda line: line["event"] in ("joined", "reassigned"))


@mutation(*NO_PASS)
def the_new_replica_started_elsewhere(run: Stored) -> None:
    run.change_lines(
        event("joined"),
        lambda line: line.update(
            segments=[0, *line["segments"]],
            before=line["before"] | {"pending-upload": 0},
            after=line["after"] | {"pending-upload": 0},
        ),
    )


def _epochs_of(node: str, change: Callable[[list[str]], list[str]]) -> Callable[[Stored], None]:
    """The epoch file of a node at the end has other entries."""

    def apply(run: Stored) -> None:
        path = run / f"nodes/{node}/data/log-0/leader-epoch-checkpoint"
        version, _, *entries = path.read_text().splitlines()
        changed = change(entries)
        assert changed != entries
        path.write_text("\n".join([version, str(len(changed)), *changed]) + "\n")

    return apply


for node in ("n1", "n3"):
    mutation.add(f"{node} lacks the oldest epoch", _epochs_of(node, lambda entries: entries[1:]), *NO_PASS)
    mutation.add(f"{node} has the last epoch only", _epochs_of(node, lambda entries: entries[-1:]), *NO_PASS)
    mutation.add(f"{node} has no epoch", _epochs_of(node, lambda _: []), *NO_PASS)
    mutation.add(
        f"{node} has an epoch that nobody else has", _epochs_of(node, lambda all: [all[0], "1 30", *all[2:]]), *NO_PASS
    )


# ---- lookups


mutation.add("lookups are missing", lambda run: run.remove("history/lookups"), *NO_PASS)
