"""Shows the progress of a campaign: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

from installation.sanitize import visible, visible_line

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_EVERY_S = 5.0


@dataclass
class _State:
    """The content of the live line."""

    run: str = ""
    phase: str = ""
    detail: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: int = 0
    ends_s: float | None = None

    def line(self) -> str:
        parts = [self.run, self.phase]
        if self.counts:
            parts.append(" ".join(f"{name} {count:,}" for name, count in self.counts.items()))
        if self.faults:
            parts.append(f"faults {self.faults}")
        if self.ends_s is not None:
            parts.append(f"{max(0, round(self.ends_s - time.monotonic()))} s left")
        if self.detail:
            parts.append(self.detail)
        return "  ".join(part for part in parts if part)


class Progress:
    """Reports on one invocation. Use as a context manager; the run loop may call every method at any time.

    Invariant: a closed terminal does not end the run or its cleanup. Output stops silently."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._began_s = time.monotonic()
        self._said_s = self._began_s
        self._state = _State()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._while_heard():
            if self._live is not None:
                self._live.stop()
        self._live = None

    @contextlib.contextmanager
    def _while_heard(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._quiet, self._live = True, None

    def run(self, name: str) -> None:
        """A run starts."""
        self._state = _State(run=name)

    def phase(self, name: str, detail: str = "") -> None:
        """The run enters a phase."""
        self._state.phase, self._state.detail, self._state.ends_s = name, detail, None
        self.say(f"{name}{': ' + detail if detail else ''}", dim=True)

    def ends(self, ends_s: float) -> None:
        """The phase will end at this time of the monotonic clock, in seconds."""
        self._state.ends_s = ends_s
        self._refresh()

    def detail(self, text: str) -> None:
        """The current activity within the phase."""
        self._state.detail = text
        self._refresh()

    def counts(self, counts: Mapping[str, int]) -> None:
        """Operations so far, by outcome."""
        self._state.counts = dict(counts)
        self._refresh()
        if self._live is None and time.monotonic() - self._said_s >= PLAIN_EVERY_S:
            self.say(self._state.line(), dim=True)

    def fault(self, text: str) -> None:
        """A fault was injected."""
        self._state.faults += 1
        self.say(text, dim=True)

    def announce(self, text: str) -> None:
        """A permanent line that is also shown with --quiet, because the user has to act on it."""
        if self._quiet:
            with self._while_heard():
                print(visible(text), file=self._stream, flush=True)
        else:
            self.say(text)

    def say(self, text: str, *, dim: bool = False) -> None:
        """A permanent line."""
        if self._quiet:
            return
        self._said_s = time.monotonic()
        stamp, text = f"[{self._said_s - self._began_s:6.1f} s] ", visible(text)
        with self._while_heard():
            if self._live is not None:
                from rich.text import Text

                self._live.console.print(Text(stamp + text, style="dim" if dim else ""))
                self._refresh()
            else:
                print(stamp + text, file=self._stream, flush=True)

    def _refresh(self) -> None:
        if self._live is None:
            return
        with self._while_heard():
            from rich.text import Text

            self._live.update(Text(visible_line(self._state.line()), style="bold", no_wrap=True, overflow="ellipsis"))
