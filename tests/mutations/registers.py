"""Mutations of the record of a run with registers."""

from collections.abc import Callable

from history.record.schemas import CAS, FAIL, OK, READ, WRITE
from tests.mutations.mutation import Catalog, fails, unknown
from tests.mutations.stored import Stored
from tests.mutations.streams import OPERATIONS, Row, borders, rewrite, rows_of

mutation = Catalog("registers", base="register")

CLIENT = f"{OPERATIONS}/client-1-1"
PROBE, READER = "probe-1.registers", "reader-1-1.registers"
TELLS = unknown("client-1")
FINAL = unknown("reader-1|read after healing")
WRONG = fails("stale-register-read", "non-linearizable-register", "register-phantom")

Rows = list[Row]


def busiest(run: Stored) -> str:
    """The stream of the client with the most operations."""
    return max((run / OPERATIONS).glob("client-*.registers"), key=lambda path: len(rows_of(path))).name


def last(f: int, change: Callable[[Row], None], *, type: int = OK) -> Callable[[Rows], Rows]:
    """A change of all rows from one of the last row of a kind."""

    def changed(rows: Rows) -> Rows:
        change([row for row in rows if row["f"] == f and row["type"] == type][-1])
        return rows

    return changed


mutation.add("a clients files deleted", lambda run: run.remove(f"{CLIENT}.*"), TELLS)
mutation.add("a record deleted", lambda run: run.remove(f"{CLIENT}.registers"), TELLS)
mutation.add("the announcements deleted", lambda run: run.remove(f"{CLIENT}.invoked"), TELLS)
mutation.add("the announcements emptied", lambda run: run.empty(f"{CLIENT}.invoked"), TELLS)


@mutation(TELLS)
def the_announcements_lack_a_line(run: Stored) -> None:
    run.edit(
        f"{CLIENT}.invoked",
        lambda data: b"".join([*data.splitlines(keepends=True)[:1], *data.splitlines(keepends=True)[2:]]),
    )


mutation.add("the probes files deleted", lambda run: run.remove(f"{OPERATIONS}/probe-1.*"), unknown("probe"))
mutation.add("the final readers files deleted", lambda run: run.remove(f"{OPERATIONS}/reader-1-1.*"), FINAL)
mutation.add("the final readers record emptied", lambda run: run.empty(f"{OPERATIONS}/{READER}"), FINAL)
mutation.add("all files deleted", lambda run: run.empty(OPERATIONS), unknown("client|record|operation|register|read"))


