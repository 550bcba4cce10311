"""What reading a run's record may raise, and how it marks what a client never completed."""

from __future__ import annotations

from typing import Final

UNFINISHED: Final = "unfinished: announced by its producer, never completed"


class HistoryError(Exception):
    """A run's record cannot be read; the message names the file."""
