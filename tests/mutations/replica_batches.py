"""Mutations of the batches and records of replicas' segments."""

from collections.abc import Callable

from history.record.values import encode_value
from tests.mutations.mutation import Catalog, fails, unknown
from tests.mutations.segments import (
    ATTRIBUTES_AT,
    COUNT_AT,
    DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    Batches,
    base_of,
    end_of,
    epoch_of,
    flipped,
    made,
    of_batches,
    offset_delta_at,
    put,
    rebased,
    split,
    summed,
    value_at,
    value_of,
    with_epoch,
    with_value,
)
from tests.mutations.stored import Stored

mutation = Catalog("replica batches")

DIFFERS = fails("replica-divergence", "replica-order-mismatch")
ENDS_EARLY = fails("not-converged")
MALFORMED = fails("malformed-batch")
UNSENT = encode_value(9, 9, 9)
MIDDLE = 5
"""A batch with some before and some behind it."""


def on_one(run: Stored, change: Callable[[Batches], Batches], *, partition: int = 0) -> None:
    """Change the batches of the second node's replica."""
    run.edit(run.logs(partition)[1], of_batches(change))


def on_all(run: Stored, change: Callable[[Batches], Batches], *, partition: int = 0) -> None:
    for name in run.logs(partition):
        run.edit(name, of_batches(change))


def at(index: int, change: Callable[[bytes], bytes]) -> Callable[[Batches], Batches]:
    """A change of all batches from one of a single batch."""

    def changed(batches: Batches) -> Batches:
        batches = list(batches)
        batches[index] = change(batches[index])
        return batches

    return changed


def mark_all(run: Stored, partition: int = 0) -> None:
    """Every node's high watermark is where its log ends."""
    end = end_of(split((run / run.logs(partition)[0]).read_bytes()))
    for node in run.nodes():
        path = f"nodes/{node}/data/replication-offset-checkpoint"
        run.text(path, rf"^log {partition} \d+$", f"log {partition} {end}")


# ---- bytes that are missing or too many


@mutation(unknown("log-0", "n2"), ENDS_EARLY)
def one_segment_torn_in_its_last_batch(run: Stored) -> None:
    run.edit(run.logs()[1], lambda data: data[:-17])


@mutation(unknown("log-0", "n2"), ENDS_EARLY)
def one_segment_torn_in_a_header(run: Stored) -> None:
    run.edit(run.logs()[1], lambda data: data[: len(data) - len(split(data)[-1]) + 20])


@mutation(unknown("log-0"), fails("lost-acknowledged-write"))
def all_segments_torn_in_their_last_batch(run: Stored) -> None:
    for name in run.logs():
        run.edit(name, lambda data: data[:-17])


mutation.add("one segment ends at a border", lambda run: on_one(run, lambda batches: batches[:-1]), ENDS_EARLY)


@mutation(ENDS_EARLY)
def one_segment_ends_many_batches_early(run: Stored) -> None:
    on_one(run, lambda batches: batches[:-4], partition=1)


@mutation(unknown("log-0", "n2"))
def zeros_behind_one_segment(run: Stored) -> None:
    run.edit(run.logs()[1], lambda data: data + bytes(4096))


@mutation(unknown("log-0", "n2"))
def garbage_behind_one_segment(run: Stored) -> None:
    run.edit(run.logs()[1], lambda data: data + b"not a batch, for sure" * 5)


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY)
def zeros_inside_one_segment(run: Stored) -> None:
    run.edit(run.logs()[1], lambda data: data[:1000] + bytes(512) + data[1512:])


@mutation(unknown("log-0"), fails("lost-acknowledged-write"))
def zeros_instead_of_all_segments(run: Stored) -> None:
    for name in run.logs():
        run.edit(name, lambda data: bytes(len(data)))


# ---- batches that are missing, too many or elsewhere


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY)
def a_batch_taken_out_on_one(run: Stored) -> None:
    on_one(run, lambda batches: batches[:MIDDLE] + batches[MIDDLE + 1 :])


@mutation(unknown("log-0"), fails("lost-acknowledged-write"))
def a_batch_taken_out_on_all(run: Stored) -> None:
    on_all(run, lambda batches: batches[:MIDDLE] + batches[MIDDLE + 1 :])


@mutation(DIFFERS)
def a_batch_taken_out_on_one_and_the_rest_moved_up(run: Stored) -> None:
    on_one(run, lambda batches: rebased(batches[:MIDDLE] + batches[MIDDLE + 1 :]))


@mutation(fails("lost-acknowledged-write", "replica-order-mismatch"))
def a_batch_taken_out_on_all_and_the_rest_moved_up(run: Stored) -> None:
    on_all(run, lambda batches: rebased(batches[:MIDDLE] + batches[MIDDLE + 1 :]))
    mark_all(run)


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY)
def a_batch_doubled_on_one(run: Stored) -> None:
    on_one(run, lambda batches: [*batches[:MIDDLE], batches[MIDDLE], *batches[MIDDLE:]])


