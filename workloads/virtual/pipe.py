"""A virtual client's end of what is a pipe in reality."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from workloads.control import Command, Event, RefusedCommand, Request, Trouble

ClockNs = Callable[[], int]
"""Nanoseconds of the run's time."""


class VirtualControl:
    """Commands come in by a queue; events go out at once.

    What a client does beside its commands it does through `run`: a client of which a part has failed ends, as a
    process does."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self._commands: asyncio.Queue[Command | BaseException] = asyncio.Queue()
        self._hear = hear

    def give(self, command: Command) -> None:
        """The run loop's: a command for the client."""
        self._commands.put_nowait(command)

    async def next(self) -> Command:
        """The next command. Raises what a part of the client has raised."""
        command = await self._commands.get()
        if isinstance(command, BaseException):
            raise command
        return command

    def run(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something go on beside the commands."""
        task = asyncio.create_task(part)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._commands.put_nowait(error)

    def tell(self, event: Event) -> None:
        self._hear(event)

    def decline(self, who: str, command: Command) -> None:
        """Answer a command that this client has no use for."""
        text = f"a {who} does not know the command {type(command).__struct_config__.tag!r}"
        self.tell(RefusedCommand(command.id, text) if isinstance(command, Request) else Trouble(text))
