"""What may happen to the files in which clients record what they did."""

from __future__ import annotations

import json

from tests.mutations.mutation import Catalog, unknown
from tests.mutations.stored import Stored
from tests.mutations.streams import borders

mutation = Catalog("client files")

OPERATIONS = "history/operations"
PRODUCER = f"{OPERATIONS}/producer-1-1"
CONSUMER = f"{OPERATIONS}/consumer-1-1"
PROBE = f"{OPERATIONS}/probe-1"
READER = f"{OPERATIONS}/reader-1-1"
TELLS = unknown("producer-1")


@mutation(TELLS)
def a_producers_files_deleted(run: Stored) -> None:
    run.remove(f"{PRODUCER}.*")


@mutation(TELLS)
def a_producers_record_deleted(run: Stored) -> None:
    run.remove(f"{PRODUCER}.arrows")


@mutation(unknown("consumer-1"))
def a_consumers_files_deleted(run: Stored) -> None:
    run.remove(f"{CONSUMER}.*")


@mutation(unknown("probe"))
def the_probes_files_deleted(run: Stored) -> None:
    run.remove(f"{PROBE}.*")


@mutation(unknown("reader-1|read to its end"))
def the_final_readers_files_deleted(run: Stored) -> None:
    run.remove(f"{READER}.*")


@mutation(unknown("producer-1|producer-2|consumer-1"))
def all_producers_files_deleted(run: Stored) -> None:
    run.remove(f"{OPERATIONS}/producer-*")


@mutation(unknown("client|record|operation|producer"))
def all_files_deleted(run: Stored) -> None:
    run.empty(OPERATIONS)


@mutation(unknown("client|record|operation|producer"))
def the_directory_deleted(run: Stored) -> None:
    run.remove(OPERATIONS)


@mutation(unknown("history|record|not a run"))
def the_whole_history_deleted(run: Stored) -> None:
    run.remove("history")


@mutation(unknown("."))
def the_whole_history_emptied(run: Stored) -> None:
    run.empty("history")


@mutation(TELLS)
def a_record_cut_in_the_middle(run: Stored) -> None:
    run.edit(f"{PRODUCER}.arrows", lambda data: data[: len(data) // 2])


@mutation(TELLS)
def a_record_lacks_its_last_byte(run: Stored) -> None:
    run.edit(f"{PRODUCER}.arrows", lambda data: data[:-1])


def cut_at_a_border(run: Stored, name: str, batches: int) -> None:
    """Cut behind all but a few of the last batches: no byte shows that more was there."""
    path = run / name
    places = borders(path)
    assert len(places) > batches, f"{name} has only {len(places)} pieces"
    path.write_bytes(path.read_bytes()[: places[-1 - batches]])


@mutation(TELLS)
def a_record_cut_before_its_last_batch(run: Stored) -> None:
    cut_at_a_border(run, f"{PRODUCER}.arrows", 1)


@mutation(TELLS)
def a_record_cut_behind_its_last_batch(run: Stored) -> None:
    """Its end mark alone is missing: nobody knows that this was all."""
    cut_at_a_border(run, f"{PRODUCER}.arrows", 0)


@mutation(unknown("consumer-1"))
def a_consumers_record_cut_before_its_last_batches(run: Stored) -> None:
    cut_at_a_border(run, f"{CONSUMER}.arrows", 2)


@mutation(unknown("reader-1|read to its end"))
def the_final_readers_record_cut_before_its_last_batch(run: Stored) -> None:
    cut_at_a_border(run, f"{READER}.arrows", 1)


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


@mutation(unknown("reader-1|read to its end"))
def the_final_readers_record_emptied(run: Stored) -> None:
    run.empty(f"{READER}.arrows")


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


@mutation(TELLS)
def a_records_announcements_deleted(run: Stored) -> None:
    run.remove(f"{PRODUCER}.reserved")


@mutation(TELLS)
def a_records_announcements_emptied(run: Stored) -> None:
    run.empty(f"{PRODUCER}.reserved")


@mutation(TELLS)
def a_records_announcements_torn(run: Stored) -> None:
    run.edit(f"{PRODUCER}.reserved", lambda data: data[:-9])


@mutation(TELLS)
def a_records_announcements_lack_the_last_line(run: Stored) -> None:
    run.edit(f"{PRODUCER}.reserved", lambda data: b"".join(data.splitlines(keepends=True)[:-1]))


@mutation(TELLS)
def a_records_announcements_lack_a_block(run: Stored) -> None:
    run.edit(
        f"{PRODUCER}.reserved",
        lambda data: b"".join(line for n, line in enumerate(data.splitlines(keepends=True)) if n != 1),
    )


@mutation(TELLS)
def a_records_announcements_have_a_garbled_line(run: Stored) -> None:
    run.edit(f"{PRODUCER}.reserved", lambda data: data.replace(b'"first"', b'"fi', 1))


@mutation(TELLS)
def a_records_announcements_name_another_client(run: Stored) -> None:
    run.edit(f"{PRODUCER}.reserved", lambda data: data.replace(b"producer-1", b"producer-7", 1))


@mutation(TELLS)
def a_records_announcements_give_back_too_little(run: Stored) -> None:
    """As if values that were never sent might still come."""

    def fewer(data: bytes) -> bytes:
        lines = [json.loads(line) for line in data.splitlines()]
        for line in lines:
            if "unused" in line:
                line["count"] -= 5
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    run.edit(f"{PRODUCER}.reserved", fewer)


@mutation(unknown("consumer-1"))
def a_consumers_announcements_deleted(run: Stored) -> None:
    run.remove(f"{CONSUMER}.reserved")


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
