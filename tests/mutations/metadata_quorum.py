"""Mutations of the evidence of the metadata quorum: its logs, its votes on disk, the nodes' traces of it."""

import json
from collections.abc import Callable
from typing import Any

from tests.mutations.mutation import Catalog, fails, unknown
from tests.mutations.segments import (
    Batches,
    epoch_of,
    flipped,
    of_batches,
    rebased,
    summed,
    with_epoch,
)
from tests.mutations.stored import FIRST_SEGMENT, Stored

mutation = Catalog("metadata quorum")

LOG = "nodes/n2/data/__cluster_metadata-0"
SEGMENT = f"{LOG}/{FIRST_SEGMENT}"
STATE = f"{LOG}/quorum-state"
TRACE = "nodes/n2/events.jsonl"
TELLS = unknown("n2", "metadata|quorum|trace|event|vote")
SOMEHOW = (TELLS, fails())

Event = dict[str, Any]


def of_trace(run: Stored, change: Callable[[list[Event]], list[Event]], *, node: str = "n2") -> None:
    """Another trace of a node, of whole lines, each process's in a row."""
    path = f"nodes/{node}/events.jsonl"

    def changed(data: bytes) -> bytes:
        events = change([json.loads(line) for line in data.splitlines()])
        starts = [n for n, each in enumerate(events) if each["event"] == "broker_started"]
        numbers = [n - max((start for start in starts if start <= n), default=0) for n in range(len(events))]
        return b"".join(
            json.dumps(each | {"seq": number}).encode() + b"\n" for each, number in zip(events, numbers, strict=True)
        )

    run.edit(path, changed)


