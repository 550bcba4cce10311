"""The reader returns the operations that a client recorded, for every end of the client."""

import math
from pathlib import Path

import pytest

from history.errors import UNFINISHED, HistoryError
from history.journal.service_events import FatalLine, ServiceExit
from history.journal.timeline import FAULT_EVENTS
from history.journal.writer import Journal
from history.reader import read_run
from history.record.arrow_stream import FLUSH_ROWS
from history.record.record_payload import record_bytes, value_of_record
from history.record.schemas import APPEND, INF, INFO
from history.record.shapes import LOG
from history.record.values import NOT_A_VALUE, Value, decode_value, encode_value
from history.record.writer import Invocation, OperationWriter
from history.topic_folders import folder_of, partition_of


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def writer(run: Path, clock: Clock, client: str = "producer-0", block: int = 4) -> OperationWriter:
    return OperationWriter(
        LOG,
        run / "history" / "operations",
        client=client,
        session=1,
        process=7,
        producer=3,
        clock=clock,
        reservation_block=block,
    )


def append(client: OperationWriter, partition: int) -> Invocation:
    return client.start("append", topic="log", partition=partition)


def query_end(client: OperationWriter, end: int) -> None:
    client.add("end", "ok", inv=1_000, ret=1_001, topic="log", partition=0, lo=end, hi=end)


def test_a_value_names_its_origin() -> None:
    value = encode_value(32767, 65535, 4294967295)
    assert value == 2**63 - 1
    assert decode_value(value) == Value(32767, 65535, 4294967295)
    assert value_of_record(record_bytes(value, 100)) == value
    assert len(record_bytes(value, 100)) == 100
    with pytest.raises(ValueError, match="producer 65536 does not fit"):
        encode_value(0, 65536, 0)


@pytest.mark.parametrize("size", [8, 9, 16, 100, 128, 5_000])
def test_every_byte_of_a_record_follows_from_its_value(size: int) -> None:
    value = encode_value(3, 2, 1)
    record = record_bytes(value, size)
    words = [(value + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(size // 8 + 1)]
    assert record == b"".join(word.to_bytes(8, "big") for word in words)[:size]
    assert value_of_record(record) == value_of_record(memoryview(record)) == value
    for at in {8, 9, size // 2, size - 1} & set(range(8, size)):
        assert value_of_record(record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]) == NOT_A_VALUE


@pytest.mark.parametrize("record", [None, b"", b"short", bytes(16), record_bytes(5, 24) + b"x"])
def test_other_bytes_carry_no_value(record: bytes | None) -> None:
    assert value_of_record(record) == NOT_A_VALUE


def test_a_clean_run_reads_back_whole(tmp_path: Path) -> None:
    clock = Clock()
    with writer(tmp_path, clock) as client:
        first, second, third = (append(client, 0) for _ in range(3))
        client.end(first, "ok", offset=0)
        client.end(second, "fail", error="TOPIC_AUTHORIZATION_FAILED")
        client.end(third, "info", error="timed out")
        client.phase = "final"
        shown = {"offset": 0, "offsets": [0], "values": [first.value], "lo": 1}
        client.add("read", "ok", inv=1_020, ret=1_030, topic="log", partition=0, **shown)
        query = client.start("end", topic="log", partition=0)
        clock.now = 1_050
        client.end(query, "ok", lo=1, hi=1)
    history = read_run(tmp_path)
    rows = history.logs.rows.to_pylist()
    assert [row["type"] for row in rows] == [0, 1, 2, 0, 0]
    assert rows[2]["ret"] == INF
    assert rows[3] == {
        "process": 7,
        "session": 1,
        "client": "producer-0",
        "f": 1,
        "topic": "log",
        "partition": 0,
        "type": 0,
        "value": -1,
        "inv": 1_020,
        "ret": 1_030,
        "offset": 0,
        "lo": 1,
        "hi": -1,
        "offsets": [0],
        "values": [first.value],
        "acks": -1,
        "phase": "final",
        "error": "",
    }
    assert (rows[4]["lo"], rows[4]["hi"]) == (1, 1)
    assert history.unfinished == 0
    assert history.torn == []


def test_announced_appends_of_a_killed_producer_are_indeterminate(tmp_path: Path) -> None:
    clock = Clock()
    client = writer(tmp_path, clock)
    done = append(client, 2)
    clock.now = 2_000
    elsewhere = append(client, 0)
    client.end(done, "ok", offset=0)
    client.flush()
    client.end(elsewhere, "ok", offset=0)  # still in memory when the process dies
    history = read_run(tmp_path)
    left = history.logs.rows.slice(1).to_pylist()
    assert history.unfinished == len(left) == 7
    assert {(row["partition"], row["inv"], row["value"]) for row in left} == {
        *((2, 1_000, done.value + i) for i in (1, 2, 3)),
        *((0, 2_000, elsewhere.value + i) for i in range(4)),
    }
    assert {(row["f"], row["type"], row["ret"], row["error"]) for row in left} == {(APPEND, INFO, INF, UNFINISHED)}


def test_values_are_ordered_within_a_partition_and_unique_across(tmp_path: Path) -> None:
    client = writer(tmp_path, Clock(), block=2)
    values = {partition: [append(client, partition).value for _ in range(5)] for partition in (0, 1)}
    client.close()
    assert all(each == sorted(each) for each in values.values())
    assert len(set(values[0] + values[1])) == 10
    assert read_run(tmp_path).unfinished == 10


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.9, 0.999])
def test_a_torn_stream_gives_back_every_whole_batch(tmp_path: Path, keep: float) -> None:
    client = writer(tmp_path, Clock())
    for batch in range(5):
        for row in range(10):
            query_end(client, batch * 10 + row)
        client.flush()
    client.close()
    path = tmp_path / "history" / "operations" / "producer-0-1.arrows"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep if keep >= 1 else keep * len(whole))])
    history = read_run(tmp_path)
    ends = history.logs.rows["lo"].to_pylist()
    assert ends == list(range(len(ends)))
    assert len(ends) % 10 == 0
    assert len(ends) >= (keep if keep < 1 else 0) * 50 - 15
    assert history.torn == [str(path)]


