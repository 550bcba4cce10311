"""Draws the plots of a run in a process of its own, while the run is judged.

Theory of operation. The checks on Spark leave a processor idle for much of the time, and most plots do not depend on
the verdict. So the process loads the plot library when the analysis starts, gets the data as soon as the history is
read, and draws what every verdict needs. With the verdict it draws the rest and writes the files. The files are those
that `analysis.plots.render.draw` writes in this process. The process ends when its pipe closes, whatever ended the
analysis.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import traceback
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Self

from installation.python_modules import module_command, module_environment

if TYPE_CHECKING:
    from analysis.plots.data import PlotData
    from analysis.verdict import Verdict


class DrawingProcess:
    """A process that draws the plots of one run; a context manager that ends it."""

    def __init__(self) -> None:
        self._pipe, other = Pipe()
        # Not a process of `multiprocessing`, which would import the program of the analysis again.
        with other:
            self.process = subprocess.Popen(
                module_command(__name__, str(other.fileno())),
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env=module_environment(),
            )
        self._sending: threading.Thread | None = None

    def start(self, view: PlotData) -> None:
        """Start to draw the plots that do not depend on the verdict; returns immediately."""
        self._sending = threading.Thread(target=self._send, args=(view,), name="plots-data", daemon=True)
        self._sending.start()

    def finish(self, run_dir: Path, view: PlotData, verdict: Verdict) -> None:
        """Draw the other plots and write all, as `analysis.plots.render.draw` does. `view`: as for `start`. If the
        process has ended unexpectedly, this process draws. Raises RuntimeError with the traceback for a plot that could
        not be drawn."""
        self._sent()
        self._send((run_dir, verdict))
        try:
            failure = self._pipe.recv()
        except (EOFError, OSError):
            from analysis.plots.render import draw

            draw(run_dir, view, verdict)
            return
        if failure is not None:
            raise RuntimeError(f"the plots could not be drawn: {failure}")

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # the process has ended, which `finish` finds out
            self._pipe.send(message)

    def _sent(self) -> None:
        """Returns when the data of `start` has been sent, or the process has ended."""
        if self._sending is not None:
            self._sending.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._sent()
        self._pipe.close()


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; this process ends with the analysis
    with contextlib.suppress(EOFError, OSError):
        from analysis.plots.render import draw, draw_early

        view = pipe.recv()
        drawn = draw_early(view, pipe.poll)
        run_dir, verdict = pipe.recv()
        try:
            draw(run_dir, view, verdict, drawn)
        except Exception:
            pipe.send(traceback.format_exc())
        else:
            pipe.send(None)


if __name__ == "__main__":
    _work(Connection(int(sys.argv[1])))
