"""Each rule about replicas, by logs that keep it and logs that break it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import Appends, Circumstances, ClientOrder
from analysis.core.replicas import check_partition
from analysis.replicafiles.kafka import read_partition
from analysis.replicafiles.log import NO_VALUE, ReplicaLog
from history.record.schemas import INF
from tests.analysis.client_orders import client_orders
from tests.analysis.log_histories import end, info, ok, read, table, v
from tests.analysis.replica_logs import replica
from tests.analysis.segment_files import log_bytes, write_high_watermarks, write_replica

QUIET = Circumstances(quiet=True)
AT_REST = Circumstances(quiet=True, stopped=True)


def names(anomalies: Sequence[Anomaly]) -> list[str]:
    return [each.name for each in anomalies]


def test_equal_logs_with_lawfully_different_suffixes_agree() -> None:
    a = replica("n1", [1, 1, 2, 2], [1, 2, 3, 4], hw=2)
    b = replica("n2", [1, 1, 3], [1, 2, 9], hw=2)
    c = replica("n3", [1], [1], hw=1)
    report = check_partition([a, b, c])
    assert report.ok
    assert report.records == 8
    assert report.ends == {("log", 0): {"n1": (4, 2, 2), "n2": (3, 2, 3), "n3": (1, 1, 1)}}


def test_d1_different_records_below_both_high_watermarks() -> None:
    a = replica("n1", [1, 1, 2], [1, 2, 3], hw=3)
    b = replica("n2", [1, 1, 3], [1, 2, 4], hw=3)
    (anomaly,) = check_partition([a, b]).anomalies
    assert (anomaly.name, anomaly.count) == ("replica-divergence", 1)
    assert "n1 and n2 hold different records at offset 2, below both high watermarks" in anomaly.sentence
    assert [(each["node"], each["offset"], each["epoch"]) for each in anomaly.witness] == [("n1", 2, 2), ("n2", 2, 3)]


def test_d1_the_same_record_under_different_epochs_differs() -> None:
    a, b = replica("n1", [1, 1], [1, 2], hw=2), replica("n2", [1, 2], [1, 2], hw=2)
    assert "replica-divergence" in names(check_partition([a, b]).anomalies)


def test_d2_different_records_of_one_epoch_beyond_the_high_watermark() -> None:
    a, b = replica("n1", [1, 2], [1, 2], hw=1), replica("n2", [1, 2], [1, 3], hw=1)
    (anomaly,) = check_partition([a, b]).anomalies
    assert anomaly.name == "replica-divergence"
    assert "different records of the same epoch at offset 1" in anomaly.sentence


def test_d2_logs_that_share_a_record_share_all_before_it() -> None:
    a = replica("n1", [1, 2, 5], [1, 2, 5], hw=1)
    b = replica("n2", [1, 3, 5], [1, 3, 5], hw=1)
    (anomaly,) = [each for each in check_partition([a, b]).anomalies if each.name == "replica-divergence"]
    assert "at offset 1, before a record that they share" in anomaly.sentence


def test_d3_epochs_fall_in_a_log_or_in_its_epoch_file() -> None:
    (anomaly,) = check_partition([replica("n1", [1, 3, 2], [1, 2, 3], hw=0)]).anomalies[:1]
    assert (anomaly.name, len(anomaly.witness)) == ("epoch-regression", 2)
    assert "from 3 at offset 1 to 2 at offset 2" in anomaly.sentence
    bad_file = replica("n1", [1, 2], [1, 2], hw=0, file=((1, 0), (2, 1), (3, 0)))
    assert names(check_partition([bad_file]).anomalies) == ["epoch-regression", "epoch-start-mismatch"]


def test_d4_an_epoch_starts_at_different_offsets() -> None:
    a = replica("n1", [1, 1, 2], [1, 2, 3], hw=3)
    b = replica("n2", [1, 1, 2], [1, 2, 3], hw=3, file=((1, 0), (2, 1)))
    (anomaly,) = check_partition([a, b]).anomalies
    assert anomaly.name == "epoch-start-mismatch"
    assert "epoch 2 starts at offset 2 in the epoch file of n1, but at 1 in the epoch file of n2" in anomaly.sentence


def test_d4_an_epoch_file_lacks_an_epoch_of_its_log() -> None:
    (anomaly,) = check_partition([replica("n1", [1, 2], [1, 2], hw=2, file=((1, 0),))]).anomalies
    assert anomaly.name == "epoch-start-mismatch"
    assert "lacks epoch 2, whose first record is at offset 1" in anomaly.sentence


def test_d4_deleting_old_segments_moves_the_oldest_entry_lawfully() -> None:
    a = replica("n1", [1, 1, 2], [1, 2, 3], hw=3)
    b = replica("n2", [1, 2], [2, 3], hw=3, start=1)
    assert check_partition([a, b], circumstances=Circumstances(quiet=True, deleted_to=INF)).ok


def order(*values: int, acknowledged: bool = True) -> ClientOrder:
    return ClientOrder(np.arange(len(values)), np.array(values), np.full(len(values), acknowledged))


def test_d5_the_log_agrees_with_the_answers_to_clients() -> None:
    log = replica("n1", [1, 1, 1], [1, 2, 3], hw=2)
    assert check_partition([log], order(1, 2, 9)).ok  # offset 2 is not yet below the high watermark
    (anomaly,) = check_partition([log], order(1, 9)).anomalies
    assert anomaly.name == "replica-order-mismatch"
    assert [each["value"] for each in anomaly.witness] == [9, 2]


def test_d6_the_logs_end_together() -> None:
    a, b = replica("n1", [1, 1], [1, 2], hw=2), replica("n2", [1], [1], hw=1)
    assert check_partition([a, b]).ok
    (anomaly,) = check_partition([a, b], circumstances=QUIET).anomalies
    assert anomaly.name == "not-converged"
    assert [each["offset"] for each in anomaly.witness] == [2, 1]


def test_d6_a_high_watermark_that_stays_behind_counts_only_after_a_clean_stop() -> None:
    a, b = replica("n1", [1, 1], [1, 2], hw=2), replica("n2", [1, 1], [1, 2], hw=1)
    assert check_partition([a, b], circumstances=QUIET).ok
    (anomaly,) = check_partition([a, b], circumstances=AT_REST).anomalies
    assert anomaly.name == "not-converged"
    assert "stayed behind on n2 at 1" in anomaly.sentence


def test_d6_a_record_that_arrives_after_the_final_reads_may_be_on_one_replica() -> None:
    """A request that timed out at its client: the nodes stopped while its record, or its high watermark, was in
    flight."""
    late = Appends(sent=np.array([1, 2, 3]), refused=np.array([]), loose=np.array([3]), end=2)
    a = replica("n1", [1, 1, 1], [1, 2, 3], hw=3)
    for b in (replica("n2", [1, 1, 1], [1, 2, 3], hw=2), replica("n2", [1, 1], [1, 2], hw=2)):
        assert check_partition([a, b], appends=late, circumstances=AT_REST).ok
        (anomaly,) = check_partition([a, b], circumstances=AT_REST).anomalies
        assert anomaly.name == "not-converged"
    for b in (replica("n2", [1, 1, 1], [1, 2, 3], hw=1), replica("n2", [1], [1], hw=1)):
        (anomaly,) = check_partition([a, b], appends=late, circumstances=AT_REST).anomalies
        assert anomaly.name == "not-converged", "these had their time"


def test_d6_a_record_that_its_leader_acknowledged_is_not_late() -> None:
    """KAFKA-1120: a follower that fetches nothing keeps the final reads' end below a record with acks=1."""
    third = np.array([3])
    answered = Appends(sent=np.array([1, 2, 3]), refused=np.array([]), loose=third, end=2, answered=third)
    a = replica("n1", [1, 1, 1], [1, 2, 3], hw=2)
    (anomaly,) = check_partition(
        [a, replica("n2", [1, 1], [1, 2], hw=2)], appends=answered, circumstances=AT_REST
    ).anomalies
    assert anomaly.name == "not-converged"
    assert check_partition([a, replica("n2", [1, 1, 1], [1, 2, 3], hw=2)], appends=answered, circumstances=AT_REST).ok


