"""Mutations of the files in which clients record operations."""

from tests.mutations.mutation import PASSES, Catalog, Change, unknown
from tests.mutations.stored import Stored
from tests.mutations.streams import OPERATIONS, as_left, borders, reannounce

mutation = Catalog("client files")

PRODUCER = f"{OPERATIONS}/producer-1-1"
CONSUMER = f"{OPERATIONS}/consumer-1-1"
PROBE = f"{OPERATIONS}/probe-1"
READER = f"{OPERATIONS}/reader-2-1"
RESERVED = "producer-1-1.reserved"
TELLS = unknown("producer-1")
HARMLESS = PASSES
"""Undetectable but for the seal and the journal's digests: the client itself may have said so, and nothing follows."""


mutation.add("a producers files deleted", lambda run: run.remove(f"{PRODUCER}.*"), TELLS)
mutation.add("a producers record deleted", lambda run: run.remove(f"{PRODUCER}.arrows"), TELLS)
mutation.add("a consumers files deleted", lambda run: run.remove(f"{CONSUMER}.*"), unknown("consumer-1"))
mutation.add("the probes files deleted", lambda run: run.remove(f"{PROBE}.*"), unknown("probe"))
mutation.add(
    "the final readers files deleted", lambda run: run.remove(f"{READER}.*"), unknown("reader-2|read to its end")
)


@mutation(unknown("producer-1|producer-2|consumer-1"))
def all_producers_files_deleted(run: Stored) -> None:
    run.remove(f"{OPERATIONS}/producer-*")


mutation.add("all files deleted", lambda run: run.empty(OPERATIONS), unknown("client|record|operation|producer"))
mutation.add("the directory deleted", lambda run: run.remove(OPERATIONS), unknown("client|record|operation|producer"))
mutation.add("the whole history deleted", lambda run: run.remove("history"), unknown("history|record|not a run"))
mutation.add("the whole history emptied", lambda run: run.empty("history"), unknown("."))


