"""Changes of clients' records in files that are whole.

All other evidence about a client's record agrees with the change: sums, sizes, and mostly the counts of operations too.
So only the rows can reveal the error.
"""

from collections.abc import Callable

from history.record.schemas import APPEND, END, FAIL, OK, READ
from tests.mutations.mutation import Catalog, Want, fails, unknown
from tests.mutations.stored import Stored
from tests.mutations.streams import Row, rewrite

mutation = Catalog("client rows")

Rows = list[Row]
PRODUCER = "producer-1-1.arrows"
CONSUMER = "reader-1-1.arrows"  # in the main phase
READER = "reader-2-1.arrows"  # in the end
TELLS = unknown("producer-1")
HOUR_NS = 3_600 * 10**9


def produced(row: Row) -> bool:
    """An acknowledged append."""
    return bool(row["f"] == APPEND and row["type"] == OK)


def shows(row: Row) -> bool:
    """A read that showed records."""
    return bool(row["f"] == READ and row["type"] == OK and len(row["values"]) > 1)


def one(which: Callable[[Row], bool], change: Callable[[Row], None], *, index: int = 3) -> Callable[[Rows], Rows]:
    """A change of all rows from one of a single row, the one of this index (or the last) among those chosen."""

    def changed(rows: Rows) -> Rows:
        chosen = [row for row in rows if which(row)]
        assert chosen, "no such row"
        change(chosen[min(index, len(chosen) - 1)])
        return rows

    return changed


def setting(name: str, *wants: Want, index: int = 3, **fields: object) -> None:
    """A mutation that sets fields of one of a producer's acknowledged appends."""

    def change(run: Stored) -> None:
        rewrite(run, PRODUCER, one(produced, lambda row: row.update(fields), index=index))

    mutation.add(name, change, *wants)


# ---- rows that are missing or too many


@mutation(TELLS)
def an_acknowledged_append_removed(run: Stored) -> None:
    rewrite(run, PRODUCER, lambda rows: [*rows[:3], *rows[4:]], recount=False)


@mutation(TELLS, fails("duplicate"))
def a_row_doubled_and_counted(run: Stored) -> None:
    rewrite(run, PRODUCER, lambda rows: [*rows[:3], rows[2], *rows[3:]])


@mutation(TELLS)
def a_row_doubled(run: Stored) -> None:
    rewrite(run, PRODUCER, lambda rows: [*rows[:3], rows[2], *rows[3:]], recount=False)


@mutation(unknown("read to its end|reader-2"))
def the_final_read_of_a_partition_removed(run: Stored) -> None:
    rewrite(run, READER, lambda rows: [row for row in rows if row["partition"] != 1])


@mutation(unknown("read to its end|reader-2"))
def the_final_read_has_no_records(run: Stored) -> None:
    rewrite(run, READER, lambda rows: [row for row in rows if row["f"] == END])


@mutation(unknown("read to its end|reader-2"))
def the_final_read_asked_for_no_end(run: Stored) -> None:
    rewrite(run, READER, lambda rows: [row for row in rows if row["f"] == READ])


# ---- rows that say something else


@mutation(unknown("read to its end|reader-2"))
def the_final_read_was_of_the_main_phase(run: Stored) -> None:
    rewrite(run, READER, lambda rows: [row | {"phase": "main"} for row in rows])


def _shorter(rows: Rows) -> Rows:
    """The log's last three records are neither in the final read nor below its end."""
    for row in rows:
        if row["partition"] == 0 and row["f"] == END:
            row["lo"] = row["hi"] = row["lo"] - 3
        elif row["partition"] == 0 and row["values"]:
            end = max(row["offsets"]) - 2
            kept = [
                (offset, value) for offset, value in zip(row["offsets"], row["values"], strict=True) if offset < end
            ]
            row["offsets"], row["values"] = [offset for offset, _ in kept], [value for _, value in kept]
            row["lo"] = min(row["lo"], end)
    return rows


