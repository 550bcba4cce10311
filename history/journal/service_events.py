"""Events of the system's own processes in a journal: exits, restarts and stops that the run did not cause, unclean
exits after a request to stop, fatal log lines, and log lines that the system declares to be events."""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

SERVICE_EXIT: Final = "service_exit"
FATAL_LINE: Final = "fatal_line"
LOG_EVENT: Final = "log_event"
ELECTION: Final = "election"
"""The event of a log after which its node leads."""
STARTED: Final = "started"
RUNNING: Final = "running"
STOPPED: Final = "stopped"

ENDED: Final = "ended"
RESTARTED: Final = "restarted"
NOT_UP: Final = "not up"
STOOD_STILL: Final = "stood still"
ENDED_BADLY: Final = "ended badly"
WAYS: Final = (ENDED, RESTARTED, NOT_UP, STOOD_STILL, ENDED_BADLY)


@dataclass(frozen=True)
class ServiceExit:
    """A process of the system did something that the run did not cause. `t`: CLOCK_MONOTONIC ns of its observation.

    `way`: it ended; it ended and was restarted by another program (`restarted`); it ended right after its start (`not
    up`); it was suspended (SIGSTOP); or, asked to stop, it ended in another way than the system declares (`ended
    badly`). `exit_code` and `signal`: None if unknown; at most one of them is known. `last_words`: the tail of its
    log. `kernel`: the kernel's message about killing it; `core`: the core dump that it left.
    """

    t: int
    node: str
    exit_code: int | None
    signal: int | None
    last_words: str
    way: str = ENDED
    kernel: str = ""
    core: str = ""

    @property
    def how(self) -> str:
        """How it ended, as the continuation of "ended" in a sentence."""
        if self.kernel:
            return f"by the kernel for lack of memory ({self.kernel})"
        if self.signal is not None:
            has_name = self.signal in set(signal.Signals)
            return f"by signal {self.signal}" + (f" ({signal.Signals(self.signal).name})" if has_name else "")
        if self.exit_code is not None:
            return f"with exit code {self.exit_code}"
        return "in a way that was not seen"


@dataclass(frozen=True)
class FatalLine:
    """A process of the system logged a `line` that matches a `pattern` which the system declares fatal."""

    t: int
    node: str
    pattern: str
    line: str


def service_exits(journal: Iterable[Mapping[str, Any]]) -> list[ServiceExit]:
    """The exits among a journal's lines, in their order."""
    return [
        ServiceExit(
            line["t"],
            line["node"],
            line["exit_code"],
            line["signal"],
            line["last_words"],
            way=line.get("way", ENDED),
            kernel=line.get("kernel", ""),
            core=line.get("core", ""),
        )
        for line in journal
        if line.get("event") == SERVICE_EXIT
    ]


def fatal_lines(journal: Iterable[Mapping[str, Any]]) -> list[FatalLine]:
    """The fatal lines among a journal's lines, in their order."""
    return [
        FatalLine(line["t"], line["node"], line["pattern"], line["line"])
        for line in journal
        if line.get("event") == FATAL_LINE
    ]