def test_rows_are_flushed_by_age_and_by_number(tmp_path: Path) -> None:
    clock = Clock()
    client = writer(tmp_path, clock)
    query_end(client, 0)
    assert read_run(tmp_path).logs.rows.num_rows == 0
    clock.now += 250_000_000
    client.tick()
    assert read_run(tmp_path).logs.rows.num_rows == 1
    for _ in range(FLUSH_ROWS):
        query_end(client, 0)
    assert read_run(tmp_path).logs.rows.num_rows == 1 + FLUSH_ROWS


def test_two_recordings_are_never_mixed(tmp_path: Path) -> None:
    writer(tmp_path, Clock()).close()
    with pytest.raises(FileExistsError):
        writer(tmp_path, Clock())


def test_a_torn_announcement_was_never_used(tmp_path: Path) -> None:
    client = writer(tmp_path, Clock())
    append(client, 0)
    path = tmp_path / "history" / "operations" / "producer-0-1.reserved"
    path.write_bytes(path.read_bytes()[:-3])
    assert read_run(tmp_path).unfinished == 0
    path.write_bytes(b'{"client": "x"}\n{{\n')
    assert "producer-0-1.reserved: line 1 is damaged" in list(read_run(tmp_path).defects)


def test_the_journal_has_phases_and_faults(tmp_path: Path) -> None:
    clock = Clock()
    with Journal(tmp_path, clock=clock, wall=lambda: 5.0) as journal:
        journal.run_started(boot="b")
        journal.phase("main")
        clock.now = 1_100
        journal.fault_invoked("f1", "power-loss", ["n1"], {"tear": 512})
        clock.now = 1_200
        journal.fault_injected("f1", "inconclusive", {"boot": "x"})
        clock.now = 1_300
        journal.fault_healed("f1", "confirmed", {"new boot": "y"})
        journal.phase("heal")
        journal.fault_invoked("f2", "kill", ["n2"])
        with pytest.raises(ValueError, match="unknown phase"):
            journal.phase("lunch")
    history = read_run(tmp_path)
    first, second = history.faults
    assert [first.at(event, -1) for event in FAULT_EVENTS] == [1_100, 1_200, 1_300]
    assert (first.status, first.start_s, first.end_s) == ("confirmed", 2e-7, 3e-7)
    assert first.evidence == {"boot": "x", "new boot": "y"}
    assert (second.targets, second.end_s, second.status) == (("n2",), math.inf, "inconclusive")
    assert history.phases == (("main", 1_000, 1_300), ("heal", 1_300, None))
    assert history.journal[0] == {"t": 1_000, "wall": 5.0, "event": "run_started", "boot": "b"}


