"""The verdicts of a run with changed replica files: a table of changes with the expected verdict of each."""

import shutil
from pathlib import Path

import pytest

from analysis.pipeline import analyze
from analysis.verdict import Check, Verdict
from history.journal.writer import Journal
from history.seal import seal
from tests.analysis.compressed_sets import GZIP, LZ4, ZSTD, compressed
from tests.analysis.segment_files import batch, record, value, write_identity, write_replica
from tests.analysis_pipeline.replica_sets import (
    ALL,
    EPOCHS,
    HEADER,
    MARKS,
    SIZE,
    Change,
    ReplicaSet,
    each_node,
    one,
    sent,
    steps,
    swap,
)
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun

LAST = RECORDS - 1

LAWFUL: dict[str, Change] = {
    "as they were": lambda r: r.run,
    "several segments": lambda r: r.split(10, 25),
    "an empty active segment": lambda r: r.segment(base=RECORDS).write_bytes(b""),
    "records batched otherwise": lambda r: r.rewrite(
        [batch(0, 1, [record(at, value(sent(at), SIZE)) for at in range(RECORDS)])]
    ),
    "compressed batches": lambda r: r.replace(20, one(20, codec=ZSTD), ALL),
    "a compressed batch on one": lambda r: r.replace(20, one(20, codec=LZ4)),
    "an epoch without records at the end": lambda r: r.epochs(f"0\n2\n1 0\n2 {RECORDS}\n"),
    "files that are not evidence": lambda r: (r.directory() / "00000000000000000000.index").write_bytes(b"x"),
    "an earlier dump that is the same": lambda r: r.dump(),
    "an internal topic's replica": lambda r: write_replica(r.data(), "__other", 0, {0: b"junk"}),
}