@mutation(fails("lost-acknowledged-write", "stale-read", "committed-then-truncated"))
def the_final_read_is_shorter_than_what_was_acknowledged(run: Stored) -> None:
    rewrite(run, READER, _shorter)


def _swapped(row: Row) -> None:
    row["values"][0], row["values"][1] = row["values"][1], row["values"][0]


@mutation(fails("lost-acknowledged-write", "offset-mismatch", "committed-then-truncated", "duplicate"))
def the_final_read_shows_two_records_swapped(run: Stored) -> None:
    rewrite(run, READER, one(shows, _swapped))


@mutation(fails("lost-acknowledged-write", "offset-mismatch", "committed-then-truncated", "duplicate"))
def a_consumer_saw_two_records_swapped(run: Stored) -> None:
    rewrite(run, CONSUMER, one(shows, _swapped))


@mutation(fails("phantom", "committed-then-truncated"))
def a_consumer_saw_an_unsent_value(run: Stored) -> None:
    def change(row: Row) -> None:
        row["values"][1] = 9 << 48 | 9 << 32 | 9

    rewrite(run, CONSUMER, one(shows, change))


@mutation(fails("poll-skip"), unknown("reader-1"))
def a_consumer_left_out_an_offset(run: Stored) -> None:
    def change(row: Row) -> None:
        middle = len(row["values"]) // 2
        del row["values"][middle], row["offsets"][middle]

    rewrite(run, CONSUMER, one(lambda row: shows(row) and len(row["values"]) > 2, change))


@mutation(unknown("reader-1"), fails("duplicate", "poll-skip", "offset-mismatch", "committed-then-truncated"))
def a_consumer_saw_one_record_at_two_offsets(run: Stored) -> None:
    def change(row: Row) -> None:
        row["values"][1] = row["values"][0]

    rewrite(run, CONSUMER, one(shows, change))


@mutation(unknown("reader-1"))
def a_read_has_more_offsets_than_values(run: Stored) -> None:
    rewrite(run, CONSUMER, one(shows, lambda row: row["values"].pop()))


@mutation(unknown("reader-1"), fails())
def a_read_goes_backwards(run: Stored) -> None:
    def change(row: Row) -> None:
        row["offsets"].reverse()

    rewrite(run, CONSUMER, one(shows, change))


@mutation(fails("lost-acknowledged-write", "offset-mismatch", "duplicate"))
def an_append_was_acknowledged_at_another_offset(run: Stored) -> None:
    def change(row: Row) -> None:
        row["offset"] += 1

    rewrite(run, PRODUCER, one(produced, change))


@mutation(fails("lost-acknowledged-write", "offset-mismatch", "gap"), TELLS)
def an_append_was_acknowledged_far_beyond_the_end(run: Stored) -> None:
    def change(row: Row) -> None:
        row["offset"] = 1 << 40

    rewrite(run, PRODUCER, one(produced, change))


@mutation(unknown("producer-1.*to other partitions than announced"))
def an_append_was_acknowledged_to_another_partition(run: Stored) -> None:
    def change(row: Row) -> None:
        row["partition"] = 1 - row["partition"]

    rewrite(run, PRODUCER, one(produced, change))


@mutation(fails("aborted-read"))
def an_append_that_was_read_had_failed(run: Stored) -> None:
    def change(row: Row) -> None:
        row.update(type=FAIL, offset=-1, error="refused")

    rewrite(run, PRODUCER, one(produced, change))


@mutation(TELLS, fails("duplicate", "lost-acknowledged-write", "offset-mismatch", "phantom"))
def two_appends_have_one_value(run: Stored) -> None:
    def change(rows: Rows) -> Rows:
        mine = [row for row in rows if produced(row) and row["partition"] == 0]
        mine[2]["value"] = mine[1]["value"]
        return rows

    rewrite(run, PRODUCER, change)


