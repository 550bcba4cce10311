"""A client in any language: its environment, its end, and the meaning of its exit code."""

import io
import json
import os
import time
from pathlib import Path

import pytest

from history.record.values import decode_value
from tests.workloads.running import own, settings, start
from workloads import command_client
from workloads.control import Control, Probe, ReadAll, ReadDone, decode_event, encode
from workloads.process import ClientError, ClientProcess

PROGRAM = """#!/usr/bin/env python3
import json, os, signal, sys, time

given = {name[9:]: value for name, value in os.environ.items() if name.startswith("BROWNOUT_")}

def write(**line):
    with open(given["OUTPUT"], "a") as file:
        file.write(json.dumps({"inv": 1, "ret": 2, "phase": given["PHASE"], **line}) + "\\n")

def end(*_):
    sys.exit(int(given["OPTION_END"]))

print("this is no message", flush=True)
signal.signal(signal.SIGTERM, end)
if given["TASK"] == "load":
    write(f="read", type="ok", key="k0", value=None)
    write(f="write", type="ok", key="k0", value=int(given["FIRST_VALUE"]), given=given, pid=os.getpid(), at=os.getcwd())
    write(f="cas", type="info", key="k0", expected=None, new=int(given["FIRST_VALUE"]) + 1)
    if given["OPTION_STAY"] == "no":
        sys.exit(3)
    while True:
        signal.pause()
if given["PLACE"] == "1":
    sys.exit(4)
if given["PLACE"] == "3":
    write(f="write", type="fail", key="k3", value=int(given["FIRST_VALUE"]), error="DENIED: no password")
    sys.exit(1)
write(f="write", type="ok", key="k" + given["PLACE"], value=int(given["FIRST_VALUE"]), task=given["TASK"])
"""


def client(tmp_path: Path, **options: str) -> ClientProcess:
    program = tmp_path / "client.py"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    mine = own(
        tmp_path,
        "",
        client_class="",
        client_command=(str(program),),
        command_directory=str(program.parent),
        options={"end": "0", "stay": "yes", **options},
    )
    its = settings(tmp_path, "register", "c", 7, own=mine, parameters={"keys": 3})
    return start("register", "client", its, tmp_path)