UNKNOWN: dict[str, tuple[Change, str]] = {
    # absent
    "a node's files are gone": (lambda r: shutil.rmtree(r.data()), "n2 holds no replica of log-0"),
    "all nodes' files are gone": (
        lambda r: each_node(lambda node: shutil.rmtree(r.data(node))),
        "no record was compared",
    ),
    "a replica's directory is gone": (lambda r: shutil.rmtree(r.directory()), "n2 holds no replica of log-0"),
    "every replica's directory is gone": (
        lambda r: each_node(lambda node: shutil.rmtree(r.directory(node))),
        "n1 holds no replica of log-0",
    ),
    "a replica's segments are gone": (lambda r: r.segment().unlink(), "the log has no segments"),
    "the epoch file is gone": (lambda r: (r.directory() / EPOCHS).unlink(), f"on n2 has no {EPOCHS}"),
    "the high watermarks are gone": (lambda r: (r.data() / MARKS).unlink(), "on n2 has no high watermark"),
    "the partition's high watermark is gone": (lambda r: r.marks("0\n1\nlog 1 40\n"), "on n2 has no high watermark"),
    "whose files they are is gone": (lambda r: (r.data() / "meta.properties").unlink(), "do not identify their node"),
    "one topic id is gone": (lambda r: (r.directory() / "partition.metadata").unlink(), "different topics"),
    "an earlier dump is gone": (
        lambda r: _note(r, dumped=["n2"]),
        "the earlier dumps of n2 are missing",
    ),
    "a segment in the middle missing": (
        steps(lambda r: r.split(10, 20), lambda r: r.segment(base=10).unlink()),
        "has no file with the offsets 10 to 19",
    ),
    "an empty segment in the middle": (
        steps(lambda r: r.split(10, 20), lambda r: r.segment(base=10).write_bytes(b"")),
        "has no file with the offsets 10 to 19",
    ),
    # damaged
    "the tail is torn": (lambda r: r.segment().write_bytes(r.segment().read_bytes()[:-5]), "torn batch"),
    "junk behind the tail": (lambda r: r.append(b"\xff" * 80, ["n2"], mark=None), "80 bytes of no batch"),
    "a short piece behind the tail": (lambda r: r.append(b"abc", ["n2"], mark=None), "3 bytes of a torn batch"),
    "zeros behind the tail": (lambda r: r.append(bytes(4096), ["n2"], mark=None), "4096 bytes of zeros"),
    "a record's byte flipped": (lambda r: r.poke(20, HEADER + 14, b"\xff", seal=False), "does not match its CRC-32C"),
    "a record's byte flipped in the last batch": (lambda r: r.poke(LAST, 80, b"\xff", seal=False), "CRC-32C"),
    "a checksum flipped": (lambda r: r.poke(20, 17, b"\xff", seal=False), "does not match its CRC-32C"),
    "a page of zeros in the middle": (lambda r: r.replace(20, bytes(len(r.batches()[20]))), "bytes of zeros at"),
    "a length flipped": (lambda r: r.poke(20, 8, b"\x7f", seal=False), "torn batch"),
    "a base offset flipped": (lambda r: r.poke(20, 6, b"\x01", seal=False), "base offset 276 where 20 is due"),
    "no leader epoch in a batch": (lambda r: r.poke(20, 12, b"\xff" * 4, seal=False), "has no leader epoch"),
    "a batch twice": (lambda r: r.rewrite([*r.batches()[:20], *r.batches()[19:]]), "base offset 19 where 20 is due"),
    "two batches swapped": (
        lambda r: r.rewrite([*r.batches()[:20], r.batches()[21], r.batches()[20], *r.batches()[22:]]),
        "base offset 21 where 20 is due",
    ),
    "the first of several segments torn": (
        steps(lambda r: r.split(10), lambda r: r.segment().write_bytes(r.segment().read_bytes()[:-5])),
        "bytes of later segments",
    ),
    "a segment under another name": (
        steps(lambda r: r.split(10), lambda r: r.segment(base=10).rename(r.segment(base=12))),
        "base offset 10 where 12 is due",
    ),
    "the first segment under another name": (
        lambda r: r.segment().rename(r.segment(base=7)),
        "base offset 0 where 7 is due",
    ),
    "a segment under no offset's name": (
        steps(lambda r: r.split(10), lambda r: r.segment(base=10).rename(r.directory() / "10.log")),
        "10.log is not named as a segment",
    ),
    "a file that cannot be read": (
        steps(lambda r: r.segment().unlink(), lambda r: r.segment().mkdir()),
        "cannot be read",
    ),
    "a torn epoch file": (lambda r: r.epochs("0\n1\n1 "), f"damaged {EPOCHS}"),
    "an empty epoch file": (lambda r: r.epochs(""), f"damaged {EPOCHS}"),
    "a miscounted epoch file": (lambda r: r.epochs("0\n2\n1 0\n"), f"damaged {EPOCHS}"),
    "torn high watermarks": (lambda r: r.marks("0\n1\nlog 0 4"), f"damaged {MARKS}"),
    "empty high watermarks": (lambda r: r.marks(""), f"has no high watermark in {MARKS}"),
    "a negative high watermark": (lambda r: r.marks("0\n1\nlog 0 -7\n"), f"damaged {MARKS}"),
    "a high watermark that is not a number": (lambda r: r.marks("0\n1\nlog 0 many\n"), f"damaged {MARKS}"),
    "high watermarks that say it twice": (lambda r: r.marks("0\n2\nlog 0 40\nlog 0 39\n"), "in it twice"),
    "high watermarks of another version": (lambda r: r.marks("1\n1\nlog 0 40\n"), f"damaged {MARKS}"),
    "a latest timestamp of no record": (lambda r: r.poke(20, 35, b"\0" * 6 + b"\7\7", seal=True), "latest timestamp"),
    "latest timestamps of no record": (
        lambda r: r.poke(20, 35, b"\0" * 6 + b"\7\7", seal=True, nodes=ALL),
        "latest timestamp",
    ),
    # batches that contradict themselves
    "a count that is too small": (
        lambda r: r.replace(20, batch(20, 1, [record(0, value(sent(20), SIZE))] * 2, count=1, last=0)),
        "bytes behind its last record",
    ),
    "a count that is too large": (lambda r: r.poke(20, 57, b"\0\0\0\2", seal=True), "has 2 records and"),
    "a monstrous count": (
        lambda r: r.replace(20, one(20, count=2**31 - 1, last=2**31 - 2)),
        "fewer records than it counts",
    ),
    "a monstrous compressed count": (
        lambda r: r.replace(20, one(20, count=2**31 - 1, last=2**31 - 2, attributes=4)),
        "records",
    ),
    "a count of none": (lambda r: r.replace(20, batch(20, 1, [])), "has 0 records"),
    "a last offset delta that is too large": (lambda r: r.replace(LAST, one(LAST, last=5)), "last offset delta 5"),
    "a negative last offset delta": (lambda r: r.replace(20, one(20, last=-1)), "last offset delta -1"),
    "offset deltas that start at 1": (
        lambda r: r.replace(20, batch(20, 1, [record(1, value(sent(20), SIZE))]), ALL),
        "offset delta out of order",
    ),
    "offset deltas exchanged": (
        lambda r: r.rewrite([*r.batches()[:20], _two(20, (1, 0)), *r.batches()[22:]], ALL),
        "offset delta out of order",
    ),
    "a record longer than its parts": (lambda r: r.replace(20, batch(20, 1, [_padded(20)])), "parts do not fill it"),
    "bytes behind the last record": (
        lambda r: r.replace(20, batch(20, 1, [record(0, value(sent(20), SIZE)) + b"x"], count=1, last=0)),
        "bytes behind its last record",
    ),
    "a number not in its shortest form": (lambda r: r.replace(20, batch(20, 1, [_long_number(20)])), "shortest form"),
    "unknown attributes of a record": (lambda r: r.poke(20, HEADER + 1, b"\1", seal=True), "unknown attributes"),
    "a malformed batch on all": (lambda r: r.poke(20, HEADER + 1, b"\1", seal=True, nodes=ALL), "unknown attributes"),
    # not understood
    "an unknown message format": (lambda r: r.poke(20, 16, b"\7", seal=False), "message format 7"),
    "an unknown message format on all": (lambda r: r.poke(20, 16, b"\7", seal=False, nodes=ALL), "message format 7"),
    "unknown attributes": (lambda r: r.poke(20, 21, b"\1\0", seal=True, nodes=ALL), "attributes 0x0100"),
    "an unknown codec": (lambda r: r.poke(20, 21, b"\0\6", seal=True, nodes=ALL), "attributes 0x0006"),
    "batches that are called compressed": (
        lambda r: r.poke(20, 21, b"\0\4", seal=True, nodes=ALL),
        "does not open as zstd",
    ),
    "a batch that is called compressed": (lambda r: r.poke(20, 21, b"\0\4", seal=True), "does not open as zstd"),
    "a compressed batch without its end": (lambda r: r.replace(20, _torn_set(20)), "does not open as gzip"),
    "a control record at the end": (lambda r: r.append(one(RECORDS, attributes=0x20)), "control record"),
    # not as planned
    "nodes' files swapped": (lambda r: swap(r.data("n1"), r.data("n2")), "those of another node"),
    "two nodes' properties swapped": (
        lambda r: swap(r.data("n1") / "meta.properties", r.data("n2") / "meta.properties"),
        "those of another node",
    ),
    "a node of another cluster": (
        lambda r: write_identity(r.data(), 2, cluster="other"),
        "different clusters",
    ),
    "another topic of that name": (
        lambda r: (r.directory() / "partition.metadata").write_text("version: 0\ntopic_id: other\n"),
        "different topics",
    ),
    "an unplanned partition": (
        lambda r: shutil.copytree(r.directory(), r.data() / "log-7"),
        "n2 holds a replica of log-7, which was not assigned",
    ),
    "a high watermark of no replica": (
        lambda r: r.marks(f"0\n2\nlog 0 {RECORDS}\nlog 9 12\n"),
        "n2 has a high watermark of log-9, but no replica of it",
    ),
    "an unplanned topic": (
        lambda r: shutil.copytree(r.directory(), r.data() / "other-0"),
        "n2 holds a replica of other-0, which was not assigned",
    ),
    "a replica set aside": (
        lambda r: shutil.copytree(r.directory(), r.data() / "log-0.abc-stray"),
        "has set a replica aside",
    ),
}