@mutation(TELLS)
def a_record_cut_in_the_middle(run: Stored) -> None:
    run.edit(f"{CLIENT}.registers", lambda data: data[: len(data) // 2])


@mutation(TELLS)
def a_record_cut_before_its_last_batch(run: Stored) -> None:
    path = run / f"{CLIENT}.registers"
    path.write_bytes(path.read_bytes()[: borders(path)[-2]])


@mutation(TELLS)
def a_record_cut_behind_its_last_batch(run: Stored) -> None:
    path = run / f"{CLIENT}.registers"
    path.write_bytes(path.read_bytes()[: borders(path)[-1]])


@mutation(TELLS)
def two_clients_records_swapped(run: Stored) -> None:
    run.swap(f"{CLIENT}.registers", f"{OPERATIONS}/client-2-1.registers")


@mutation(unknown("client-9|client-1"))
def a_clients_files_doubled_under_another_name(run: Stored) -> None:
    for kind in ("registers", "invoked"):
        run.copy(f"{CLIENT}.{kind}", f"{OPERATIONS}/client-9-1.{kind}")


@mutation(unknown("client-"))
def an_acknowledged_write_removed(run: Stored) -> None:
    rewrite(
        run,
        busiest(run),
        lambda rows: [row for row in rows if row is not next(r for r in rows if r["f"] == WRITE)],
        recount=False,
    )


@mutation(FINAL)
def the_final_read_of_a_key_removed(run: Stored) -> None:
    rewrite(run, READER, lambda rows: [row for row in rows if row["key"] != "k1"])


@mutation(FINAL)
def the_final_reads_were_of_the_main_phase(run: Stored) -> None:
    rewrite(run, READER, lambda rows: [row | {"phase": "main"} for row in rows])


@mutation(WRONG)
def the_final_read_shows_an_unwritten_value(run: Stored) -> None:
    rewrite(run, READER, last(READ, lambda row: row.update(value=9 << 48 | 9 << 32 | 9)))


@mutation(WRONG)
def the_final_read_shows_an_absent_key(run: Stored) -> None:
    rewrite(run, READER, last(READ, lambda row: row.update(value=None)))


@mutation(unknown("final reads", "before these started"))
def reads_of_the_main_phase_are_called_final(run: Stored) -> None:
    rewrite(run, busiest(run), lambda rows: [row | {"phase": "final"} if row["f"] == READ else row for row in rows])


def _oldest(run: Stored, key: str) -> int:
    """What was written first to a key."""
    rows = [row for path in (run / OPERATIONS).glob("client-*.registers") for row in rows_of(path)]
    return int(
        min(
            (row for row in rows if row["key"] == key and row["f"] == WRITE and row["type"] == OK),
            key=lambda row: row["ret"],
        )["value"]
    )


@mutation(WRONG)
def the_final_read_shows_an_old_value(run: Stored) -> None:
    rewrite(run, READER, last(READ, lambda row: row.update(value=_oldest(run, row["key"]))))


@mutation(WRONG)
def a_key_was_read_that_had_another_ones_value(run: Stored) -> None:
    def change(row: Row) -> None:
        row["value"] = _oldest(run, "k1" if row["key"] == "k0" else "k0")

    rewrite(run, READER, last(READ, change))


@mutation(WRONG, unknown("client-"))
def a_write_that_was_read_had_failed(run: Stored) -> None:
    rewrite(run, PROBE, last(WRITE, lambda row: row.update(type=FAIL, error="refused")))


@mutation(unknown("client-"), WRONG)
def two_writes_of_one_value(run: Stored) -> None:
    def change(rows: Rows) -> Rows:
        writes = [row for row in rows if row["f"] == WRITE]
        writes[1]["value"] = writes[0]["value"]
        return rows

    rewrite(run, busiest(run), change)


def _otherwise(name: str, change: Callable[[Row], None]) -> None:
    """An acknowledged write that was announced, and not as it is on record."""
    mutation.add(name, lambda run: rewrite(run, busiest(run), last(WRITE, change)), unknown("client-", "announcement"))


_otherwise("a write of another value than was announced", lambda row: row.update(value=row["value"] + (1 << 20)))
_otherwise(
    "a write of another key than was announced", lambda row: row.update(key="k1" if row["key"] == "k0" else "k0")
)
_otherwise("a write invoked earlier than was announced", lambda row: row.update(inv=row["inv"] - 10**9))
_otherwise("a write invoked later than was announced", lambda row: row.update(inv=row["ret"]))
_otherwise("a write that was announced is a read", lambda row: row.update(f=READ))
_otherwise(
    "a write is a compare and set", lambda row: row.update(f=CAS, new=row["value"], value=None, expected=row["value"])
)
_otherwise("a write of another id than was announced", lambda row: row.update(id=row["id"] + (1 << 20)))


@mutation(unknown("client-"))
def an_operation_returned_before_it_was_invoked(run: Stored) -> None:
    rewrite(run, busiest(run), last(WRITE, lambda row: row.update(inv=row["ret"], ret=row["inv"])))


@mutation(unknown("client-"))
def an_operation_of_no_kind(run: Stored) -> None:
    rewrite(run, busiest(run), last(WRITE, lambda row: row.update(f=9)))


@mutation(unknown("client-"))
def an_operation_with_no_outcome(run: Stored) -> None:
    rewrite(run, busiest(run), last(WRITE, lambda row: row.update(type=9)))


@mutation(unknown("client-"))
def an_operation_of_another_client(run: Stored) -> None:
    rewrite(run, busiest(run), last(WRITE, lambda row: row.update(client="reader-1")))


mutation.add(
    "an operation twice", lambda run: rewrite(run, busiest(run), lambda rows: [*rows, rows[-1]]), unknown("client-")
)


@mutation(unknown("client-"), WRONG)
def operations_an_hour_late(run: Stored) -> None:
    hour = 3_600 * 10**9
    rewrite(
        run, busiest(run), lambda rows: [row | {"inv": row["inv"] + hour, "ret": row["ret"] + hour} for row in rows]
    )


mutation.add("more keys were planned", lambda run: run.plan(r"^keys = 2$", "keys = 3"), unknown("k2|keys|register"))
mutation.add("the node deleted", lambda run: run.remove("nodes/n1"), unknown("n1"))