def test_d6_every_acknowledged_record_is_on_every_replica() -> None:
    a, b = (replica(node, [1, 1], [1, 2], hw=2) for node in ("n1", "n2"))
    assert check_partition([a, b], order(1, 2, 3, acknowledged=False), circumstances=QUIET).ok
    (anomaly,) = check_partition([a, b], order(1, 2, 3), circumstances=QUIET).anomalies
    assert anomaly.name == "lost-acknowledged-write"
    assert "acknowledged at offset 2, but no replica holds it (n1 ends at 2, n2 ends at 2)" in anomaly.sentence


def test_d7_a_committed_record_stays() -> None:
    before = replica("n1", [1, 1, 1], [1, 2, 3], hw=2)

    def later(log: ReplicaLog, *, deleted_to: int = 0) -> list[Anomaly]:
        report = check_partition([log], circumstances=Circumstances(deleted_to=deleted_to), earlier=[before])
        assert report.earlier == 1
        return list(report.anomalies)

    assert later(replica("n1", [1, 1, 2], [1, 2, 4], hw=3)) == []
    head_gone = replica("n1", [1, 2], [2, 4], hw=3, start=1)
    assert later(head_gone, deleted_to=INF) == later(head_gone, deleted_to=1) == []
    assert names(later(head_gone)) == ["prefix-changed"]
    (replaced,) = later(replica("n1", [1, 2], [1, 4], hw=2))
    assert (replaced.name, len(replaced.witness)) == ("prefix-changed", 2)
    (gone,) = later(replica("n1", [1], [1], hw=1))
    assert "a later dump of its log lacks it" in gone.sentence
    assert later(replace(replica("n1", [1], [1], hw=1), damage="torn")) == [], "what was not read may be there"
    assert check_partition([replica("n2", [1], [9], hw=1)], earlier=[before]).earlier == 0