FAIL: dict[str, tuple[Change, str]] = {
    # records
    "a record lost by one": (lambda r: r.rewrite(r.batches()[:-1]), "not-converged"),
    "all records lost by one": (lambda r: r.rewrite([]), "not-converged"),
    "a record lost by all": (
        steps(lambda r: r.rewrite(r.batches()[:-1], ALL), lambda r: r.marks("0\n1\nlog 0 39\n", ALL)),
        "lost-acknowledged-write",
    ),
    "all records lost by all": (
        steps(lambda r: r.rewrite([], ALL), lambda r: r.marks("0\n1\nlog 0 0\n", ALL)),
        "lost-acknowledged-write",
    ),
    "a record missing in the middle": (
        lambda r: r.rewrite([*r.batches()[:20], *r.batches()[21:]]),
        "replica-order-mismatch",
    ),
    "another record in its place": (lambda r: r.replace(20, one(20, sent(999))), "replica-divergence"),
    "another record in its place on all": (lambda r: r.replace(20, one(20, sent(999)), ALL), "phantom-on-replica"),
    "two records exchanged on all": (
        steps(lambda r: r.replace(20, one(20, sent(21)), ALL), lambda r: r.replace(21, one(21, sent(20)), ALL)),
        "replica-order-mismatch",
    ),
    "a record twice on all": (lambda r: r.append(one(RECORDS, sent(3))), "duplicate-on-replica"),
    "an unsent record": (lambda r: r.append(one(RECORDS, sent(999))), "phantom-on-replica"),
    "a record that carries no value": (
        lambda r: r.append(batch(RECORDS, 1, [record(0, b"tiny")])),
        "phantom-on-replica",
    ),
    "a negative value": (lambda r: r.append(one(RECORDS, -5)), "phantom-on-replica"),
    "a null value": (lambda r: r.append(batch(RECORDS, 1, [record(0, None)])), "phantom-on-replica"),
    "more than the final reads returned": (lambda r: r.append(one(RECORDS, sent(999))), "final-end-mismatch"),
    "a byte of a value changed": (lambda r: r.poke(20, HEADER + 20, b"\xff", seal=True), "replica-divergence"),
    "a byte of a value changed on all": (
        lambda r: r.poke(20, HEADER + 20, b"\xff", seal=True, nodes=ALL),
        "corrupt-record",
    ),
    "the last byte of a value changed on all": (
        lambda r: r.poke(20, HEADER + 25, b"\xff", seal=True, nodes=ALL),
        "corrupt-record",
    ),
    "a value of zeros behind the number": (
        lambda r: r.replace(20, batch(20, 1, [record(0, value(sent(20)) + bytes(12))]), ALL),
        "corrupt-record",
    ),
    "a shorter value": (lambda r: r.replace(20, one(20, size=12), ALL), "corrupt-record"),
    "a longer value": (lambda r: r.replace(20, one(20, size=24), ALL), "corrupt-record"),
    "a key": (
        lambda r: r.replace(20, batch(20, 1, [record(0, value(sent(20), SIZE), key=b"k")]), ALL),
        "corrupt-record",
    ),
    "an empty key": (
        lambda r: r.replace(20, batch(20, 1, [record(0, value(sent(20), SIZE), key=b"")]), ALL),
        "corrupt-record",
    ),
    "a header": (
        lambda r: r.replace(20, batch(20, 1, [record(0, value(sent(20), SIZE), header=b"h")]), ALL),
        "corrupt-record",
    ),
    "another timestamp": (lambda r: r.replace(20, one(20, time=2_000)), "replica-divergence"),
    "another producer": (lambda r: r.replace(20, one(20, producer=(7, 0, 0))), "replica-divergence"),
    "a transaction's record": (lambda r: r.replace(20, one(20, attributes=0x10)), "replica-divergence"),
    "a record made a control record": (
        lambda r: r.poke(20, 21, b"\0\x20", seal=True, nodes=ALL),
        "replica-order-mismatch",
    ),
    # segments
    "the first segment missing": (
        steps(lambda r: r.split(10), lambda r: r.segment().unlink()),
        "replica-order-mismatch",
    ),
    "the beginnings differ": (
        steps(lambda r: r.split(10), lambda r: r.segment().unlink()),
        "not-converged",
    ),
    "the first segment missing on all": (
        steps(lambda r: r.split(10, nodes=ALL), lambda r: each_node(lambda node: r.segment(node).unlink())),
        "lost-acknowledged-write",
    ),
    "the last segment missing": (steps(lambda r: r.split(10), lambda r: r.segment(base=10).unlink()), "not-converged"),
    # epochs
    "an older epoch behind a newer one": (lambda r: r.poke(20, 12, b"\0\0\0\0", seal=False), "epoch-regression"),
    "another epoch on one": (lambda r: r.poke(LAST, 12, b"\0\0\0\2", seal=False), "replica-divergence"),
    "an epoch that is not on file": (
        lambda r: r.poke(LAST, 12, b"\0\0\0\2", seal=False, nodes=ALL),
        "epoch-start-mismatch",
    ),
    "an epoch file of no entries": (lambda r: r.epochs("0\n0\n"), "epoch-start-mismatch"),
    "an epoch file of another log": (lambda r: r.epochs("0\n2\n1 0\n3 20\n"), "epoch-start-mismatch"),
    "an epoch that starts elsewhere": (lambda r: r.epochs("0\n1\n1 5\n"), "epoch-start-mismatch"),
    "an epoch beyond the end": (lambda r: r.epochs("0\n2\n1 0\n2 50\n"), "epoch-start-mismatch"),
    "epochs that fall": (lambda r: r.epochs("0\n2\n1 0\n0 5\n"), "epoch-regression"),
    # high watermarks
    "a high watermark that stayed behind": (lambda r: r.marks("0\n1\nlog 0 30\n"), "not-converged"),
    "a high watermark of nothing": (lambda r: r.marks("0\n1\nlog 0 0\n"), "not-converged"),
    "a high watermark beyond the end": (lambda r: r.marks("0\n1\nlog 0 50\n"), "not-converged"),
    "high watermarks beyond the end": (lambda r: r.marks("0\n1\nlog 0 50\n", ALL), "not-converged"),
    # earlier dumps
    "a committed record changed since": (lambda r: _dump_with(r, one(20, sent(999))), "prefix-changed"),
    "a committed record gone since": (
        steps(
            lambda r: r.dump("n1"),
            lambda r: r.rewrite(r.batches()[:-1], ALL),
            lambda r: r.marks("0\n1\nlog 0 39\n", ALL),
        ),
        "prefix-changed",
    ),
}