@mutation(TELLS, fails("duplicate", "lost-acknowledged-write", "offset-mismatch", "producer-order", "append-reorder"))
def two_appends_have_each_others_values(run: Stored) -> None:
    def change(rows: Rows) -> Rows:
        mine = [row for row in rows if produced(row) and row["partition"] == 0]
        mine[1]["value"], mine[2]["value"] = mine[2]["value"], mine[1]["value"]
        return rows

    rewrite(run, PRODUCER, change)


@mutation(fails("stale-read", "lost-acknowledged-write", "session-violation", "non-monotonic-high-watermark"))
def an_end_was_far_below_what_was_acknowledged(run: Stored) -> None:
    def change(row: Row) -> None:
        row["lo"] = row["hi"] = 0

    rewrite(run, READER, one(lambda row: row["f"] == END and row["partition"] == 0, change))


@mutation(fails("gap", "future-read", "final-end-mismatch"), unknown("read to its end"))
def an_end_was_beyond_the_log(run: Stored) -> None:
    def change(row: Row) -> None:
        row["lo"] = row["hi"] = row["hi"] + 9

    rewrite(run, READER, one(lambda row: row["f"] == END and row["partition"] == 0, change))


@mutation(fails("append-reorder", "future-read", "producer-order"))
def an_append_was_invoked_after_it_had_been_read(run: Stored) -> None:
    """Half a second late, and long read by the end of the run."""
    rewrite(run, PRODUCER, one(produced, _much_later, index=0))


def _much_later(row: Row) -> None:
    row["inv"], row["ret"] = row["inv"] + 4 * 10**9, row["ret"] + 4 * 10**9


@mutation(TELLS)
def an_operation_returned_before_it_was_invoked(run: Stored) -> None:
    rewrite(run, PRODUCER, one(produced, lambda row: row.update(inv=row["ret"], ret=row["inv"])))


@mutation(TELLS)
def operations_have_wall_clock_times(run: Stored) -> None:
    def change(rows: Rows) -> Rows:
        return [
            row | {"inv": row["inv"] + 1_795_000_000 * 10**9, "ret": row["ret"] + 1_795_000_000 * 10**9} for row in rows
        ]

    rewrite(run, PRODUCER, change)


@mutation(unknown("before the run|after its end"))
def an_operation_was_an_hour_before_the_run(run: Stored) -> None:
    def change(row: Row) -> None:
        row["inv"] = max(row["inv"] - HOUR_NS, 1)

    rewrite(run, PRODUCER, one(produced, change))


@mutation(unknown("before the run|after its end"))
def an_operation_was_an_hour_after_the_run(run: Stored) -> None:
    rewrite(run, PRODUCER, one(produced, lambda row: row.update(ret=row["ret"] + HOUR_NS)))


setting("an operation has a negative time", TELLS, inv=-5)
setting("an operation of no kind", TELLS, f=7)
setting("an operation with no outcome", TELLS, type=9)
setting(
    "an append to a partition that was not planned",
    TELLS,
    unknown("log-99|not planned"),
    fails("phantom"),
    partition=99,
)
setting(
    "an append to a topic that was not planned",
    TELLS,
    unknown("other"),
    fails("phantom"),
    topic="other",
)
setting("an append to a negative partition", TELLS, partition=-3)
setting("an append with a negative value", TELLS, fails("phantom", "lost-acknowledged-write"), value=-4)
setting("an append at a negative offset", TELLS, offset=-7)
setting("an operation of another client", TELLS, client="producer-2")
setting("an operation of another process", TELLS, process=77)
setting(
    "an append of another producers value", TELLS, fails("phantom", "lost-acknowledged-write"), value=1 << 48 | 77 << 32
)


@mutation(unknown("final reads", "before these started"))
def reads_of_the_main_phase_are_called_final(run: Stored) -> None:
    """They do not show the state after the heal."""
    rewrite(run, CONSUMER, lambda rows: [row | {"phase": "final"} for row in rows])
