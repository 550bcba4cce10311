"""Background tasks that run as long as their owner; no caller awaits them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Starts tasks and keeps track of them. `on_defect` receives the name and the error of a failed task."""

    def __init__(self, on_defect: Callable[[str, BaseException], None] | None = None) -> None:
        self._on_defect = on_defect or _tell_loop
        self._running: dict[asyncio.Task[None], None] = {}

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def abort(self) -> None:
        """Cancel all running tasks, without waiting for them."""
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_defect(f"{task.get_name()}: {type(error).__name__}: {error}", error)


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and return when it has ended, whatever its result."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _tell_loop(message: str, error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