def _note(replicas: ReplicaSet, **fields: object) -> None:
    with Journal(replicas.run) as journal:
        journal.note("note of a test", **fields)


def _two(base: int, deltas: tuple[int, int]) -> bytes:
    return batch(base, 1, [record(delta, value(sent(base + delta), SIZE)) for delta in deltas])


def _torn_set(offset: int) -> bytes:
    """A batch that is whole, of a compressed set that is not."""
    packed = compressed(GZIP, record(0, value(sent(offset), SIZE)))
    return batch(offset, 1, [packed[:-1]], attributes=GZIP, count=1, last=0)


def _padded(offset: int) -> bytes:
    """A record whose length counts a byte behind its headers."""
    plain = record(0, value(sent(offset), SIZE))
    return bytes([plain[0] + 2]) + plain[1:] + b"x"


def _long_number(offset: int) -> bytes:
    """A record with the timestamp delta 0 in two bytes."""
    plain = record(0, value(sent(offset), SIZE))
    return bytes([plain[0] + 2]) + plain[1:2] + b"\x80\0" + plain[3:]


def _dump_with(replicas: ReplicaSet, content: bytes) -> None:
    """An earlier dump that had another record at offset 20."""
    mine = replicas.batches()
    replicas.replace(20, content)
    replicas.dump()
    replicas.rewrite(mine)


