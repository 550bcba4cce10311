"""What a handler gives back to a connection: bytes, and ranges of log files that are sent without being read."""

from __future__ import annotations

from typing import NamedTuple

from broker.ports import Buffer, File


class FileRange(NamedTuple):
    """`length` bytes of a log from `position`. What is sent is what the file holds at the moment of sending."""

    file: File
    position: int
    length: int


Part = Buffer | FileRange
Reply = list[Part]
"""The parts of one response frame, its length field included, in order."""
