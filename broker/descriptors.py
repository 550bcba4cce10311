"""Waits for free file descriptors: reaching their limit (EMFILE) is not treated as a disk failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.errors import is_out_of_descriptors

PAUSE_S = 0.1

T = TypeVar("T")


async def opening(action: Callable[[], T]) -> T:
    """`with_descriptors` for an action that does not await."""

    async def wait_for_nothing() -> T:
        return action()

    return await with_descriptors(wait_for_nothing)


async def with_descriptors(action: Callable[[], Awaitable[T]]) -> T:
    """Repeat `action` until it does not fail for lack of descriptors, and return its result. `action` may fail midway
    and must be repeatable.

    Descriptors become free when connections end, at the latest as idle ones. The waiting code behaves as in a paused
    process. Raises any other error of `action`.
    """
    while True:
        try:
            return await action()
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
        await asyncio.sleep(PAUSE_S)
