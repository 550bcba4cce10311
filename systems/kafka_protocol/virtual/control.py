"""A virtual client's end of what is a pipe in reality."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from workloads.control import Command, Event, Refused, Request, Trouble

ClockNs = Callable[[], int]
"""Nanoseconds of the run's time."""


class VirtualControl:
    """Commands come in by a queue; events go out at once."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self.commands: asyncio.Queue[Command] = asyncio.Queue()
        self._hear = hear

    def tell(self, event: Event) -> None:
        self._hear(event)

    def decline(self, who: str, command: Command) -> None:
        """Answer a command that this client has no use for."""
        text = f"a {who} does not know the command {type(command).__struct_config__.tag!r}"
        self.tell(Refused(command.id, text) if isinstance(command, Request) else Trouble(text))
