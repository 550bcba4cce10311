"""An event loop with virtual time, which jumps to the next timer when idle: no test waits for a clock."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing is scheduled and nothing can happen: the test would wait for ever")
        self.now += max(0.0, timeout)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def stall(self, seconds: float) -> None:
        """The process stands still: time passes, nothing runs."""
        self._jumping.now += seconds


def play(story: Coroutine[Any, Any, T]) -> T:
    """Run a story to its end in virtual time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(story)


def stall(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop.stall(seconds)