def judged(tmp_path: Path, change: Change, **options: object) -> Verdict:
    run = StoredRun(tmp_path / "run", **options).write()  # type: ignore[arg-type]
    change(ReplicaSet(run))
    seal(run)
    return analyze(run, engine="in-process", plots=False)


def replicas_check(verdict: Verdict) -> Check:
    return next(each for each in verdict.checks if each.name == "replicas")


JUDGING = (
    "analysis/checkers/replicas.py",
    "analysis/core/replica_comparison.py",
    "analysis/core/replica_comparison.py",
)
"""A change of one of these runs all mutations."""


@pytest.mark.rotating(4, files=JUDGING)
@pytest.mark.parametrize("name", LAWFUL)
def test_lawful_changes_of_replicas_pass(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, LAWFUL[name])
    assert (verdict.verdict, verdict.reasons) == ("pass", ())


@pytest.mark.rotating(4, files=JUDGING)
@pytest.mark.parametrize("name", UNKNOWN)
def test_absent_damaged_or_unexplained_replica_data_is_unknown(tmp_path: Path, name: str) -> None:
    change, reason = UNKNOWN[name]
    verdict = judged(tmp_path, change)
    assert verdict.anomalies == ()
    assert (verdict.verdict, replicas_check(verdict).verdict) == ("unknown", "unknown")
    assert any(reason in each for each in verdict.reasons), verdict.reasons


