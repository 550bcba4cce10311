"""A client process on a client library: its record, and its commands."""

import time
from typing import Any, Final

from history.record.shapes import LOG, Shape
from history.record.writer import OperationWriter
from workloads.control import Close, Command, Control, Counts, Ready, Stopped
from workloads.settings import ClientSettings

POLL_S: Final = 0.1


def open_record(settings: ClientSettings, shape: Shape = LOG, **options: Any) -> OperationWriter:
    """The writer of a client's operations, with `options` of `OperationWriter`. Raises FileExistsError instead of
    mixing two recordings."""
    return OperationWriter(
        shape,
        settings.directory,
        client=settings.client,
        session=settings.session,
        process=settings.process,
        producer=settings.producer if settings.producer >= 0 else None,
        **options,
    )


class LibraryClient:
    """Obeys commands, and works between them."""

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        self._settings, self._control, self._writer = settings, control, writer
        self._counts = Counts(control)

    def run(self) -> None:
        """Serve commands until `close`."""
        self._control.tell(Ready())
        while not isinstance(command := self._control.next(self._patience_s()), Close):
            if command is not None:
                self._obey(command)
            self._work()
        self._close()

    def _patience_s(self) -> float:
        """How long it may wait for a command, in seconds."""
        return POLL_S

    def _obey(self, command: Command) -> None:
        raise NotImplementedError

    def _work(self) -> None:
        """Called after each command, and at least once in `_patience_s`."""

    def _close(self) -> None:
        """Called at the end."""

    def _report_stop(self, in_flight: int = 0) -> None:
        """The load is over, but for appends in flight."""
        self._writer.flush()
        self._counts.report(time.monotonic(), force=True)
        self._control.tell(Stopped(in_flight))
