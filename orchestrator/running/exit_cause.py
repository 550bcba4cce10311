"""How a process of the system ended: its status, what the kernel has to do with it, and the core dump that it left."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nemeses.ports import Host, HostError
from nemeses.scheduling import REAL_TIME, Scheduler

_SIGNALLED = 128  # a shell's status of a process that a signal has ended begins here
_STATUS_S = 5.0  # what waits for the process may itself get no processor for a while
_AGAIN_S = 0.05
_DUMPS_CORE = frozenset(
    {signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGSEGV}
)

KernelWords = Callable[[str, int], str]
"""What the kernel has said of killing this process of a node for lack of memory; nothing if it has not."""


@dataclass(frozen=True)
class ExitCause:
    """How a process ended, as far as it is known."""

    exit_code: int | None
    signal: int | None
    kernel: str = ""
    core: str = ""


class Autopsy:
    """Looks into the ends of the processes of one run. Nothing here raises for a host that does not answer."""

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
        """The exit status (None for `pid`: of the service that was started last), waited for a moment: who waits for a
        process learns of its end a little later than who looks for it. None where it is not known."""
        give_up_s = self._scheduler.monotonic() + self._patience_s
        with contextlib.suppress(HostError):
            while (status := self._hosts[name].service_exit(pid)) is None and self._scheduler.monotonic() < give_up_s:
                self._scheduler.sleep(_AGAIN_S)
            return status
        return None

    def of(self, name: str, pid: int | None, status: int | None) -> ExitCause:
        """What there is to know of the end of a process that came to this status."""
        if status is None or status <= _SIGNALLED:
            return ExitCause(status, None)
        number = status - _SIGNALLED
        kernel = self._kernel_words(name, pid) if number == signal.SIGKILL and pid is not None else ""
        return ExitCause(None, number, kernel, self._core(name) if number in _DUMPS_CORE else "")

    def _core(self, name: str) -> str:
        """A core dump where the service keeps its data, or nothing."""
        host = self._hosts[name]
        place = shlex.quote(host.data_dir)
        with contextlib.suppress(HostError):
            return host.run(f"ls -1td {place}/core {place}/core.* 2>/dev/null | head -n 1").stdout.strip()
        return ""