@pytest.mark.rotating(4, files=JUDGING)
@pytest.mark.parametrize("name", FAIL)
def test_provably_wrong_replica_data_fails(tmp_path: Path, name: str) -> None:
    change, anomaly = FAIL[name]
    verdict = judged(tmp_path, change)
    assert (verdict.verdict, replicas_check(verdict).verdict) == ("fail", "fail")
    found = {each.name: each for each in verdict.anomalies}
    assert anomaly in found
    assert found[anomaly].witness


def test_a_log_may_start_late_when_retention_deletes_segments(tmp_path: Path) -> None:
    change = steps(lambda r: r.split(10, nodes=ALL), lambda r: each_node(lambda node: r.segment(node).unlink()))
    verdict = judged(tmp_path, change, settings={"log.retention.ms": "1000"})
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    kept = judged(tmp_path / "kept", change, settings={"log.retention.ms": "-1", "log.retention.bytes": "-1"})
    assert kept.verdict == "fail"


def test_files_may_end_in_zeros_where_they_are_made_in_advance(tmp_path: Path) -> None:
    def change(replicas: ReplicaSet) -> None:
        replicas.append(bytes(4096), ["n2"], mark=None)

    assert judged(tmp_path, change, settings={"log.preallocate": "true"}).verdict == "pass"
    torn = steps(change, lambda r: r.append(b"x", ["n2"], mark=None))
    assert judged(tmp_path / "torn", torn, settings={"log.preallocate": "true"}).verdict == "unknown"


def test_only_values_of_user_records_are_checked_and_the_verdict_states_this(tmp_path: Path) -> None:
    change, _ = FAIL["a byte of a value changed on all"]
    verdict = judged(tmp_path, change, records="value-first")
    assert verdict.verdict == "pass"
    assert "clients made the records: the first 8 bytes of each are checked" in replicas_check(verdict).detail
    differing, _ = FAIL["a byte of a value changed"]
    assert judged(tmp_path / "one", differing, records="value-first").verdict == "fail"


def test_records_of_an_unknown_format_are_undecided(tmp_path: Path) -> None:
    change, _ = FAIL["a byte of a value changed on all"]
    verdict = judged(tmp_path, change, records="something")
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert any('records is "something"' in each for each in verdict.reasons)
    assert any("the run does not say" in each for each in verdict.reasons)


def test_a_finding_is_not_masked_by_another_replica_that_cannot_be_read(tmp_path: Path) -> None:
    byte, _ = FAIL["a byte of a value changed on all"]
    change = steps(byte, lambda r: shutil.rmtree(r.data("n3")), lambda r: r.marks("junk", ["n1"]))
    verdict = judged(tmp_path, change)
    assert verdict.verdict == "fail"
    assert "corrupt-record" in {each.name for each in verdict.anomalies}


def test_a_phantom_is_undecided_when_a_client_record_is_torn(tmp_path: Path) -> None:
    def change(replicas: ReplicaSet) -> None:
        replicas.append(one(RECORDS, sent(999)))
        record = next((replicas.run / "history" / "operations").glob("reader-0*.arrows"))
        record.write_bytes(record.read_bytes()[:-100])

    verdict = judged(tmp_path, change)
    assert "phantom-on-replica" not in {each.name for each in verdict.anomalies}
    assert any("an incomplete record of sent operations" in each for each in verdict.reasons), verdict.reasons
