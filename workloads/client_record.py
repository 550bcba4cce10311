"""Opens the record of a client process."""

from typing import Any

from history.record.shapes import LOG, Shape
from history.record.writer import OperationWriter
from workloads.settings import ClientSettings


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
