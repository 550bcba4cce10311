"""An asyncio event loop with virtual time: nothing waits, and the same program takes the same steps in every process.

Theory of operation. Callbacks run in the order in which they were scheduled; when none is ready, the clock jumps to the
next timer. A simulated network replaces the operating system's sockets and servers. There are no threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from simulator.host import CURRENT_HOST, HostContext

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

LIVELOCK = 1_000_000  # callbacks at one moment of virtual time
COMPACT_AT = 1024  # cancelled timers


class DeadlockError(RuntimeError):
    """A result is awaited, but no scheduled callback can produce it."""


class LivelockError(RuntimeError):
    """Callbacks keep scheduling each other without time passing. `host`: of the last one."""

    def __init__(self, message: str, host: HostContext | None) -> None:
        super().__init__(message)
        self.host = host


class Unhandled:
    """An unhandled exception: a defect in the code that the simulation runs."""

    def __init__(self, host: HostContext | None, at: float, context: dict[str, Any]) -> None:
        self.host = host
        self.at = at
        self.message: str = context.get("message", "")
        self.exception: BaseException | None = context.get("exception")

    def __str__(self) -> str:
        place = self.host.name if self.host is not None else "simulation"
        return f"{place} at {self.at:.6f} s: {self.message}: {self.exception!r}"

    __repr__ = __str__


class ScheduledCall(asyncio.TimerHandle):
    """A scheduled callback and the host that it belongs to.

    Invariant: it has every slot that asyncio's own constructors fill. They are not called, for speed: a simulated run
    creates a handle for each of its hundreds of thousands of steps."""

    __slots__ = ("host",)
    _scheduled: bool

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        if context is None:
            self._context, self.host = contextvars.copy_context(), CURRENT_HOST.get()
        else:
            self._context, self.host = context, context.get(CURRENT_HOST)
        self._loop = loop
        self._callback = callback
        self._args = args
        self._when = when
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None


class SimulatedTask(asyncio.Task[T]):
    """A task that knows its host."""

    host: HostContext | None


class SimulatedFuture(asyncio.Future[T]):
    """A future that knows its host."""

    host: HostContext | None


class Connections(Protocol):
    """The network as the loop sees it."""

    def create_server(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.AbstractServer: ...

    async def create_connection(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]: ...


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop. Set `network` to use connections; `unhandled` collects unhandled exceptions."""

    def __init__(self) -> None:
        self.network: Connections | None = None
        self.unhandled: list[Unhandled] = []
        self.at_rest: Callable[[list[HostContext]], None] | None = None
        """Called when all callbacks of a moment have run, with the hosts whose code has run since the last call."""
        self.steps = 0
        self._touched: dict[HostContext, None] = {}
        self._steps_at_moment = 0
        self._now = 0.0
        self._ready: deque[ScheduledCall] = deque()
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._sequence = 0
        self._cancelled = 0
        self._stopping = False
        self._awaited: Callable[[], bool] | None = None
        self._own_clocks = False
        self._closed = False
        self._running = False

    # --- time and callbacks

    @property
    def now(self) -> float:
        """Virtual seconds since the simulation started, for all hosts."""
        return self._now

    def time(self) -> float:
        """The current host's time, by the clock of its machine."""
        return self._steady(CURRENT_HOST.get()) if self._own_clocks else self._now

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        handle = ScheduledCall(self._now, callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        if not self._own_clocks:
            return self.call_at(self._now + delay, callback, *args, context=context)
        host = CURRENT_HOST.get() if context is None else context.get(CURRENT_HOST)
        return self.call_at(self._steady(host) + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        handle = ScheduledCall(when, callback, args, self, context)
        if not self._closed:
            # Timers of one moment fire in the order in which they were set.
            self._sequence += 1
            handle._scheduled = True
            heapq.heappush(self._timers, (self._moment_of(handle), self._sequence, handle))
        return handle

    def clocks_changed(self) -> None:
        """A machine's clock has changed its rate: timers become due by their own machines' clocks."""
        self._own_clocks = True
        self._timers = [(self._moment_of(handle), sequence, handle) for _, sequence, handle in self._timers]
        heapq.heapify(self._timers)

    def _moment_of(self, handle: ScheduledCall) -> float:
        """When a timer is due, in the world's time."""
        moment, host = handle.when(), handle.host
        if self._own_clocks and host is not None and host.clock is not None:
            moment = host.clock.moment_of(moment)
        return max(moment, self._now)

    def _steady(self, host: HostContext | None) -> float:
        return self._now if host is None or host.clock is None else host.clock.steady(self._now)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += isinstance(handle, ScheduledCall) and handle._scheduled
        if self._cancelled > COMPACT_AT and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    # --- running

    def run_forever(self) -> None:
        """Run until `stop`. Raises `DeadlockError`, `LivelockError`."""
        if self._running or asyncio._get_running_loop() is not None:
            raise RuntimeError("an event loop is running already")
        if self._closed:
            raise RuntimeError("the loop is closed")
        self._running = True
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._step()
        finally:
            self._stopping = False
            self._running = False
            asyncio._set_running_loop(None)

    def run_until_complete(self, future: Generator[Any, None, T] | Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """The result of `future`, or what it raises; `DeadlockError` when it can never complete, `LivelockError`."""
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        task.add_done_callback(self._stop_for)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_for)
        return task.result()

    def stop(self) -> None:
        self._stopping = True

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass. Raises `LivelockError`."""
        self.run_until(lambda: False, seconds)

    def run_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Run until a condition holds, checked after every callback, for at most `seconds` virtual seconds; returns
        whether it holds. Raises `LivelockError`."""
        if holds():
            return True
        over = self.call_at(self._now + max(0.0, seconds), self.stop, context=contextvars.Context())
        self._awaited = holds
        try:
            self.run_forever()
        finally:
            self._awaited = None
            over.cancel()
        return holds()

    def resume(self, host: HostContext) -> None:
        """Resume a suspended host: callbacks that became due meanwhile run before everything else."""
        self._ready.extendleft(reversed(host.go_on()))  # type: ignore[arg-type]

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Discard everything that is scheduled; later scheduling is ignored."""
        if self._running:
            raise RuntimeError("the loop is running")
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def _stop_for(self, _: asyncio.Future[Any]) -> None:
        self._stopping = True

    def _step(self) -> None:
        """Run the callbacks of this moment, or advance to the next moment."""
        ready = self._ready
        if not ready:
            self.look()
            self._advance()
        while ready and not self._stopping:
            handle = ready.popleft()
            host = handle.host
            if handle._cancelled or not (host is None or host.alive):
                continue
            if host is not None and host.backlog is not None:
                host.backlog.append(handle)
                continue
            self.steps += 1
            self._steps_at_moment += 1
            if self._steps_at_moment > LIVELOCK:
                raise LivelockError(f"{LIVELOCK} callbacks at {self._now:.6f} s, the last is {handle!r}", host)
            try:  # as `ScheduledCall._run`, without a stack frame for each of these many steps
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                message = f"Exception in callback {handle._callback!r}"
                self.call_exception_handler({"message": message, "exception": error, "handle": handle})
            if handle.host is not None:
                self._touched[handle.host] = None
            if self._awaited is not None and self._awaited():
                self._stopping = True

    def look(self) -> None:
        """Call `at_rest` for what has happened so far, also within a moment: the next event ends a process."""
        touched, self._touched = self._touched, {}
        if not touched or self.at_rest is None:
            return
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # the code that is examined may read the time
        try:
            self.at_rest(list(touched))
        finally:
            asyncio._set_running_loop(running)

    def _advance(self) -> None:
        while self._timers:
            moment, _, handle = heapq.heappop(self._timers)
            if moment == math.inf:  # only frozen machines have timers, and no running code can thaw them
                break
            handle._scheduled = False
            if handle.cancelled():
                self._cancelled -= 1
            elif handle.host is None or handle.host.alive:
                if moment > self._now:
                    self._now = moment
                    self._steps_at_moment = 0
                self._ready.append(handle)
                return
        raise DeadlockError(f"at {self._now:.6f} s: a result is awaited, but nothing is scheduled")

    # --- tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        future: SimulatedFuture[Any] = SimulatedFuture(loop=self)
        future.host = CURRENT_HOST.get()
        return future

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: SimulatedTask[T] = SimulatedTask(coro, loop=self, name=name, context=context)
        host = CURRENT_HOST.get() if context is None else context.get(CURRENT_HOST)
        task.host = host
        if host is not None:
            host.keep(task)
        return task

    def bury(self, host: HostContext) -> None:
        """After the run: close a killed host's tasks silently. The loop must be closed."""
        assert self._closed, "a task that is closed may schedule callbacks: the loop must ignore them"
        host.bury(_close_quietly)

    # --- errors

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Collect an unhandled exception, except those of dead hosts."""
        source = context.get("task") or context.get("future") or context.get("handle")
        host = getattr(source, "host", None) if source is not None else CURRENT_HOST.get()
        if self._closed or (host is not None and not host.alive):
            return
        self.unhandled.append(Unhandled(host, self._now, context))

    def tell_lost(self, host: HostContext) -> None:
        """Collect the exceptions of a host's failed tasks that were not retrieved; call it before the host is killed.

        asyncio itself reports them when a task is freed. A host's tasks may never be freed, because reference cycles
        keep them and garbage is not collected."""
        lost = host.lost() if host.alive else []  # a crash has reported its own
        if not lost:
            return
        # A task that awaits one that has just failed has not run yet.
        due = (handle._args or () for handle in (*self._ready, *(host.backlog or ())))
        awaited = {id(argument) for arguments in due for argument in arguments}
        for task in lost:
            if id(task) not in awaited:
                message = f"no code awaits the failed task {getattr(task.get_coro(), '__qualname__', '')}"
                self.unhandled.append(Unhandled(host, self._now, {"message": message, "exception": task.exception()}))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Debugging would measure real time; it stays off."""

    # --- not needed in a simulation

    async def shutdown_asyncgens(self) -> None:
        """Asynchronous generators are not tracked."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """The loop has no executor."""

    # --- connections

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        backlog: int = 100,  # noqa: ARG002 - every connection is accepted at once
    ) -> asyncio.AbstractServer:
        """Listen at an address of the current host. Raises `OSError` if it is in use or another host's."""
        return self._net().create_server(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Connect from the current host. Raises `OSError` like the kernel, after the same time."""
        return await self._net().create_connection(protocol_factory, host, port)

    def _net(self) -> Connections:
        if self.network is None:
            raise RuntimeError("this loop has no network: give it a SimulatedNetwork")
        return self.network


def _close_quietly(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    if isinstance(coroutine, CoroutineType):
        _close_unstarted(coroutine)
    with contextlib.suppress(BaseException):
        coroutine.close()


def _close_unstarted(coroutine: CoroutineType[Any, Any, Any]) -> None:
    """Close the coroutines that this one would have awaited, if it has not started. The process was killed before their
    first step; Python would report each of them as never awaited."""
    if coroutine.cr_frame is None or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return
    for value in coroutine.cr_frame.f_locals.values():
        if isinstance(value, CoroutineType):
            _close_unstarted(value)
    coroutine.close()


def new_loop() -> VirtualLoop:
    """A loop at time 0. The missing parts of asyncio's interface (files, signals, subprocesses) raise when used."""
    return VirtualLoop()  # type: ignore[abstract]
