"""Small histories in foreign formats, written down."""

from collections.abc import Sequence


def porcupine(*events: str) -> str:
    """Lines of a log: each event is `PROCESS TYPE F VALUE`."""
    lines = []
    for event in events:
        process, kind, f, value = event.split(" ", 3)
        lines.append(f"INFO  jepsen.util - {process}\t:{kind}\t:{f}\t{value}\n")
    return "".join(lines)


def edn(*events: tuple[int, str, str, str], tag: str = "") -> str:
    """Lines of a `history.edn`: each event is process, type, f and the value as EDN."""
    return "".join(
        f"{tag}{{:index {index}, :time {index}, :type :{kind}, :process {process}, :f :{f}, :value {value}}}\n"
        for index, (process, kind, f, value) in enumerate(events)
    )


def sends(*texts: str, process: int = 0) -> list[tuple[int, str, str, str]]:
    """An acknowledged operation of Jepsen's kafka test for each text `KEY OFFSET VALUE`."""
    events = []
    for text in texts:
        key, offset, value = text.split()
        events.append((process, "invoke", "send", f"[[:send {key} {value}]]"))
        events.append((process, "ok", "send", f"[[:send {key} [{offset} {value}]]]"))
    return events


def polls(*answers: str, process: int = 1) -> Sequence[tuple[int, str, str, str]]:
    """An answered poll for each map of records."""
    events = []
    for answer in answers:
        events.append((process, "invoke", "poll", "[[:poll]]"))
        events.append((process, "ok", "poll", f"[[:poll {answer}]]"))
    return events
