"""Tasks that run as long as their owner and that nobody awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run_in_background(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task. Should it fail, the loop's exception handler is told at once instead of when it is collected."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_report)
    return task


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and return when it has ended, however it ended."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        task.get_loop().call_exception_handler(
            {"message": f"{task.get_name()} ended by an error", "exception": error, "task": task}
        )