def leader_of(run: Stored) -> tuple[str, int]:
    """A node that led the quorum, as its trace says, and in which epoch."""
    for node in run.nodes():
        for line in (run / f"nodes/{node}/events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "quorum_role" and event["role"] == "leader":
                return node, event["epoch"]
    raise AssertionError("no trace names a leader of the quorum")


# ---- its logs


mutation.add("a nodes log deleted", lambda run: run.remove(LOG), TELLS)
mutation.add(
    "all logs deleted", lambda run: run.remove("nodes/*/data/__cluster_metadata-0"), unknown("metadata|quorum")
)
mutation.add("a nodes log emptied", lambda run: run.empty(LOG), *SOMEHOW)
mutation.add("a nodes segment deleted", lambda run: run.remove(SEGMENT), *SOMEHOW)
mutation.add("a nodes segment emptied", lambda run: run.empty(SEGMENT), *SOMEHOW)
mutation.add("a nodes segment torn", lambda run: run.edit(SEGMENT, lambda data: data[:-13]), *SOMEHOW)


@mutation(*SOMEHOW)
def half_of_a_nodes_log_gone(run: Stored) -> None:
    """Its own trace says that more had been committed."""
    run.edit(SEGMENT, of_batches(lambda batches: batches[: len(batches) // 2]))


@mutation(unknown("metadata|quorum"), fails())
def half_of_all_logs_gone(run: Stored) -> None:
    for node in run.nodes():
        run.edit(
            f"nodes/{node}/data/__cluster_metadata-0/{FIRST_SEGMENT}",
            of_batches(lambda batches: batches[: len(batches) // 2]),
        )


def _in_the_middle(change: Callable[[bytes], bytes]) -> Callable[[Batches], Batches]:
    def changed(batches: Batches) -> Batches:
        middle = len(batches) // 2
        return [*batches[:middle], change(batches[middle]), *batches[middle + 1 :]]

    return changed


@mutation(fails())
def a_record_forged_on_one(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(_in_the_middle(lambda batch: summed(flipped(batch, len(batch) - 3)))))


@mutation(*SOMEHOW)
def a_record_damaged_on_one(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(_in_the_middle(lambda batch: flipped(batch, len(batch) - 3))))


@mutation(fails(), unknown("metadata|quorum"))
def a_record_forged_on_all(run: Stored) -> None:
    """What was applied is in the traces, by its digest."""
    for node in run.nodes():
        run.edit(
            f"nodes/{node}/data/__cluster_metadata-0/{FIRST_SEGMENT}",
            of_batches(lambda batches: [*batches[:5], summed(flipped(batches[5], len(batches[5]) - 3)), *batches[6:]]),
        )


@mutation(fails())
def a_batch_of_another_epoch_on_one(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(_in_the_middle(lambda batch: with_epoch(batch, epoch_of(batch) + 1))))


@mutation(fails())
def a_batch_taken_out_on_one(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(lambda batches: rebased([*batches[:4], *batches[5:]])))


@mutation(fails())
def two_batches_swapped_on_one(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(lambda batches: rebased([*batches[:4], batches[5], batches[4], *batches[6:]])))


@mutation(*SOMEHOW)
def a_batch_of_an_unknown_format(run: Stored) -> None:
    run.edit(SEGMENT, of_batches(_in_the_middle(lambda batch: batch[:16] + b"\x07" + batch[17:])))


mutation.add(
    "replaced by a partitions log", lambda run: run.copy(f"nodes/n2/data/log-0/{FIRST_SEGMENT}", SEGMENT), *SOMEHOW
)
mutation.add("leader epochs deleted", lambda run: run.remove(f"{LOG}/leader-epoch-checkpoint"), *SOMEHOW)


@mutation(*SOMEHOW)
def leader_epochs_garbled(run: Stored) -> None:
    run.edit(f"{LOG}/leader-epoch-checkpoint", lambda _: b"nothing of the kind\n")


@mutation(fails("epoch-start-mismatch"), *SOMEHOW)
def an_epoch_starts_elsewhere(run: Stored) -> None:
    run.text(f"{LOG}/leader-epoch-checkpoint", r"^(\d+) (\d+)\n\Z", r"\1 \g<2>9\n")


# ---- what nodes know of elections


def of_state(run: Stored, **fields: object) -> None:
    run.edit(STATE, lambda data: json.dumps(json.loads(data) | fields).encode())


mutation.add("a nodes state deleted", lambda run: run.remove(STATE), TELLS)
mutation.add("a nodes state emptied", lambda run: run.empty(STATE), TELLS)
mutation.add("a nodes state garbled", lambda run: run.edit(STATE, lambda data: b"{" + data[4:]), TELLS)
mutation.add("a nodes state of an earlier epoch", lambda run: of_state(run, leaderEpoch=0), *SOMEHOW)
mutation.add("a nodes state of a later epoch", lambda run: of_state(run, leaderEpoch=99), *SOMEHOW)


@mutation(*SOMEHOW)
def a_node_knows_another_leader(run: Stored) -> None:
    def change(data: bytes) -> bytes:
        state = json.loads(data)
        return json.dumps(state | {"leaderId": state["leaderId"] % 3 + 1}).encode()

    run.edit(STATE, change)


@mutation(unknown("vote|quorum"), fails())
def votes_were_given_to_another(run: Stored) -> None:
    """All nodes voted for a node that did not become leader."""
    for node in run.nodes():

        def change(data: bytes) -> bytes:
            state = json.loads(data)
            return json.dumps(state | {"votedId": state["leaderId"] % 3 + 1}).encode()

        run.edit(f"nodes/{node}/data/__cluster_metadata-0/quorum-state", change)


mutation.add("a node voted for an unknown node", lambda run: of_state(run, votedId=8), *SOMEHOW)


@mutation(unknown("quorum-state file of n", "but the node last reported"), fails("two-votes"))
def a_nodes_state_is_another_nodes(run: Stored) -> None:
    """That of a node that has another vote; if all have the same, of one that did not vote. The other vote may be a
    second one in its epoch."""
    files = {node: f"nodes/{node}/data/__cluster_metadata-0/quorum-state" for node in run.nodes()}
    states = {node: json.loads((run / name).read_bytes()) for node, name in files.items()}
    votes = {node: state["votedId"] for node, state in states.items()}
    one, other = next(((a, b) for a in votes for b in votes if votes[a] != votes[b]), ("n1", ""))
    state = states[other] if other else states[one] | {"votedId": -1}
    run.edit(files[one], lambda _: json.dumps(state).encode())


mutation.add(
    "a node knows other voters", lambda run: of_state(run, currentVoters=[{"voterId": 1}, {"voterId": 2}]), *SOMEHOW
)


# ---- the traces


mutation.add("a trace deleted", lambda run: run.remove(TRACE), TELLS)
mutation.add("a trace emptied", lambda run: run.empty(TRACE), TELLS)
mutation.add("all traces deleted", lambda run: run.remove("nodes/*/events.jsonl"), unknown("trace|event"))
mutation.add("a trace torn in its middle", lambda run: run.edit(TRACE, lambda data: data[: len(data) // 2]), TELLS)
mutation.add("a trace ends in its middle", lambda run: of_trace(run, lambda events: events[: len(events) // 2]), TELLS)
mutation.add(
    "a trace lacks its first events", lambda run: of_trace(run, lambda events: events[len(events) // 2 :]), TELLS
)


@mutation(TELLS)
def a_trace_has_a_garbled_line(run: Stored) -> None:
    run.edit(TRACE, lambda data: data.replace(b'{"event":"quorum_high_watermark"', b'{"event""quorum_high', 1))


@mutation(TELLS)
def a_trace_lacks_a_line(run: Stored) -> None:
    run.edit(TRACE, lambda data: b"".join([*data.splitlines(keepends=True)[:20], *data.splitlines(keepends=True)[21:]]))


@mutation(TELLS)
def a_trace_has_a_line_twice(run: Stored) -> None:
    run.edit(TRACE, lambda data: b"".join([*data.splitlines(keepends=True)[:20], *data.splitlines(keepends=True)[19:]]))


@mutation(unknown("trace of n2", "twice"))
def a_trace_is_there_twice(run: Stored) -> None:
    """The processes of a copy behind it have forgotten nothing."""
    run.edit(TRACE, lambda data: data + data)


@mutation(unknown("names the voters"))
def elections_were_of_other_voters(run: Stored) -> None:
    """By the traces of all nodes: the leader alone is a majority of these voters."""

    def change(events: list[Event]) -> list[Event]:
        alone = {"quorum_leader_change": ("voters", "granting")}
        return [each | {key: [each["leader"]] for key in alone.get(each["event"], ())} for each in events]

    for node in run.nodes():
        of_trace(run, change, node=node)


@mutation(*SOMEHOW)
def a_trace_lacks_what_it_says_of_the_quorum(run: Stored) -> None:
    of_trace(run, lambda events: [each for each in events if not each["event"].startswith("quorum")])


def no_digests(run: Stored, node: str) -> None:
    of_trace(run, lambda events: [each | {"digest": None} if "digest" in each else each for each in events], node=node)


mutation.add("a trace has no digests", lambda run: no_digests(run, "n2"), unknown("n2", "digest"))


@mutation(unknown("n1", "digest"))
def no_trace_has_digests(run: Stored) -> None:
    for node in run.nodes():
        no_digests(run, node)


mutation.add("a trace is another nodes", lambda run: run.copy("nodes/n1/events.jsonl", TRACE), *SOMEHOW)
mutation.add("two traces swapped", lambda run: run.swap("nodes/n3/events.jsonl", TRACE), *SOMEHOW)


@mutation(fails())
def two_leaders_of_one_epoch(run: Stored) -> None:
    leader, epoch = leader_of(run)
    other = next(node for node in run.nodes() if node != leader)
    number = int(other[1:])

    def change(events: list[Event]) -> list[Event]:
        # A node that was down may not have reported this epoch; then it claims it after the last one that it reported.
        at = max(n for n, each in enumerate(events) if each["event"] == "quorum_role" and each["epoch"] <= epoch)
        claim = events[at] | {"role": "leader", "epoch": epoch, "leader": number}
        return [*events[: at + 1], claim, *events[at + 1 :]]

    of_trace(run, change, node=other)


@mutation(fails())
def a_high_watermark_fell(run: Stored) -> None:
    def change(events: list[Event]) -> list[Event]:
        marks = [n for n, each in enumerate(events) if each["event"] == "quorum_high_watermark"]
        at = marks[len(marks) // 2]
        return [*events[: at + 1], events[at] | {"offset": 1}, *events[at + 1 :]]

    of_trace(run, change)


@mutation(fails(), unknown("n2", "high watermark|committed|metadata"))
def a_high_watermark_beyond_the_log(run: Stored) -> None:
    def change(events: list[Event]) -> list[Event]:
        at = max(n for n, each in enumerate(events) if each["event"] == "quorum_high_watermark")
        return [*events[:at], events[at] | {"offset": 9_999}, *events[at + 1 :]]

    of_trace(run, change)


@mutation(fails(), unknown("n2"))
def an_epoch_fell(run: Stored) -> None:
    def change(events: list[Event]) -> list[Event]:
        at = max(n for n, each in enumerate(events) if each["event"] == "quorum_role")
        return [*events[: at + 1], events[at] | {"epoch": 0, "role": "follower"}, *events[at + 1 :]]

    of_trace(run, change)


@mutation(fails(), unknown("log-0", "committed|high watermark"))
def a_partition_had_committed_more_than_it_has(run: Stored) -> None:
    """A replica said that it held and knew as committed what is in no log."""

    def change(events: list[Event]) -> list[Event]:
        reports = (n for n, each in enumerate(events) if each["event"] == "replica_progress")
        at = max(n for n in reports if (events[n]["topic"], events[n]["partition"]) == ("log", 0))
        more = {"log_end_offset": 9_999, "high_watermark": 9_999}
        return [*events[: at + 1], events[at] | more, *events[at + 1 :]]

    of_trace(run, change)
