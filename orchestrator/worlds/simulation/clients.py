"""The run loop's handle of a client in the simulation."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path

from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from workloads.control import Close, Command, Trouble
from workloads.process import ClientError, ClientHandle
from workloads.settings import ClientSettings
from workloads.virtual.clients import serve
from workloads.virtual.pipe import VirtualControl

_KILLED = -9


class SimulatedClientProcess(ClientHandle):
    """A client as a process on its own host, which no fault affects."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        scheduler: VirtualScheduler,
        kind: str,
        role: str,
        settings: ClientSettings,
        log: Path,
    ) -> None:
        super().__init__(settings.client, log)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        self._cluster = cluster
        self._scheduler = scheduler
        self._exit_code: int | None = None
        self._host = cluster.new_host(f"client-{settings.client}")
        self._control = self._host.context.copy().run(VirtualControl, self._hear)
        living = serve(kind, role, settings, self._control, scheduler.monotonic_ns)
        task = cluster.loop.create_task(living, context=self._host.context.copy())
        task.add_done_callback(self._ended)

    @property
    def exit_code(self) -> int | None:
        return self._exit_code

    def close(self, timeout_s: float = 10.0) -> None:
        if self.alive:
            self._tell(Close())
            self._scheduler.until(lambda: not self.alive, timeout_s)
        self.kill()

    def kill(self) -> None:
        self._cluster.kill_process(self._host)
        if self.alive:
            self._exit_code = _KILLED

    def _tell(self, command: Command) -> None:
        self._check_alive()
        self._control.give(command)

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        self._scheduler.until(lambda: holds() or not self.alive, timeout_s)
        if holds():
            return True
        self._check_alive()
        return False

    def _check_alive(self) -> None:
        if not self.alive:
            last = f": {self._trouble[-1]}" if self._trouble else ""
            raise ClientError(f"client {self.name} ended with {self._exit_code}{last}{self.where_printed}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self._exit_code = 0 if error is None else 1
        if error is not None:
            self._hear(Trouble(f"{type(error).__name__}: {error}", fatal=True))
            self._log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
