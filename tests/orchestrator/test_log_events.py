"""Log lines that a user's system declares to be events, in a run of the tutorial's store."""

from pathlib import Path

import pytest

from tests.orchestrator.test_own_faults import SCRIPT, journal, run, written

LOGS = 'if given.name == PRIMARY:\n    print(f"{given.name} became leader", flush=True)\n'
STEPS = """
[[nemesis.step]]
do = "kill"
node = "n1"
signal = "TERM"

[[nemesis.step]]
do = "start"
node = "n1"
"""


def with_events(directory: Path, events: str) -> Path:
    script = SCRIPT.partition("[nemesis]")[0] + f'[nemesis]\nkind = "steps"\n{STEPS}'
    path = written(directory, campaign=lambda _: script)
    server, system = path.with_name("my-server"), path.with_name("system.toml")
    server.write_text(server.read_text().replace("recover()\nif given", f"recover()\n{LOGS}if given"))
    system.write_text(system.read_text() + events)
    return path


@pytest.mark.rotating(13, among="real-time campaigns")
def test_each_start_of_the_primary_is_an_election_in_the_journal(tmp_path: Path) -> None:
    path = with_events(tmp_path, 'events = { "became leader" = "election" }\n')
    answer = run(path)
    assert answer.code == 0, answer
    lines = journal(path)
    events = [(line["node"], line["name"], line["line"]) for line in lines if line["event"] == "log_event"]
    assert events == [("n1", "election", "n1 became leader")] * 2
    (kill,) = [line["evidence"]["n1"] for line in lines if line["event"] == "fault_injected"]
    assert (kill["signalled"], kill["state"]) == ("yes", "gone")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ('{ "(" = "election" }', "events: '(' is not a regular expression"),
        (
            '{ "became leader" = "An election" }',
            "became leader: 'An election' is not a name of an event; use small letters",
        ),
        ('{ "became leader" = 1 }', "became leader: 1 is not a name of an event"),
    ],
)
def test_a_wrong_event_ends_the_command_before_anything_starts(tmp_path: Path, events: str, message: str) -> None:
    path = with_events(tmp_path, f"events = {events}\n")
    answer = run(path)
    assert answer.code == 64, answer
    assert message in answer.err
    assert f"{path.with_name('system.toml')}:" in answer.err
    assert not (tmp_path / "store").exists()