def test_the_client_order_consists_of_acknowledgements_and_reads() -> None:
    operations = table([ok(1, 10, 20, 0), info(2, 10), ok(3, 10, 20, 2, acks=1), read(1, [2], 30, 40), end(2, 50, 60)])
    client_order = client_orders(operations)["log", 0]
    assert client_order.offset.tolist() == [0, 1]
    assert client_order.value.tolist() == [v(1), v(2)]
    assert client_order.acknowledged.tolist() == [True, False]


def test_from_files_to_findings(tmp_path: Path) -> None:
    for node, values, mark in (("n1", [v(1), v(2), v(3)], 3), ("n2", [v(1), v(2), v(4)], 3)):
        data = tmp_path / node
        write_replica(data, "log", 0, {0: log_bytes([1, 1, 1], values)}, epochs=[(1, 0)])
        write_high_watermarks(data, {("log", 0): mark})
    logs = [read_partition(node, ("log", 0), tmp_path / node) for node in ("n1", "n2")]
    orders = client_orders(table([ok(1, 10, 20, 0), ok(2, 30, 40, 1), ok(3, 50, 60, 2)]))
    report = check_partition(logs, orders["log", 0], circumstances=AT_REST)
    assert names(report.anomalies) == ["replica-divergence", "replica-order-mismatch"]
    assert report.anomalies[1].witness[1]["node"] == "n2"


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    write_replica(tmp_path, "log", 0, {0: log_bytes([1], [1]) + b"torn"}, epochs=[(1, 0)])
    report = check_partition([read_partition("n1", ("log", 0), tmp_path)])
    assert report.ok
    assert len(report.undecided) == 2
    assert "log-0 on n1 ends early" in report.undecided[0]
    assert "log-0 on n1 has no high watermark" in report.undecided[1]


@pytest.mark.parametrize("quiet", [False, True])
def test_replicas_without_records_agree(quiet: bool) -> None:
    assert check_partition(
        [replica("n1", [], [], hw=0), replica("n2", [], [], hw=-1)], order(), circumstances=Circumstances(quiet=quiet)
    ).ok


OLD = -1  # the epoch of records whose format has none


def test_logs_without_epochs_are_compared_by_their_records() -> None:
    a = replica("n1", [OLD, OLD, OLD], [1, 2, 3], hw=2, file=())
    assert check_partition([a, replica("n2", [OLD, OLD, OLD], [1, 2, 9], hw=2, file=())]).ok, "lawful: not committed"
    (anomaly,) = check_partition([a, replica("n2", [OLD, OLD, OLD], [1, 8, 3], hw=2, file=())]).anomalies
    assert (anomaly.name, anomaly.count) == ("replica-divergence", 1)
    assert anomaly.sentence.endswith("at offset 1, below both high watermarks: record 0.0.2 and record 0.0.8")


