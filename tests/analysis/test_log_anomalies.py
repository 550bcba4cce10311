"""Every anomaly of a partition log by the smallest history that shows it, and lawful neighbours that do not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.core.anomaly import Anomaly
from analysis.core.incomplete_clients import Owners
from analysis.core.offset_ranges import SPAN
from analysis.core.rows import DamagedError
from analysis.core.summary import LISTED
from analysis.engines.log import LogPlan, check_ranges, write_certificate
from analysis.engines.task_map import in_sequence
from analysis.verifiers.log import verify
from history.record.schemas import INF, INFO, READ, SENT_AGAIN
from history.record.values import decode_value, encode_value
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import GroupsInMemory, check, check_log
from tests.analysis.log_histories import Op, again, empty, end, fail, info, ok, read, stored, table, v


def found(history: Sequence[Op], upper_bound: str = "strict") -> tuple[Anomaly, ...]:
    return check(table(list(history)), upper_bound=upper_bound).anomalies


def the_one(history: Sequence[Op], name: str, upper_bound: str = "strict") -> Anomaly:
    anomalies = found(history, upper_bound)
    assert [each.name for each in anomalies] == [name]
    return anomalies[0]


def witness(anomaly: Anomaly) -> list[tuple[str, int]]:
    return [(each["op"], each["inv"]) for each in anomaly.witness]


LAWFUL: dict[str, list[Op]] = {
    "one append, read back": [ok(1, 10, 20, 0), read(0, [1], 30, 40), end(1, 50, 60)],
    "concurrent appends in any order": [ok(1, 10, 30, 1), ok(2, 11, 29, 0)],
    "a read during an append shows it or not": [
        ok(1, 10, 40, 0),
        empty(0, 11, 12),
        read(0, [1], 20, 30),
        end(1, 35, 36),
    ],
    "a timed-out append that never happened": [info(1, 10), ok(2, 20, 30, 0), end(1, 40, 50)],
    "a timed-out append that happened late": [info(1, 10), end(0, 100, 110), read(0, [1], 200, 210)],
    "a gap that a timed-out append fills": [info(1, 10), ok(2, 20, 30, 1), end(2, 40, 50)],
    "gaps filled in the order of invocation": [
        info(1, 10),
        info(2, 50),
        ok(3, 20, 30, 1),
        ok(4, 60, 70, 3),
        end(4, 80, 90),
    ],
    "an append that asked for no durability vanished, its offset reused": [
        *(ok(1, 10, 20, 0, acks=1), ok(2, 30, 40, 0), read(0, [2], 100, 110)),
    ],
    "an append that asked for no durability is read where it says": [ok(1, 10, 20, 0, acks=1), read(0, [1], 30, 40)],
    "a complete final read": [
        *(ok(1, 10, 20, 0), info(2, 10)),
        *(end(1, 100, 110, final=True), read(0, [1], 120, 130, final=True)),
    ],
    "an append that timed out shows up after the final read's end": [
        *(info(2, 10), end(0, 100, 110, final=True)),
        *(read(0, [2], 120, 130), read(0, [2], 140, 150, final=True)),
    ],
    "an acknowledgement without offset, found by a read": [ok(1, 10, 20, -1), read(0, [1], 30, 40)],
}


@pytest.mark.parametrize("history", LAWFUL.values(), ids=LAWFUL)
def test_lawful_histories_pass(history: list[Op]) -> None:
    report = check(table(history))
    assert report.anomalies == ()
    assert report.undecided == ()


def test_offset_mismatch() -> None:
    lost, anomaly = found([ok(1, 10, 20, 0), ok(2, 11, 21, 0)])
    assert (lost.name, anomaly.name) == ("lost-acknowledged-write", "offset-mismatch")
    assert witness(anomaly) == witness(lost) == [("append", 10), ("append", 11)]
    assert anomaly.sentence == "offset 0 holds different values: record 1.1.0 and record 1.2.0"
    assert "and so was record 1.2.0 to client-0: only one of them can be there" in lost.sentence
    reads = [info(1, 10), info(2, 10), read(0, [1], 20, 30), read(0, [2], 40, 50)]
    assert witness(the_one(reads, "offset-mismatch")) == [("read", 20), ("read", 40)]


def test_an_acknowledged_write_is_lost_when_its_offset_holds_another() -> None:
    anomaly = the_one([ok(1, 10, 20, 0), info(2, 10), read(0, [2], 40, 50)], "lost-acknowledged-write")
    assert anomaly.count == 1
    assert witness(anomaly) == [("append", 10), ("read", 40)]
    assert "record 1.1.0 was acknowledged at offset 0" in anomaly.sentence
    assert "shows record 1.2.0 there" in anomaly.sentence


def test_an_acknowledged_write_that_the_final_read_lacks_is_lost() -> None:
    final = [end(1, 100, 110, final=True), read(0, [1], 120, 130, final=True)]
    anomaly = the_one([ok(1, 10, 20, 0), ok(2, 30, 40, 1), ok(3, 50, 60, 2), *final], "lost-acknowledged-write")
    assert anomaly.count == 2
    assert witness(anomaly) == [("append", 30), ("end", 100), ("append", 50)]
    assert "; also lost: record 1.3.0" in anomaly.sentence
    assert "acknowledged at offset 1 to client-0, but the log ends at 1 after healing" in anomaly.sentence


@pytest.mark.parametrize("upper_bound", ["strict", "session", "lower-bound-only"])
def test_loss_is_named_for_every_upper_bound(upper_bound: str) -> None:
    final = [end(0, 100, 110, final=True)]
    the_one([ok(1, 10, 20, 0), *final], "lost-acknowledged-write", upper_bound)


def test_an_acknowledgement_without_offset_is_lost_unless_the_final_read_has_it() -> None:
    final = [end(1, 100, 110, final=True), read(0, [1], 120, 130, final=True)]
    the_one([ok(1, 10, 20, 0), ok(2, 30, 40, -1), *final], "lost-acknowledged-write")
    report = check(table([ok(1, 10, 20, 0), ok(2, 30, 40, -1)]))
    assert report.ok
    assert report.undecided == ("log-0: 1 acknowledged append answered without an offset and never read",)


def test_committed_then_truncated() -> None:
    """A truncation: a record is read once, then replaced by a record of the new leader."""
    before = [ok(1, 10, 20, 0), ok(2, 30, 40, 1), read(0, [1, 2], 50, 60)]
    after = [ok(3, 70, 80, 1), end(2, 100, 110, final=True), read(0, [1, 3], 120, 130, final=True)]
    anomalies = found([*before, *after])
    assert [each.name for each in anomalies] == ["committed-then-truncated", "lost-acknowledged-write"]
    assert [witness(each) for each in anomalies] == [[("read", 50), ("read", 120)], [("append", 30), ("read", 120)]]


def test_a_read_record_absent_from_the_final_read_is_truncated() -> None:
    history = [info(1, 10), read(0, [1], 20, 30), end(0, 100, 110, final=True)]
    names = [each.name for each in found(history)]
    assert names == ["committed-then-truncated", "non-monotonic-high-watermark"]


def test_duplicate() -> None:
    anomaly = the_one([info(1, 10), read(0, [1, 1], 20, 30)], "duplicate")
    assert "in the log at offsets 0 and 1" in anomaly.sentence
    assert witness(anomaly) == [("read", 20)]
    disagreement = found([ok(1, 10, 20, 0), read(0, [1, 1], 30, 40)])
    assert [each.name for each in disagreement] == ["duplicate"]
    assert witness(disagreement[0]) == [("append", 10), ("read", 30)]


def test_phantom() -> None:
    anomaly = the_one([read(0, [7], 10, 20)], "phantom")
    assert witness(anomaly) == [("read", 10)]
    assert "never sent to this partition" in anomaly.sentence
    other_partition = check(table([ok(1, 10, 20, 0)], [read(0, [1], 30, 40)])).anomalies
    assert [(each.name, each.partition) for each in other_partition] == [("phantom", 1)]


def test_a_record_that_carries_no_value_is_a_phantom() -> None:
    (op,) = [read(0, [1], 10, 20)]
    assert found([Op(**{**vars(op), "values": (-2,)})])[0].sentence.startswith("a record that carries no value")


def test_aborted_read() -> None:
    anomaly = the_one([fail(1, 10, 20), read(0, [1], 30, 40)], "aborted-read")
    assert witness(anomaly) == [("append", 10), ("read", 30)]


def test_gap() -> None:
    anomaly = the_one([ok(1, 10, 20, 0), ok(2, 30, 40, 2)], "gap")
    assert anomaly.count == 1
    assert witness(anomaly) == [("append", 30)]
    assert "beyond offset 1, where no record is known" in anomaly.sentence


def test_a_remaining_append_that_started_too_late_does_not_explain_a_gap() -> None:
    anomaly = the_one([ok(1, 30, 40, 1), info(2, 50)], "gap")
    assert witness(anomaly) == [("append", 30), ("append", 50)]


def test_an_append_that_fits_a_later_gap_is_not_wasted_on_an_earlier_one() -> None:
    anomaly = the_one([ok(1, 10, 20, 1), info(2, 30), ok(3, 40, 50, 3)], "gap")
    assert anomaly.count == 1


def test_poll_skip() -> None:
    whole = read(0, [1, 2, 3], 70, 80)
    skipping = Op(**{**vars(whole), "values": (v(1), v(3)), "offsets": (0, 2)})
    anomaly = the_one([ok(1, 10, 20, 0), ok(2, 30, 40, 1), ok(3, 50, 60, 2), skipping], "poll-skip")
    assert witness(anomaly) == [("read", 70), ("append", 30)]
    assert "did not return offset 1" in anomaly.sentence


def test_poll_regression() -> None:
    history = [ok(1, 10, 20, 0), ok(2, 30, 40, 1), ok(3, 50, 60, 2)]
    back = replace(read(1, [2, 3], 70, 80), offset=2)
    anomaly = the_one([*history, back], "poll-regression")
    assert witness(anomaly) == [("read", 70)]
    assert "from offset 2 returned offset 1, which was before its position" in anomaly.sentence
    assert found([*history, replace(back, offset=1)]) == ()
    within = Op(READ, 70, 80, values=(v(2), v(3), v(2)), offsets=(1, 2, 1), offset=1)
    the_one([*history, within], "poll-regression")


@pytest.mark.parametrize("upper_bound", ["strict", "session", "lower-bound-only"])
def test_a_poll_that_returns_an_earlier_end_is_stale(upper_bound: str) -> None:
    history = [ok(1, 10, 20, 0), ok(2, 30, 40, 1, process=1)]
    assert found([*history, empty(2, 50, 60)], upper_bound) == ()
    assert found([*history, empty(1, 35, 60, process=2)], upper_bound) == ()  # asked before the second was there
    expected = {"strict": ["stale-read"], "session": ["session-violation"], "lower-bound-only": []}
    assert [each.name for each in found([*history, empty(1, 50, 60)], upper_bound)] == expected[upper_bound]
    strangers = [each.name for each in found([*history, empty(1, 50, 60, process=9)], upper_bound)]
    assert strangers == (["stale-read"] if upper_bound == "strict" else [])


def test_a_client_that_reconnects_has_another_session() -> None:
    history = [ok(1, 10, 20, 0), read(0, [1], 30, 40)]
    stale = empty(0, 50, 60)
    the_one([*history, stale], "session-violation", "session")
    assert found([*history, replace(stale, session=2)], "session") == ()
    names = [each.name for each in found([*history, replace(stale, session=2)])]
    assert names == ["non-monotonic-high-watermark", "stale-read"]


def test_every_lost_value_is_named() -> None:
    appends = [ok(name, 10 * name, 10 * name + 5, name - 1) for name in range(1, 601)]
    anomaly = the_one([*appends, end(0, 10_000, 10_001, final=True)], "lost-acknowledged-write", "lower-bound-only")
    assert anomaly.count == 600
    named = [row["value"] for row in anomaly.witness if row["op"] == "append"]
    assert named[0] == v(1)
    assert named[1:] == [v(name) for name in range(600 - LISTED + 2, 601)]
    assert anomaly.sentence.endswith(" and 591 more")
    mixed = table([*appends[::2], *appends[1::2], end(0, 10_000, 10_001, final=True)])
    spread = GroupsInMemory.of(mixed, 300).report(64, upper_bound="lower-bound-only")
    assert spread.anomalies == (anomaly,)


def test_a_phantom_of_a_client_with_a_partial_record_is_undecided() -> None:
    history = [ok(1, 10, 20, 0), read(0, [1, 7], 30, 40)]
    owners = Owners(lambda value: decode_value(value).producer == 7, incomplete=True)
    report = check(table(history), owners=owners)
    assert report == GroupsInMemory.of(table(history), 1).report(1, owners=owners)
    assert report.anomalies == ()
    assert report.undecided == (
        "log-0: record 1.7.0 was read at offset 1, but never sent to this partition; the record of a client that may "
        "have sent it is incomplete",
    )
    others = [*history, read(2, [8], 50, 60)]
    assert [each.name for each in check(table(others), owners=owners).anomalies] == ["phantom"]
    unsent = Op(READ, 30, 40, values=(-2,), offsets=(1,), offset=1)
    assert [each.name for each in check(table([history[0], unsent]), owners=owners).anomalies] == ["phantom"]


def test_a_gap_that_a_lost_record_may_explain_is_undecided() -> None:
    history = [ok(1, 10, 20, 0), ok(2, 30, 40, 2)]
    report = check(table(history), owners=Owners(incomplete=True))
    assert report.anomalies == ()
    assert len(report.undecided) == 1


@pytest.mark.parametrize(
    "op",
    [
        ok(1, 1 << 61, 1 << 61, 0),
        ok(1, -(1 << 63), 20, 0),
        ok(1, 20, 10, 0),
        ok(1, 10, 20, (1 << 63) - 1),
        ok(1, 10, 20, -7),
        replace(ok(1, 10, 20, 0), value=-(1 << 63)),
        replace(ok(1, 10, 20, 0), f=9),
        replace(ok(1, 10, 20, 0), type=5),
        end((1 << 63) - 1, 10, 20),
        replace(end(1, 10, 20), hi=-(1 << 63)),
        Op(READ, 10, 20, values=(v(1),), offsets=((1 << 63) - 1,), offset=(1 << 63) - 1),
        Op(READ, 10, 20, values=(v(1),), offsets=(-1,), offset=-1),
    ],
)
def test_an_impossible_operation_is_refused_as_damage(tmp_path: Path, op: Op) -> None:
    for history in ([ok(9, 1, 2, 0), op], [op]):
        tables = stored(tmp_path, table(history))
        for span in (SPAN, 1 << 18):
            with pytest.raises(DamagedError, match="is damaged"):
                check_log(LogPlan.of(tables, span=span))


def test_a_record_may_have_any_bytes() -> None:
    for value in (-(1 << 63), (1 << 63) - 1, -1):
        (anomaly,) = found([Op(READ, 10, 20, values=(value,), offsets=(0,), offset=0)])
        assert anomaly.name == "phantom"


def test_append_reorder() -> None:
    anomaly = the_one([ok(1, 10, 20, 1), ok(2, 30, 40, 0)], "append-reorder")
    assert witness(anomaly) == [("append", 10), ("append", 30)]
    expected = "the append at offset 1 was acknowledged, but the append at offset 0 was invoked 0.000 ms after that"
    assert anomaly.sentence == expected


def test_append_reorder_of_an_append_that_timed_out() -> None:
    the_one([ok(1, 10, 20, 1), info(2, 30), read(0, [2], 40, 50)], "append-reorder")


def test_future_read() -> None:
    anomaly = the_one([read(0, [1], 10, 20), ok(1, 30, 40, 0)], "future-read")
    assert witness(anomaly) == [("read", 10), ("append", 30)]
    the_one([end(1, 10, 20), ok(1, 30, 40, 0)], "future-read")
    the_one([read(0, [1], 10, 20), info(1, 30)], "future-read")


def test_a_read_past_its_own_high_watermark() -> None:
    op = read(0, [1, 2], 50, 60)
    history = [ok(1, 10, 20, 0), ok(2, 30, 40, 1), Op(**{**vars(op), "hi": 1})]
    anomalies = found(history)
    assert [each.name for each in anomalies] == ["future-read", "stale-read"]
    assert witness(anomalies[0]) == [("read", 50)]
    assert found(history, "lower-bound-only") == ()


def test_stale_read() -> None:
    history = [ok(1, 10, 20, 0), end(0, 30, 40)]
    anomaly = the_one(history, "stale-read")
    assert witness(anomaly) == [("append", 10), ("end", 30)]
    assert found(history, "session") == ()
    assert found(history, "lower-bound-only") == ()
    the_one([ok(1, 10, 20, 0), empty(0, 30, 40)], "stale-read")
    the_one([ok(1, 10, 20, -1), read(0, [1], 50, 60), end(0, 30, 40)], "stale-read")


def test_non_monotonic_high_watermark() -> None:
    history = [info(1, 5), end(1, 10, 20, process=1), end(0, 30, 40, process=2)]
    anomaly = the_one(history, "non-monotonic-high-watermark")
    assert witness(anomaly) == [("end", 10), ("end", 30)]
    assert found(history, "session") == ()


@pytest.mark.parametrize("upper_bound", ["strict", "session"])
def test_session_violation(upper_bound: str) -> None:
    history = [info(1, 5), end(1, 10, 20, process=1), end(0, 30, 40, process=1)]
    anomaly = the_one(history, "session-violation", upper_bound)
    assert witness(anomaly) == [("end", 10), ("end", 30)]
    assert found(history, "lower-bound-only") == ()


def test_a_client_that_does_not_see_its_own_write() -> None:
    history = [ok(1, 10, 20, 0, process=5), end(0, 30, 40, process=5)]
    anomaly = the_one(history, "session-violation", "session")
    assert witness(anomaly) == [("append", 10), ("end", 30)]


def sent(sequence: int, inv: int, ret: int, offset: int, producer: int = 1) -> Op:
    return Op(0, inv, ret, value=encode_value(1, producer, sequence), offset=offset)


def test_producer_order() -> None:
    pipelined = [sent(0, 10, 50, 0), sent(1, 11, 51, 1), sent(0, 12, 52, 2, producer=2), sent(2, 13, 53, 3)]
    assert found(pipelined) == ()
    swapped = [sent(0, 10, 50, 0), sent(1, 11, 51, 3), sent(0, 12, 52, 2, producer=2), sent(2, 13, 53, 1)]
    anomaly = the_one(swapped, "producer-order")
    assert witness(anomaly) == [("append", 11), ("append", 13)]
    assert "record 1.1.2 is at offset 1 and record 1.1.1, sent before it by the same producer" in anomaly.sentence


def test_producer_order_is_checked_by_offsets_known_only_from_reads() -> None:
    """A client may omit the offsets of its appends."""
    pipelined = [sent(number, 10 + number, 50 + number, -1) for number in range(3)]
    values = tuple(each.value for each in pipelined)

    def shown(*order: int) -> list[Op]:
        answer = replace(read(0, [1, 2, 3], 60, 70), values=tuple(values[number] for number in order))
        return [*pipelined, answer]

    assert found(shown(0, 1, 2)) == ()
    anomaly = the_one(shown(0, 2, 1), "producer-order")
    assert witness(anomaly) == [("append", 11), ("append", 12)]
    assert "record 1.1.2 is at offset 1 and record 1.1.1, sent before it by the same producer" in anomaly.sentence
    unknown_outcome = [replace(pipelined[2], type=INFO, ret=INF), *shown(0, 2, 1)[:2], shown(0, 2, 1)[3]]
    assert found(unknown_outcome) == ()


def test_a_record_acknowledged_twice() -> None:
    anomaly = the_one([sent(0, 10, 20, 0), sent(0, 30, 40, 1)], "duplicate")
    assert "acknowledged twice, at offsets 0 and 1" in anomaly.sentence


SENT_BEFORE, SENT_AFTER = replace(ok(1, 10, 40, 1), value=v(1)), replace(ok(1, 11, 30, 0), value=v(1) + 1)
"""Records of one producer, in the log in the other order."""

WHOLE = [end(4, 100, 110, final=True), read(0, [2, 1, 3, 1], 120, 130, final=True)]

COPIES: dict[str, tuple[list[Op], list[Op], list[str]]] = {
    "a record of unknown outcome": ([info(1, 10)], [read(0, [1, 1], 20, 30)], ["duplicate"]),
    "an acknowledged record": ([ok(1, 10, 20, 0)], [read(0, [1, 1], 30, 40)], ["duplicate"]),
    "a copy before the acknowledged offset": (
        [ok(1, 10, 90, 3)],
        [ok(2, 11, 20, 0), ok(3, 30, 40, 2), *WHOLE],
        ["duplicate"],
    ),
    "a copy behind the acknowledged offset": (
        [ok(1, 10, 29, 1)],
        [ok(2, 11, 20, 0), ok(3, 30, 40, 2), *WHOLE],
        ["duplicate"],
    ),
    "copies of a record that was refused after it had been sent again": (
        [info(1, 10)],
        [ok(2, 11, 20, 0), ok(3, 30, 40, 2), *WHOLE],
        ["duplicate"],
    ),
    "an acknowledgement without an offset": ([ok(1, 10, 20, -1)], [read(0, [1, 1], 5, 90)], ["duplicate"]),
    "an acknowledgement by the leader alone": ([ok(1, 10, 20, 1, acks=1)], [read(0, [1, 1], 30, 40)], ["duplicate"]),
    "a place after its successor": ([SENT_BEFORE], [SENT_AFTER], ["producer-order"]),
    "a place before its predecessor": ([SENT_AFTER], [SENT_BEFORE], ["producer-order"]),
    "a copy that no read shows": ([ok(1, 10, 20, 0)], [end(2, 30, 40)], ["gap"]),
}
"""Records that their client library may have sent again, the other operations, and the anomalies if it has not."""


@pytest.mark.parametrize(("appends", "others", "names"), COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_a_record_that_was_sent_again_may_have_copies(
    tmp_path: Path, upper_bound: str, appends: list[Op], others: list[Op], names: list[str]
) -> None:
    assert [each.name for each in found([*appends, *others], upper_bound)] == names
    operations = table([*map(again, appends), *others])
    for span in (SPAN, 1):
        plan = LogPlan.of(stored(tmp_path, operations, 2), span=span)
        report = check_log(plan, upper_bound=upper_bound)
        assert report.anomalies == ()
        assert report.undecided == ()
        checked = check_ranges(plan, in_sequence, upper_bound)
        write_certificate(tmp_path / "proof", tmp_path, plan, checked, in_sequence, upper_bound=upper_bound)
        verify(tmp_path / "proof", tmp_path, upper_bound=upper_bound)


def test_a_record_that_was_sent_once_stays_a_duplicate_beside_one_that_was_not() -> None:
    history = [again(info(1, 10)), info(2, 10), read(0, [1, 1, 2, 2], 20, 30)]
    report = check(table(history))
    (anomaly,) = report.anomalies
    assert (anomaly.name, anomaly.count) == ("duplicate", 1)
    assert anomaly.sentence == "record 1.2.0 was appended once, but is in the log at offsets 2 and 3"
    assert report.undecided == ()


def test_producer_order_holds_among_records_that_were_sent_once() -> None:
    later = replace(ok(1, 12, 50, 2), value=v(1) + 2)
    assert found([again(SENT_BEFORE), SENT_AFTER, later]) == ()
    assert [each.name for each in found([SENT_BEFORE, SENT_AFTER, again(later)])] == ["producer-order"]


NO_COPY: dict[str, tuple[list[Op], list[str]]] = {
    "it is read before its invocation": ([again(info(1, 30)), read(0, [1], 10, 20)], ["future-read"]),
    "a copy is read before its invocation": (
        [info(2, 5), again(ok(1, 30, 40, 1)), read(0, [1], 10, 20)],
        ["future-read"],
    ),
    "a copy is before a record that was acknowledged earlier": (
        [again(ok(1, 30, 90, 2)), ok(2, 10, 20, 1), read(0, [1, 2, 1], 95, 99)],
        ["append-reorder"],
    ),
    "its acknowledged offset is before a record that was sent later": (
        [again(ok(1, 10, 20, 1)), ok(2, 30, 40, 0), read(0, [2, 1, 1], 50, 60)],
        ["append-reorder"],
    ),
    "an offset was there before its invocation": ([again(info(1, 50)), ok(2, 10, 20, 1)], ["gap"]),
    "its offset holds another": (
        [again(ok(1, 10, 20, 0)), info(2, 10), read(0, [2, 1], 40, 50)],
        ["offset-mismatch"],
    ),
    "all its copies are lost": (
        [again(ok(1, 10, 20, 1)), ok(2, 10, 20, 0), info(3, 10), read(0, [2, 1, 1], 30, 40),
         end(3, 100, 110, final=True), read(0, [2, 3, 3], 120, 130, final=True)],
        ["committed-then-truncated", "duplicate", "lost-acknowledged-write"],
    ),
    "a copy that was read is gone": (
        [again(info(1, 10)), read(0, [1, 1], 20, 30), end(1, 100, 110, final=True), read(0, [1], 120, 130, final=True)],
        ["committed-then-truncated", "non-monotonic-high-watermark"],
    ),
    "two readers see another record at the place of a copy": (
        [again(info(1, 10)), info(2, 10), read(0, [1, 1], 20, 30), read(0, [1, 2], 20, 30)],
        ["offset-mismatch"],
    ),
    "its partition is another": ([read(0, [1], 20, 30)], ["phantom"]),
    "it was refused": ([again(fail(1, 10, 20)), read(0, [1], 30, 40)], ["aborted-read"]),
}  # fmt: skip


@pytest.mark.parametrize(("history", "names"), NO_COPY.values(), ids=NO_COPY)
def test_a_copy_explains_no_other_anomaly(history: list[Op], names: list[str]) -> None:
    report = check(table(history))
    assert sorted(each.name for each in report.anomalies) == names
    assert report.undecided == ()


def test_a_gap_of_more_offsets_than_records_that_were_sent_again_is_a_doubt() -> None:
    report = check(table([again(ok(1, 10, 20, 0)), end(1 << 59, 30, 40)]))
    assert report.anomalies == ()
    (doubt,) = report.undecided
    assert doubt.endswith(f"a record {SENT_AGAIN} by its client library")


def test_a_record_that_was_sent_again_is_lost_as_any_other() -> None:
    final = [end(1, 100, 110, final=True), read(0, [1], 120, 130, final=True)]
    the_one([ok(1, 10, 20, 0), again(ok(2, 30, 40, 1)), *final], "lost-acknowledged-write")
    the_one([again(fail(2, 10, 20)), read(0, [2], 30, 40)], "aborted-read")


def test_a_corrupt_offset_ends_in_an_anomaly_not_in_a_lack_of_memory() -> None:
    far = 1 << 59
    anomaly = the_one([ok(1, 10, 20, 0), ok(2, 30, 40, far)], "gap")
    assert anomaly.count == far - 1
    anomalies = found([ok(1, 10, 20, 0), end(far, 30, 40)])
    assert [each.name for each in anomalies] == ["gap"]


def test_partitions_are_checked_separately_and_the_report_sums_them() -> None:
    good = [ok(1, 10, 20, 0), info(2, 15), info(9, 16), fail(3, 15, 16), ok(4, 20, 30, 2), read(0, [1], 30, 40)]
    final = [end(3, 100, 110, final=True), read(0, [1, 2, 4], 120, 130, final=True)]
    report = check(table([*good, *final], good, [ok(1, 10, 20, 1)]))
    assert [(each.partition, each.name) for each in report.anomalies] == [(2, "gap")]
    assert {key[1]: each.final_end for key, each in report.partitions.items()} == {0: 3, 1: None, 2: None}
    assert report.partitions["log", 1].stats["gaps_filled"] == 1
    assert sum(each.stats["acknowledged"] for each in report.partitions.values()) == 5
    assert sum(each.length for each in report.partitions.values()) == 8


def test_an_incomplete_final_read_leaves_losses_undecided() -> None:
    some = [ok(1, 10, 20, 0), ok(2, 30, 40, 1)]
    for final in (
        [end(2, 100, 110, final=True), read(0, [1], 120, 130, final=True)],
        [end(2, 100, 110, final=True), read(1, [2], 120, 130, final=True)],
        [end(2, 35, 110, final=True), read(0, [1, 2], 120, 130, final=True)],
        [read(0, [1, 2], 120, 130, final=True)],
    ):
        report = check(table([*some, *final]))
        assert report.ok
        assert report.partitions["log", 0].final_end is None


def test_witnesses_show_only_the_records_that_matter() -> None:
    names = list(range(1, 41))
    appends = [ok(name, 10 * name, 10 * name + 5, name - 1) for name in names]
    wrong = read(0, [*names[:20], 99, *names[21:]], 1000, 1010)
    anomalies = found([*appends, info(99, 5), wrong])
    assert [each.name for each in anomalies] == ["lost-acknowledged-write"]
    shown = anomalies[0].witness[1]
    assert shown["records"] == [[20, v(99)]]
    assert shown["record_count"] == 40