@mutation(DIFFERS)
def a_batch_doubled_on_one_and_the_rest_moved_down(run: Stored) -> None:
    on_one(run, lambda batches: rebased([*batches[:MIDDLE], batches[MIDDLE], *batches[MIDDLE:]]))


@mutation(fails("replica-order-mismatch", "duplicate"))
def a_batch_doubled_on_all_and_the_rest_moved_down(run: Stored) -> None:
    on_all(run, lambda batches: rebased([*batches[:MIDDLE], batches[MIDDLE], *batches[MIDDLE:]]))
    mark_all(run)


@mutation(fails("duplicate", "duplicate-on-replica", "replica-order-mismatch"))
def the_last_record_appended_again_on_all(run: Stored) -> None:
    on_all(run, lambda batches: rebased([*batches, batches[-1]]))
    mark_all(run)


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY)
def two_batches_swapped_on_one(run: Stored) -> None:
    on_one(run, lambda batches: [*batches[:3], batches[4], batches[3], *batches[5:]])


@mutation(DIFFERS)
def two_batches_swapped_on_one_with_their_offsets(run: Stored) -> None:
    on_one(run, lambda batches: rebased([*batches[:3], batches[4], batches[3], *batches[5:]]))


@mutation(fails("replica-order-mismatch"))
def two_batches_swapped_on_all_with_their_offsets(run: Stored) -> None:
    on_all(run, lambda batches: rebased([*batches[:3], batches[4], batches[3], *batches[5:]]))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY)
def one_batch_has_another_base_offset(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: put(batch, 0, ">q", base_of(batch) + 1)))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def one_batch_has_a_negative_base_offset(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: put(batch, 0, ">q", -4)))


# ---- what records carry


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY)
def a_byte_of_a_value_flipped_on_one(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: flipped(batch, value_at(batch) + 7)))


@mutation(DIFFERS)
def a_byte_of_a_value_flipped_on_one_and_the_checksum_right(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(flipped(batch, value_at(batch) + 7))))


@mutation(fails("replica-order-mismatch", "lost-acknowledged-write", "phantom"))
def a_byte_of_a_value_flipped_on_all_and_the_checksum_right(run: Stored) -> None:
    on_all(run, at(MIDDLE, lambda batch: summed(flipped(batch, value_at(batch) + 7))))


@mutation(fails())
def a_byte_of_the_padding_flipped_on_one_and_the_checksum_right(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(flipped(batch, value_at(batch) + 100))))


@mutation(fails())
def a_byte_of_the_padding_flipped_on_all_and_the_checksum_right(run: Stored) -> None:
    """What clients sent is known to the last byte."""
    on_all(run, at(MIDDLE, lambda batch: summed(flipped(batch, value_at(batch) + 100))))


@mutation(DIFFERS)
def another_value_that_was_sent_on_one(run: Stored) -> None:
    on_one(run, lambda batches: at(MIDDLE, lambda batch: with_value(batch, value_of(batches[2])))(batches))


@mutation(fails("replica-order-mismatch", "duplicate", "lost-acknowledged-write"))
def another_value_that_was_sent_on_all(run: Stored) -> None:
    on_all(run, lambda batches: at(MIDDLE, lambda batch: with_value(batch, value_of(batches[2])))(batches))


@mutation(fails("replica-order-mismatch", "phantom", "lost-acknowledged-write"))
def an_unsent_value_on_all(run: Stored) -> None:
    on_all(run, at(MIDDLE, lambda batch: with_value(batch, UNSENT)))


@mutation(fails())
def an_unsent_record_appended_on_one(run: Stored) -> None:
    on_one(run, lambda batches: [*batches, made(end_of(batches), epoch_of(batches[-1]), UNSENT)])


@mutation(fails())
def an_unsent_record_appended_on_all(run: Stored) -> None:
    on_all(run, lambda batches: [*batches, made(end_of(batches), epoch_of(batches[-1]), UNSENT)])


@mutation(fails())
def a_committed_unsent_record_appended_on_all(run: Stored) -> None:
    on_all(run, lambda batches: [*batches, made(end_of(batches), epoch_of(batches[-1]), UNSENT)])
    mark_all(run)


@mutation(fails())
def many_unsent_records_appended_on_all(run: Stored) -> None:
    def more(batches: Batches) -> Batches:
        end, epoch = end_of(batches), epoch_of(batches[-1])
        return [*batches, *(made(end + n, epoch, encode_value(1, 1, (1 << 31) + n)) for n in range(20))]

    on_all(run, more, partition=1)
    mark_all(run, 1)


@mutation(fails("lost-acknowledged-write"))
def an_acknowledged_record_removed_on_all(run: Stored) -> None:
    on_all(run, lambda batches: batches[:-1])