def lines(tmp_path: Path, name: str = "c") -> list[dict[str, object]]:
    text = (tmp_path / "history" / "operations" / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def load(running: ClientProcess) -> None:
    running.start()
    assert running.first_ack.wait(60)


def test_a_program_gets_its_environment_and_ends_with_the_load(tmp_path: Path) -> None:
    running = client(tmp_path)
    load(running)
    running.stop()
    assert running.wait_stopped(60) == 0
    assert (running.counts.ok, running.counts.info) == (2, 1)
    running.close()
    assert running.trouble == []
    assert lines(tmp_path)[1]["at"] == str(tmp_path)
    given = lines(tmp_path)[1]["given"]
    assert isinstance(given, dict)
    assert {name: given[name] for name in ("ENDPOINTS", "RATE", "SEED", "KEYS", "ROLE", "PHASE", "TIMEOUT_S")} == {
        "ENDPOINTS": "n2:2,n1:1",  # it is client 1, and this its first start
        "RATE": "200.0",
        "SEED": "7",
        "KEYS": "3",
        "ROLE": "client",
        "PHASE": "main",
        "TIMEOUT_S": "2.0",
    }


def test_each_start_has_values_and_a_file_of_its_own(tmp_path: Path) -> None:
    running = client(tmp_path)
    probes = [running.probe(place, 60.0) for place in (0, 1, 2, 3)]
    running.phase("final")
    read = running.read_all(2, 60.0)
    running.close()
    assert [probe.ok for probe in probes] == [True, False, True, False]
    assert probes[1].error == "the task probe ended with 4; its record has no error"
    assert probes[3].error == "the task probe ended with 1; the last error in its record: DENIED: no password"
    assert read.complete
    written = [lines(tmp_path, name)[0] for name in ("c", "c-2", "c-4")]
    assert [(line["key"], line["task"], line["phase"]) for line in written] == [
        ("k0", "probe", "main"),
        ("k2", "probe", "main"),
        ("k2", "read", "final"),
    ]
    assert len({decode_value(int(str(line["value"]))).producer for line in written}) == 3


@pytest.mark.parametrize(
    "record",
    [
        [],
        [{"f": "read", "type": "ok", "key": "k1", "value": 1}],
        [{"f": "write", "type": "ok", "key": "k2", "value": 1}],
        [{"f": "append", "type": "ok", "topic": "log", "partition": 0, "value": 1}],
        [{"f": "write", "type": "invoke", "id": 1, "key": "k1", "value": 1}],
        [
            {"f": "write", "type": "invoke", "id": 1, "key": "k1", "value": 1},
            {"type": "info", "id": 1, "error": "lost"},
        ],
    ],
    ids=["no change", "a read", "another key", "another partition", "no answer", "no known outcome"],
)
def test_a_completed_probe_has_an_acknowledged_change(tmp_path: Path, record: list[dict[str, object]]) -> None:
    running = script(tmp_path, "#!/bin/sh\n" + "".join(f"echo '{json.dumps(x)}' >> $BROWNOUT_OUTPUT\n" for x in record))
    probe = running.probe(1, 60.0)
    running.close()
    assert not probe.ok
    assert probe.error.startswith("the task probe ended with 0, but its record has no acknowledged change there")


@pytest.mark.parametrize(
    "record",
    [
        [{"f": "cas", "type": "ok", "key": "k1", "expected": None, "new": 1}],
        [{"f": "append", "type": "ok", "topic": "log", "partition": 1, "value": 1}],
        [{"f": "write", "type": "invoke", "id": 1, "key": "k1", "value": 1}, {"type": "ok", "id": 1}],
    ],
    ids=["a register", "a log", "on two lines"],
)
def test_a_probe_with_an_acknowledged_change_is_done(tmp_path: Path, record: list[dict[str, object]]) -> None:
    running = script(tmp_path, "#!/bin/sh\n" + "".join(f"echo '{json.dumps(x)}' >> $BROWNOUT_OUTPUT\n" for x in record))
    probe = running.probe(1, 60.0)
    running.close()
    assert (probe.ok, probe.error) == (True, "")


def test_an_invalid_record_of_a_probe_is_left_to_the_reader_of_the_run(tmp_path: Path) -> None:
    running = script(tmp_path, "#!/bin/sh\necho '{{\"f\"' >> $BROWNOUT_OUTPUT\n")
    probe = running.probe(1, 60.0)
    running.close()
    assert probe.ok


def test_a_failed_read_reports_its_reason(tmp_path: Path) -> None:
    running = client(tmp_path)
    read = running.read_all(3, 5.0)  # a read is repeated until its time is over
    running.close()
    assert not read.complete
    assert read.error == "the task read ended with 1; the last error in its record: DENIED: no password"


def test_a_program_is_out_of_starts_for_changes_and_not_for_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_client, "STARTS", 2)
    its = settings(tmp_path, "register", "c", 1, own=own(tmp_path, "", client_class="", client_command=("true",)))
    reads = [encode(ReadAll(number, 0, 20.0)) for number in range(3)]
    asked = "".join(f"{line}\n" for line in (*reads, encode(Probe(3, 0, 20.0))))
    said = io.StringIO()
    with pytest.raises(command_client.CommandError, match="was started 2 times; no values are left"):
        command_client.main(its, Control(io.StringIO(asked), said), "reader")
    events = [decode_event(line) for line in said.getvalue().splitlines()]
    assert [event.complete for event in events if isinstance(event, ReadDone)] == [True] * 3


def test_an_exit_code_after_the_load_is_reported(tmp_path: Path) -> None:
    running = client(tmp_path, end="5")
    load(running)
    running.stop()
    running.wait_stopped(60)
    running.close()
    assert [text.partition("client.py ")[2] for text in running.trouble] == ["ended with 5 after SIGTERM"]


def test_a_program_that_ends_in_the_middle_of_the_load_ends_the_client(tmp_path: Path) -> None:
    running = client(tmp_path, stay="no")
    running.start()
    with pytest.raises(ClientError, match=r"client c ended with 1: CommandError: .*client\.py ended with 3"):
        running.wait_stopped(60)


def test_a_program_ends_with_its_client(tmp_path: Path) -> None:
    running = client(tmp_path)
    load(running)
    running.kill()
    assert _ends(int(str(lines(tmp_path)[1]["pid"])))


