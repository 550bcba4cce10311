"""The error of reading a run's record, and the mark of operations that a client never completed."""

from typing import Final

UNFINISHED: Final = "unfinished: announced by its producer, never completed"


class HistoryError(Exception):
    """A run's record cannot be read; the message names the file."""
