"""Waiting for descriptors: a file that cannot be opened because too many are is no failed disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.errors import is_out_of_descriptors

PAUSE_S = 0.1

T = TypeVar("T")


async def opening(action: Callable[[], T]) -> T:
    """`with_descriptors`, of what waits for nothing."""

    async def wait_for_nothing() -> T:
        return action()

    return await with_descriptors(wait_for_nothing)


async def with_descriptors(action: Callable[[], Awaitable[T]]) -> T:
    """What `action` comes to, begun anew until there are descriptors for it: it must stand being done in part.

    Who has too many open gives them back, or is disconnected for being idle; meanwhile whoever waits here is like a
    process that is paused. Raises what else `action` raises.
    """
    while True:
        try:
            return await action()
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
        await asyncio.sleep(PAUSE_S)
