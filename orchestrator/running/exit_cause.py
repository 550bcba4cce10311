"""Determines how a process of the system ended: its status, messages of the kernel, and a core dump."""

import contextlib
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nemeses.ports import Host, HostError
from nemeses.scheduling import REAL_TIME, Scheduler

_SIGNALLED = 128  # a shell adds this to the number of the signal that ended a process
_STATUS_S = 5.0  # the process that waits for it may get no CPU for a while
_AGAIN_S = 0.05
_DUMPS_CORE = frozenset(
    {signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGSEGV}
)

KernelWords = Callable[[str, int], str]
"""The kernel's message about killing this node's process for lack of memory; empty without one."""


@dataclass(frozen=True)
class ExitCause:
    """How a process ended, as far as it is known."""

    exit_code: int | None
    signal: int | None
    kernel: str = ""
    core: str = ""


class Autopsy:
    """Examines ended processes of one run. No method raises when a host does not answer."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        time_scale: float = 1.0,
        kernel_words: KernelWords = lambda _name, _pid: "",
        scheduler: Scheduler = REAL_TIME,
    ) -> None:
        self._hosts = hosts
        self._patience_s = _STATUS_S * time_scale
        self._kernel_words = kernel_words
        self._scheduler = scheduler

    def status(self, name: str, pid: int | None) -> int | None:
        """The exit status, None if unknown. `pid`: None for the service that was started last. Waits for a moment,
        since the parent process learns of the end slightly later than an observer."""
        give_up_s = self._scheduler.monotonic() + self._patience_s
        with contextlib.suppress(HostError):
            while (status := self._hosts[name].service_exit(pid)) is None and self._scheduler.monotonic() < give_up_s:
                self._scheduler.sleep(_AGAIN_S)
            return status
        return None

    def of(self, name: str, pid: int | None, status: int | None) -> ExitCause:
        """The known facts about the end of a process with this status."""
        if status is None or status <= _SIGNALLED:
            return ExitCause(status, None)
        number = status - _SIGNALLED
        kernel = self._kernel_words(name, pid) if number == signal.SIGKILL and pid is not None else ""
        return ExitCause(None, number, kernel, self._core(name) if number in _DUMPS_CORE else "")

    def _core(self, name: str) -> str:
        """The path of a core dump in the service's data directory, or empty."""
        host = self._hosts[name]
        place = shlex.quote(host.data_dir)
        with contextlib.suppress(HostError):
            return host.run(f"ls -1td {place}/core {place}/core.* 2>/dev/null | head -n 1").stdout.strip()
        return ""
