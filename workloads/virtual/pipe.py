"""What clients in virtual time have in common, and their end of the connection to the run loop, which is a pipe for
client processes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from history.record.writer import OperationWriter
from workloads.control import Command, Counts, Event, Stopped, Teller
from workloads.settings import ClientSettings

ClockNs = Callable[[], int]
"""Nanoseconds of the run's time."""


class VirtualControl(Teller):
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


class ClientParts(NamedTuple):
    """What a client is made of."""

    settings: ClientSettings
    control: VirtualControl
    writer: OperationWriter
    clock: ClockNs


class VirtualClient:
    """A client. It is made in the context of its host."""

    def __init__(self, parts: ClientParts) -> None:
        self._settings, self._control, self._writer, self._clock = parts
        self._counts = Counts(self._control)

    async def obey(self, command: Command) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def _report_stop(self, in_flight: int = 0) -> None:
        """The load is over, but for appends in flight."""
        self._writer.flush()
        self._counts.report(asyncio.get_running_loop().time(), force=True)
        self._control.tell(Stopped(in_flight))
