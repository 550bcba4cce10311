"""The messages between the run and its clients: each is a type, and any other line is an error."""

import io

import pytest

from workloads import control
from workloads.control import (
    Append,
    Appended,
    AppendResult,
    Close,
    Command,
    Control,
    Count,
    Event,
    MessageError,
    Probe,
    ReadAll,
    ReadDone,
    RefusedCommand,
    SetPhase,
    StartLoad,
    Trouble,
    decode_command,
    decode_event,
    encode,
)


@pytest.mark.parametrize(
    "message", [StartLoad(), SetPhase("final"), Append(1, 2, -1, 3, 0.5), Probe(1, 2, 3.0), ReadAll(1, 2, 3.0), Close()]
)
def test_a_command_decodes_to_its_original(message: Command) -> None:
    assert "\n" not in encode(message)
    assert decode_command(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [Count(1, 2, 3), Appended(1, [AppendResult("ok", 5, "")]), ReadDone(1, True, 3, 3), Trouble("a\nb", fatal=True)],
)
def test_an_event_decodes_to_its_original(message: Event) -> None:
    assert "\n" not in encode(message)
    assert decode_event(encode(message)) == message


@pytest.mark.parametrize(
    "line",
    ["", "hello", "{}", '{"is":"dance"}', '{"is":"phase"}', '{"is":"phase","name":5}', '{"is":"start","extra":1}'],
)
def test_a_line_without_a_command_is_refused_by_name(line: str) -> None:
    with pytest.raises(MessageError, match="not a command for a client: "):
        decode_command(line)


def test_a_command_is_refused_as_an_event() -> None:
    with pytest.raises(MessageError, match=r"not an event of a client: .*start"):
        decode_event(encode(StartLoad()))


def test_a_client_receives_its_commands_and_then_the_end() -> None:
    heard = Control(io.StringIO(encode(StartLoad()) + "\n"), io.StringIO())
    assert [heard.next(5.0), heard.next(5.0)] == [StartLoad(), Close()]
    assert heard.next() is None


def test_an_invalid_command_ends_the_client() -> None:
    with pytest.raises(MessageError, match="nonsense"):
        Control(io.StringIO("nonsense\n"), io.StringIO()).next(5.0)


def test_a_request_that_a_client_has_no_use_for_is_answered() -> None:
    events = io.StringIO()
    client = Control(io.StringIO(), events)
    client.decline("reader", Probe(7, 0, 1.0))
    client.decline("reader", StartLoad())
    assert [decode_event(line) for line in events.getvalue().splitlines()] == [
        RefusedCommand(7, "a reader does not know the command 'probe'"),
        Trouble("a reader does not know the command 'start'"),
    ]


def test_counts_are_reported_at_most_now_and_then() -> None:
    events = io.StringIO()
    counts = control.Counts(Control(io.StringIO(), events), every_s=0.5)
    counts.add("ok", 2)
    for now_s in (10.0, 10.1, 10.6):
        counts.report(now_s)
    counts.report(10.7, force=True)
    assert len(events.getvalue().splitlines()) == 3