@mutation(fails("lost-acknowledged-write"))
def an_acknowledged_record_removed_on_all_with_the_high_watermark(run: Stored) -> None:
    on_all(run, lambda batches: batches[:-1])
    mark_all(run)


@mutation(fails("lost-acknowledged-write"))
def half_of_a_log_removed_on_all_with_the_high_watermark(run: Stored) -> None:
    on_all(run, lambda batches: batches[: len(batches) // 2], partition=1)
    mark_all(run, 1)


# ---- what headers say


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_batch_counts_one_record_too_many(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch, COUNT_AT, ">i", 9))))


@mutation(unknown("log-0"), MALFORMED)
def all_batches_count_one_record_too_many(run: Stored) -> None:
    on_all(run, at(MIDDLE, lambda batch: summed(put(batch, COUNT_AT, ">i", 9))))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_batch_counts_no_record(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch, COUNT_AT, ">i", 0))))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_batch_counts_minus_one_record(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch, COUNT_AT, ">i", -1))))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_batch_reaches_further_than_its_records(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch, DELTA_AT, ">i", 12))))


@mutation(unknown("log-0"), fails("not-converged", "replica-order-mismatch"), MALFORMED)
def the_last_batch_reaches_further_than_its_records_on_all(run: Stored) -> None:
    """A log that claims offsets which no record has."""
    on_all(run, at(-1, lambda batch: summed(put(batch, DELTA_AT, ">i", 12))))
    mark_all(run)


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_record_has_another_offset_than_its_batch(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch, offset_delta_at(batch), ">B", 10))))


@mutation(unknown("log-0"), fails())
def a_record_has_another_offset_than_its_batch_on_all(run: Stored) -> None:
    on_all(run, at(MIDDLE, lambda batch: summed(put(batch, offset_delta_at(batch), ">B", 10))))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_batch_is_longer_than_it_says(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: put(batch, LENGTH_AT, ">i", len(batch) - 20)))


@mutation(unknown("log-0", "n2"), DIFFERS, ENDS_EARLY, MALFORMED)
def a_batch_has_bytes_behind_its_records(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch + bytes(8), LENGTH_AT, ">i", len(batch) - 4))))


@mutation(unknown("log-0"), fails())
def a_batch_has_bytes_behind_its_records_on_all(run: Stored) -> None:
    on_all(run, at(MIDDLE, lambda batch: summed(put(batch + bytes(8), LENGTH_AT, ">i", len(batch) - 4))))


@mutation(fails("epoch-start-mismatch", "replica-divergence"))
def the_last_batch_is_of_a_later_epoch_on_one(run: Stored) -> None:
    on_one(run, at(-1, lambda batch: with_epoch(batch, epoch_of(batch) + 3)))


@mutation(fails("epoch-start-mismatch"))
def the_last_batch_is_of_a_later_epoch_on_all(run: Stored) -> None:
    on_all(run, at(-1, lambda batch: with_epoch(batch, epoch_of(batch) + 3)))


@mutation(fails("epoch-regression", "replica-divergence"))
def the_last_batch_is_of_an_earlier_epoch_on_one(run: Stored) -> None:
    on_one(run, at(-1, lambda batch: with_epoch(batch, epoch_of(batch) - 1)))


@mutation(fails("epoch-regression"))
def the_last_batch_is_of_an_earlier_epoch_on_all(run: Stored) -> None:
    on_all(run, at(-1, lambda batch: with_epoch(batch, epoch_of(batch) - 1)))


@mutation(unknown("log-0", "n2"), fails("epoch-regression", "replica-divergence"), MALFORMED)
def a_batch_is_of_a_negative_epoch_on_one(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: with_epoch(batch, -1)))


@mutation(unknown("log-0", "n2"))
def a_batch_is_of_an_unknown_format_on_one(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: put(batch, MAGIC_AT, ">b", 7)))


@mutation(unknown("log-0"))
def a_batch_is_of_an_unknown_format_on_all(run: Stored) -> None:
    on_all(run, at(MIDDLE, lambda batch: put(batch, MAGIC_AT, ">b", 7)))


@mutation(unknown("log-0"))
def the_first_batch_is_of_an_unknown_format_on_all(run: Stored) -> None:
    on_all(run, at(0, lambda batch: put(batch, MAGIC_AT, ">b", 3)))


@mutation(unknown("log-0", "n2"), DIFFERS, MALFORMED)
def a_batch_says_that_it_is_compressed(run: Stored) -> None:
    on_one(run, at(MIDDLE, lambda batch: summed(put(batch, ATTRIBUTES_AT, ">h", 4))))


@mutation(unknown("log-0"), fails())
def a_batch_says_that_it_is_control_on_all(run: Stored) -> None:
    """No client started a transaction."""
    on_all(run, at(MIDDLE, lambda batch: summed(put(batch, ATTRIBUTES_AT, ">h", 0x20))))