def test_the_journal_has_a_sentence_and_a_proof_for_each_fault(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.fault_invoked("f1", "stall", ["n1"], sentence="the machine of n1 stops")
        journal.fault_injected("f1", "confirmed", proof="silent")
        journal.fault_healed("f1", proof="silent; its clocks went on")
        journal.fault_invoked("f2", "kill", ["n2"], sentence="n2 is killed")
        journal.fault_injected("f2", "confirmed", proof="gone")
        journal.fault_healed("f2")
    proofs = [(fault.sentence, fault.proof) for fault in read_run(tmp_path).faults]
    assert proofs == [("the machine of n1 stops", "silent; its clocks went on"), ("n2 is killed", "gone")]


def test_records_from_before_faults_had_sentences_are_read(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.event("fault_invoked", id="f1", kind="kill", targets=["n2"], parameters={})
        journal.event("fault_injected", id="f1", status="confirmed", evidence={"n2": {"state": "gone"}})
        journal.event("fault_healed", id="f1", evidence={})
    (fault,) = read_run(tmp_path).faults
    assert (fault.status, fault.sentence, fault.proof) == ("confirmed", "", "")


def test_the_journal_has_lines_about_convergence(tmp_path: Path) -> None:
    with Journal(tmp_path, clock=Clock(), wall=lambda: 5.0) as journal:
        journal.converged(3.5)
        journal.not_converged(60, "log-0 has no leader")
    history = read_run(tmp_path)
    assert [(line["event"], line.get("seconds"), line.get("seen")) for line in history.journal] == [
        ("converged", 3.5, None),
        ("not_converged", None, "log-0 has no leader"),
    ]
    assert not history.journal_defects


def test_the_journal_has_exits_and_fatal_lines_of_services(tmp_path: Path) -> None:
    with Journal(tmp_path, clock=Clock(), wall=lambda: 5.0) as journal:
        journal.node("n1", "stopped")
        journal.service_exit("n2", 1, None, "out of memory")
        journal.service_exit("n3", None, 9, "")
        journal.fatal_line("n2", "^FATAL", "FATAL no more")
        with pytest.raises(ValueError, match="not both"):
            journal.service_exit("n1", 1, 9, "")
    history = read_run(tmp_path)
    assert history.service_exits == [
        ServiceExit(1_000, "n2", 1, None, "out of memory"),
        ServiceExit(1_000, "n3", None, 9, ""),
    ]
    assert history.fatal_lines == [FatalLine(1_000, "n2", "^FATAL", "FATAL no more")]


@pytest.mark.parametrize(
    ("code", "signal", "how"),
    [
        (0, None, "with exit code 0"),
        (None, 6, "by signal 6 (SIGABRT)"),
        (None, 99, "by signal 99"),
        (None, None, "in a way that was not seen"),
    ],
)
def test_the_end_of_a_process_is_described_in_words(code: int | None, signal: int | None, how: str) -> None:
    assert ServiceExit(0, "n1", code, signal, "").how == how


@pytest.mark.parametrize("topic", ["log", "..", "/../../outside", "a%2Fb", "a=b", ""])
def test_each_partition_has_a_folder_of_its_own_below_the_tables(tmp_path: Path, topic: str) -> None:
    folder = folder_of(tmp_path, topic, 3)
    folder.mkdir(parents=True)
    assert partition_of(folder) == (topic, 3)
    assert [path.parents[1] for path in tmp_path.glob("topic=*/partition=3")] == [tmp_path]


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="is not a run"):
        read_run(tmp_path)