@mutation(TELLS)
def a_record_cut_in_the_middle(run: Stored) -> None:
    run.edit(f"{PRODUCER}.arrows", lambda data: data[: len(data) // 2])


@mutation(TELLS)
def a_record_lacks_its_last_byte(run: Stored) -> None:
    run.edit(f"{PRODUCER}.arrows", lambda data: data[:-1])


def cut_at_a_border(run: Stored, name: str, batches: int) -> None:
    """Cut behind all but some of the last pieces - the end mark is one, and a batch with its sum two -, so that no byte
    of another one shows that more was there."""
    path = run / name
    places = borders(path)
    assert len(places) > batches, f"{name} has only {len(places)} pieces"
    path.write_bytes(path.read_bytes()[: places[-1 - batches]])


@mutation(TELLS)
def a_record_cut_before_its_last_batch(run: Stored) -> None:
    cut_at_a_border(run, f"{PRODUCER}.arrows", 3)


@mutation(TELLS)
def a_record_cut_behind_its_last_batch(run: Stored) -> None:
    """Only its end mark is missing: the record may be incomplete."""
    cut_at_a_border(run, f"{PRODUCER}.arrows", 1)


@mutation(unknown("consumer-1"))
def a_consumers_record_cut_before_its_last_batch(run: Stored) -> None:
    cut_at_a_border(run, f"{CONSUMER}.arrows", 3)


@mutation(unknown("reader-2|read to its end"))
def the_final_readers_record_cut_before_its_last_batch(run: Stored) -> None:
    cut_at_a_border(run, f"{READER}.arrows", 3)


@mutation(TELLS)
def a_record_has_its_schema_alone(run: Stored) -> None:
    path = run / f"{PRODUCER}.arrows"
    path.write_bytes(path.read_bytes()[: borders(path)[0]])


@mutation(TELLS)
def a_record_lost_a_batch_in_the_middle(run: Stored) -> None:
    path = run / f"{PRODUCER}.arrows"
    places, data = borders(path), path.read_bytes()
    path.write_bytes(data[: places[1]] + data[places[2] :])


@mutation(TELLS)
def a_record_has_a_batch_twice(run: Stored) -> None:
    path = run / f"{PRODUCER}.arrows"
    places, data = borders(path), path.read_bytes()
    path.write_bytes(data[: places[2]] + data[places[1] : places[2]] + data[places[2] :])


@mutation(TELLS)
def a_record_emptied(run: Stored) -> None:
    run.empty(f"{PRODUCER}.arrows")


mutation.add(
    "the final readers record emptied", lambda run: run.empty(f"{READER}.arrows"), unknown("reader-2|read to its end")
)


@mutation(TELLS)
def a_record_is_garbage(run: Stored) -> None:
    (run / f"{PRODUCER}.arrows").write_bytes(b"garbage" * 300)


@mutation(TELLS)
def bytes_flipped_in_a_batch(run: Stored) -> None:
    path = run / f"{PRODUCER}.arrows"
    places = borders(path)
    middle = (places[1] + places[2]) // 2
    run.edit(
        f"{PRODUCER}.arrows",
        lambda data: data[:middle] + bytes(byte ^ 0x55 for byte in data[middle : middle + 4]) + data[middle + 4 :],
    )


@mutation(TELLS)
def one_bit_flipped_near_the_end_of_a_batch(run: Stored) -> None:
    at = borders(run / f"{PRODUCER}.arrows")[1] - 24
    run.edit(f"{PRODUCER}.arrows", lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@mutation(TELLS)
def bytes_behind_a_record(run: Stored) -> None:
    run.edit(f"{PRODUCER}.arrows", lambda data: data + b"and more")


mutation.add("a records announcements deleted", lambda run: run.remove(f"{PRODUCER}.reserved"), TELLS)


@mutation(TELLS)
def a_records_announcements_emptied(run: Stored) -> None:
    run.empty(f"{PRODUCER}.reserved")


@mutation(TELLS)
def a_records_announcements_torn(run: Stored) -> None:
    run.edit(f"{PRODUCER}.reserved", lambda data: data[:-9])


mutation.add(
    "a records announcements were never closed", lambda run: reannounce(run, RESERVED, lambda lines: lines[:-1]), TELLS
)


@mutation(TELLS)
def a_records_announcements_lack_a_block(run: Stored) -> None:
    """Values were sent that had not been announced."""
    reannounce(run, RESERVED, lambda lines: [*lines[:1], *lines[2:]])


@mutation(TELLS)
def a_records_announcements_are_for_another_partition(run: Stored) -> None:
    reannounce(
        run,
        RESERVED,
        lambda lines: [line | {"partition": 1 - line["partition"]} if "first" in line else line for line in lines],
    )


@mutation(TELLS)
def a_records_announcements_lack_a_line(run: Stored) -> None:
    run.edit(
        f"{PRODUCER}.reserved",
        lambda data: b"".join(line for n, line in enumerate(data.splitlines(keepends=True)) if n != 1),
    )


@mutation(TELLS)
def a_records_announcements_have_a_garbled_line(run: Stored) -> None:
    run.edit(f"{PRODUCER}.reserved", lambda data: data.replace(b'"first"', b'"fi', 1))


@mutation(TELLS)
def a_records_announcements_name_another_client(run: Stored) -> None:
    reannounce(run, RESERVED, lambda lines: [lines[0] | {"client": "producer-7"}, *lines[1:]])


@mutation(TELLS)
def a_records_announcements_are_of_another_producer(run: Stored) -> None:
    reannounce(run, RESERVED, lambda lines: [lines[0] | {"producer": 2}, *lines[1:]])


mutation.add("a consumers announcements deleted", lambda run: run.remove(f"{CONSUMER}.reserved"), unknown("consumer-1"))


@mutation(TELLS)
def two_clients_records_swapped(run: Stored) -> None:
    run.swap(f"{PRODUCER}.arrows", f"{OPERATIONS}/producer-2-1.arrows")


@mutation(TELLS)
def two_clients_files_swapped(run: Stored) -> None:
    run.swap(f"{PRODUCER}.arrows", f"{OPERATIONS}/producer-2-1.arrows")
    run.swap(f"{PRODUCER}.reserved", f"{OPERATIONS}/producer-2-1.reserved")


@mutation(unknown("producer-1|consumer-1"))
def a_producers_and_a_consumers_record_swapped(run: Stored) -> None:
    run.swap(f"{PRODUCER}.arrows", f"{CONSUMER}.arrows")


@mutation(unknown("producer-1"))
def a_record_replaced_by_another_clients(run: Stored) -> None:
    run.copy(f"{OPERATIONS}/producer-2-1.arrows", f"{PRODUCER}.arrows")
    run.copy(f"{OPERATIONS}/producer-2-1.reserved", f"{PRODUCER}.reserved")


@mutation(unknown("producer-9|producer-1"))
def a_producers_files_doubled_under_another_name(run: Stored) -> None:
    for kind in ("arrows", "reserved"):
        run.copy(f"{PRODUCER}.{kind}", f"{OPERATIONS}/producer-9-1.{kind}")


@mutation(unknown("consumer-9|consumer-1"))
def a_consumers_files_doubled_under_another_name(run: Stored) -> None:
    for kind in ("arrows", "reserved"):
        run.copy(f"{CONSUMER}.{kind}", f"{OPERATIONS}/consumer-9-1.{kind}")


@mutation(unknown("producer-1"))
def a_record_of_another_session(run: Stored) -> None:
    for kind in ("arrows", "reserved"):
        (run / f"{PRODUCER}.{kind}").rename(run / f"{OPERATIONS}/producer-1-2.{kind}")


@mutation(unknown("elsewhere"))
def a_client_elsewhere_wrote_garbage(run: Stored) -> None:
    (run / f"{OPERATIONS}/elsewhere.jsonl").write_text('{"f": "append", "type"\n{}\n')


# ---- the same, had the client left it so


def _as_left(change: Change, *names: str) -> None:
    def left(run: Stored) -> None:
        change(run)
        for name in names:
            as_left(run, run / name)

    mutation.add(f"{change.__name__}, as the client left it", left, TELLS)


for _change in (
    a_record_cut_in_the_middle,
    a_record_lacks_its_last_byte,
    a_record_cut_before_its_last_batch,
    a_record_cut_behind_its_last_batch,
    a_record_has_its_schema_alone,
    a_record_lost_a_batch_in_the_middle,
    a_record_has_a_batch_twice,
    a_record_emptied,
    a_record_is_garbage,
    bytes_flipped_in_a_batch,
    one_bit_flipped_near_the_end_of_a_batch,
    bytes_behind_a_record,
    a_records_announcements_emptied,
    a_records_announcements_torn,
    a_records_announcements_have_a_garbled_line,
    a_records_announcements_lack_a_line,
):
    _as_left(_change, f"{PRODUCER}.arrows")
for _change in (two_clients_records_swapped, two_clients_files_swapped):
    _as_left(_change, f"{PRODUCER}.arrows", f"{OPERATIONS}/producer-2-1.arrows")
