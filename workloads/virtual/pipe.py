"""A virtual client's end of its connection to the run loop, which is a pipe for client processes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from workloads.control import Command, Event, RefusedCommand, Request, Trouble

ClockNs = Callable[[], int]
"""Nanoseconds of the run's time."""


class VirtualControl:
    """Commands arrive in a queue; events are delivered at once.

    A client starts concurrent work with `run`: when a part of it fails, the whole client ends, as a process would."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self._commands: asyncio.Queue[Command | BaseException] = asyncio.Queue()
        self._hear = hear

    def give(self, command: Command) -> None:
        """Called by the run loop: queues a command for the client."""
        self._commands.put_nowait(command)

    async def next(self) -> Command:
        """The next command. Raises the exception of a failed part of the client."""
        command = await self._commands.get()
        if isinstance(command, BaseException):
            raise command
        return command

    def run(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine concurrently with the commands."""
        task = asyncio.create_task(part)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._commands.put_nowait(error)

    def tell(self, event: Event) -> None:
        self._hear(event)

    def decline(self, role: str, command: Command) -> None:
        """Answer a command that this client does not support."""
        text = f"a {role} does not know the command {type(command).__struct_config__.tag!r}"
        self.tell(RefusedCommand(command.id, text) if isinstance(command, Request) else Trouble(text))