def test_d5_and_d6_apply_without_epochs() -> None:
    a, b = (replica(node, [OLD, OLD], [1, 2], hw=2, file=()) for node in ("n1", "n2"))
    assert check_partition([a, b], order(1, 2), circumstances=AT_REST).ok
    found = names(check_partition([a, b], order(1, 9, 3), circumstances=QUIET).anomalies)
    assert found == ["replica-order-mismatch", "lost-acknowledged-write"]
    assert names(check_partition([a, replica("n2", [OLD], [1], hw=1)], circumstances=QUIET).anomalies) == [
        "not-converged"
    ]


def test_a_log_that_changed_its_format_keeps_d3_where_it_has_epochs() -> None:
    """The epoch file may have an entry from before the format changed, which no record can confirm."""
    changed = replica("n1", [OLD, OLD, 3, 4, OLD, 4], [1, 2, 3, 4, 5, 6], hw=6, file=((3, 1), (4, 3)))
    converted = replica("n2", [OLD] * 6, [1, 2, 3, 4, 5, 6], hw=6, file=())
    assert check_partition([changed, converted], circumstances=QUIET).ok
    falls = replica("n1", [OLD, 4, OLD, 3], [1, 2, 3, 4], hw=0, file=())
    (anomaly,) = check_partition([falls]).anomalies
    assert "falls from 4 at offset 1 to 3 at offset 3" in anomaly.sentence


def test_the_report_names_logs_without_epochs() -> None:
    old = replace(replica("n1", [OLD], [1], hw=1, file=()), formats=(1, 2))
    assert check_partition([old]).without_epochs == (("log-0", 1),)
    assert check_partition([replica("n1", [1], [1], hw=1)]).without_epochs == ()


def test_the_end_of_an_unread_log_is_undecided() -> None:
    unread = replace(replica("n1", [1], [1], hw=3), unread="message format 7 is not known")
    whole = replica("n2", [1, 1, 1], [1, 2, 3], hw=3)
    report = check_partition([unread, whole], order(1, 2, 3, 4), circumstances=AT_REST)
    assert report.ok
    assert report.undecided == (
        "the log of log-0 on n1 could not be read to its end: message format 7 is not known",
        "the log of log-0 on n1 was read up to offset 1, but its high watermark is 3",
    )
    read = replace(unread, unread="")
    assert names(check_partition([read, whole], order(1, 2, 3, 4), circumstances=QUIET).anomalies) == [
        "lost-acknowledged-write",
        "not-converged",
    ]


def test_the_read_part_of_an_unread_log_still_counts() -> None:
    unread = replace(replica("n1", [1, 1], [1, 9], hw=3), unread="message format 7 is not known")
    whole = replica("n2", [1, 1, 1], [1, 2, 3], hw=3)
    assert names(check_partition([unread, whole], circumstances=QUIET).anomalies) == ["replica-divergence"]


def test_closed_sets_do_not_contradict_the_answers_to_clients() -> None:
    def packed(node: str, digests: Sequence[int]) -> ReplicaLog:
        log = replica(node, [1, 1, 1], [1, NO_VALUE, NO_VALUE], hw=3)
        return replace(log, opaque=((1, 3),), digest=np.array(digests, np.uint64))

    one, same = packed("n1", [1, 2, 3]), packed("n2", [1, 2, 3])
    report = check_partition([one, same], order(1, 2, 3), circumstances=QUIET)
    assert report.ok
    assert report.undecided[0] == "the log of log-0 on n1 has 2 records in compressed sets that are not opened"
    assert names(check_partition([one, packed("n2", [1, 2, 4])], circumstances=QUIET).anomalies) == [
        "replica-divergence"
    ]
    opened = replace(same, opaque=(), value=np.array([1, 2, 3]), digest=np.array([1, 7, 8], np.uint64))
    assert check_partition([one, opened], order(1, 2, 3), circumstances=QUIET).ok, (
        "a record against a set cannot be compared"
    )
    other_epoch = replace(opened, epoch=np.array([1, 1, 2]), epochs=((1, 0), (2, 2)))
    assert "replica-divergence" in names(check_partition([one, other_epoch], circumstances=QUIET).anomalies), (
        "but its epoch can"
    )