@pytest.mark.parametrize("f", [["write"], {"write": 1}, 7, None])
def test_a_line_with_an_invalid_operation_is_left_to_the_reader_of_the_run(tmp_path: Path, f: object) -> None:
    text = (
        f"#!/bin/sh\necho '{json.dumps({'type': 'ok', 'f': f})}' >> $BROWNOUT_OUTPUT\n"
        """echo '{"type": "ok", "f": "write"}' >> $BROWNOUT_OUTPUT\nexec sleep 600\n"""
    )
    running = script(tmp_path, text)
    load(running)
    running.stop()
    assert (running.wait_stopped(60), running.counts.ok) == (0, 2)
    running.close()


# A program that starts another one and does not become it.
SCRIPT = """#!/bin/sh
[ "$BROWNOUT_TASK" = probe ] && [ "$BROWNOUT_PLACE" = 1 ] && stay=no
sleep 600 &
echo $! > inner.new; mv inner.new "inner-$BROWNOUT_TASK-$BROWNOUT_PLACE"
[ "$stay" != no ] || echo '{"f": "write", "type": "ok", "key": "k1"}' >> $BROWNOUT_OUTPUT
[ "$stay" = no ] || wait
"""
# The same, if the other process has a separate session, and no process that could report it.
APART = SCRIPT.replace("sleep 600 &", "setsid sleep 600 &")


def script(tmp_path: Path, text: str) -> ClientProcess:
    (tmp_path / "run.sh").write_text(text)
    (tmp_path / "run.sh").chmod(0o755)
    mine = own(tmp_path, "", client_class="", client_command=("./run.sh",), command_directory=str(tmp_path))
    its = settings(tmp_path, "register", "c", 7, own=mine, parameters={"keys": 3})
    return start("register", "client", its, tmp_path)


def inner(tmp_path: Path, task: str) -> int:
    give_up_s = time.monotonic() + 60
    while not (tmp_path / f"inner-{task}").exists():
        assert time.monotonic() < give_up_s
        time.sleep(0.005)
    return int((tmp_path / f"inner-{task}").read_text())


@pytest.mark.parametrize("text", [SCRIPT, APART], ids=["its group", "apart"])
@pytest.mark.parametrize("ending", ["stop", "close"])
def test_child_processes_of_a_program_end_with_the_load(tmp_path: Path, ending: str, text: str) -> None:
    running = script(tmp_path, text)
    running.start()
    started = inner(tmp_path, "load-")
    assert _lives(started)
    if ending == "stop":
        running.stop()
        running.wait_stopped(60)
        assert _ends(started)
    running.close()
    assert _ends(started)


# The same, where the other one has an operation under way.
WRITING = """#!/bin/sh
cat > inner.sh <<'END'
trap 'sleep 0.3; echo "$1" >> $BROWNOUT_OUTPUT; exit' TERM
echo "$1" >> $BROWNOUT_OUTPUT
while :; do sleep 0.01; done
END
sh inner.sh '{"type": "ok", "f": "write"}'
"""


def test_child_processes_of_a_program_record_pending_operations(tmp_path: Path) -> None:
    running = script(tmp_path, WRITING)
    load(running)
    running.stop()
    running.wait_stopped(60)
    assert (len(lines(tmp_path)), running.counts.ok) == (2, 2)
    running.close()
    assert (running.trouble, running.killed) == ([], 0)


@pytest.mark.parametrize("text", [SCRIPT, APART], ids=["its group", "apart"])
def test_child_processes_of_a_program_end_with_its_task(tmp_path: Path, text: str) -> None:
    running = script(tmp_path, text)
    given_up, done = running.probe(0, 5.0), running.probe(1, 60.0)
    running.close()
    assert (given_up.ok, done.ok, running.killed) == (False, True, 2)
    assert all(_ends(inner(tmp_path, f"probe-{place}")) for place in (0, 1))


def _ends(pid: int) -> bool:
    """Soon: a killed process does not disappear immediately."""
    give_up_s = time.monotonic() + 60
    while _lives(pid) and time.monotonic() < give_up_s:
        time.sleep(0.005)
    return not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")


def test_a_program_that_cannot_be_started_ends_the_client(tmp_path: Path) -> None:
    mine = own(tmp_path, "", client_class="", client_command=("/no/such/program",))
    running = start("register", "client", settings(tmp_path, "register", "c", 7, own=mine), tmp_path)
    running.start()
    with pytest.raises(ClientError, match="/no/such/program ended with 1"):
        running.wait_stopped(60)
    assert "/no/such/program: cannot be started: No such file" in (tmp_path / "clients" / "c.log").read_text()
