"""The contents of replicas against the appends of clients: forbidden records, and ends that need an explanation."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.core.replica_evidence import Circumstances, ReplicaReport
from analysis.core.replicas import check_partition
from analysis.replicafiles.log import CONTROL_RECORD, NO_VALUE, ReplicaLog
from history.record.schemas import SENT_AGAIN
from tests.analysis.client_orders import appends_of, client_orders
from tests.analysis.log_histories import Op, end, fail, info, ok, table, v
from tests.analysis.replica_logs import replica

AT_REST = Circumstances(quiet=True, stopped=True)


def report(logs: Sequence[ReplicaLog], operations: list[Op], around: Circumstances = AT_REST) -> ReplicaReport:
    rows = table(operations)
    key = ("log", 0)
    return check_partition(logs, client_orders(rows).get(key), appends_of(rows).get(key), around)


def names(found: ReplicaReport) -> list[str]:
    return [each.name for each in found.anomalies]


def logs(*values: int) -> list[ReplicaLog]:
    return [replica(node, [1] * len(values), list(values), hw=len(values)) for node in ("n1", "n2")]


def final(length: int) -> Op:
    return replace(end(length, 900, 910), final=True)


SENT = [ok(1, 10, 20, 0), ok(2, 30, 40, 1)]


def test_appends_that_may_have_happened_explain_records_behind_the_final_end() -> None:
    assert report(logs(v(1), v(2)), [*SENT, final(2)]).ok
    assert report(logs(v(1), v(2), v(3)), [*SENT, info(3, 50), final(2)]).ok
    found = report(logs(v(1), v(2), v(3)), [*SENT, ok(3, 50, 60, 2), final(2)])
    assert names(found) == ["final-end-mismatch"]
    assert "ends at 2, but n1 holds record 1.3.0 at offset 2" in found.anomalies[0].sentence


def test_a_log_that_ends_before_the_final_end_has_a_loss() -> None:
    found = report(logs(v(1), v(2)), [*SENT, info(3, 50), final(3)])
    assert names(found) == ["final-end-mismatch"]
    assert [row["offset"] for row in found.anomalies[0].witness] == [3, 2, 2]
    torn = [replace(log, damage="torn") for log in logs(v(1), v(2))]
    assert report(torn, [*SENT, info(3, 50), final(3)]).ok, "what was not read may be there"


def test_a_record_may_be_at_two_offsets_if_it_may_have_been_sent_again() -> None:
    twice = logs(v(1), v(2), v(2))
    assert set(names(report(twice, SENT))) == {"duplicate-on-replica"}
    found = report(twice, [SENT[0], replace(SENT[1], error=SENT_AGAIN)])
    assert found.ok
    assert found.undecided == ()


def test_the_last_question_counts() -> None:
    first = replace(end(1, 800, 810), final=True)
    assert report(logs(v(1), v(2)), [*SENT, final(2), first]).ok


def test_a_refused_append_must_not_be_there() -> None:
    found = report(logs(v(1), v(2), v(3)), [*SENT, fail(3, 50, 60)])
    assert names(found) == ["phantom-on-replica"]
    assert "record 1.3.0 at offset 2, whose append was refused" in found.anomalies[0].sentence


def test_with_partly_known_appends_only_refused_ones_are_findings() -> None:
    partly = replace(AT_REST, all_sent=False)
    found = report(logs(v(1), v(2), v(9)), SENT, partly)
    assert found.ok
    doubt = "which no client sent to this partition, according to an incomplete record"
    assert any(doubt in each for each in found.undecided)
    assert names(report(logs(v(1), v(2), v(3)), [*SENT, fail(3, 50, 60)], partly)) == ["phantom-on-replica"]


def test_uncommitted_records_may_differ_while_the_system_runs() -> None:
    running = Circumstances()
    beyond = [replace(log, high_watermark=2) for log in logs(v(1), v(2), v(9))]
    assert report(beyond, SENT, running).ok
    assert names(report(logs(v(1), v(2), v(9)), SENT, running)) == ["phantom-on-replica"]


def test_a_value_is_once_in_a_log() -> None:
    found = report(logs(v(1), v(2), v(1)), SENT)
    assert "duplicate-on-replica" in names(found)
    twice = next(each for each in found.anomalies if each.name == "duplicate-on-replica")
    assert [row["offset"] for row in twice.witness] == [0, 2]


def test_control_records_are_reported_and_compressed_sets_stay_closed() -> None:
    controlled = report(logs(v(1), v(2), CONTROL_RECORD), SENT)
    assert controlled.ok
    assert any("has 1 control record," in each for each in controlled.undecided)
    opaque = [replace(log, opaque=((2, 4),)) for log in logs(v(1), v(2), NO_VALUE, NO_VALUE)]
    assert report(opaque, SENT).ok


def test_a_record_has_the_size_that_clients_gave_it() -> None:
    sized = replace(AT_REST, record_bytes=8)
    assert report(logs(v(1), v(2)), SENT, sized).ok
    short = [replace(log, size=np.array([8, 9])) for log in logs(v(1), v(2))]
    found = report(short, SENT, sized)
    assert names(found) == ["corrupt-record"]
    assert "with a value of 9 bytes" in found.anomalies[0].sentence


def test_logs_start_at_the_same_offset_unless_records_were_deleted() -> None:
    late = replica("n2", [1], [v(2)], hw=2, start=1)
    whole = replica("n1", [1, 1], [v(1), v(2)], hw=2)
    assert names(report([whole, late], SENT)) == ["replica-order-mismatch", "not-converged"]
    assert report([whole, late], SENT, replace(AT_REST, deleted_to=1)).ok


def test_offsets_without_a_file_are_undecided() -> None:
    def holed(node: str) -> ReplicaLog:
        log = replica(node, [1, 1], [v(1), v(3)], hw=3)
        return replace(log, offset=np.array([0, 2]), end=3, absent=((1, 2),))

    operations = [*SENT, ok(3, 50, 60, 2)]
    found = report([holed("n1"), holed("n2")], operations)
    assert found.ok
    assert any("has no file with the offsets 1 to 1" in each for each in found.undecided)
    left_out = [replace(holed(node), absent=(), gaps=((1, 2),)) for node in ("n1", "n2")]
    assert names(report(left_out, operations)) == ["replica-order-mismatch", "lost-acknowledged-write"]
