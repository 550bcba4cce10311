"""What a handler returns to a connection: bytes, and slices of log files that are sent without being read."""

from broker.log.reading import Slice
from broker.ports import Buffer

Part = Buffer | Slice
"""A slice is sent as its file is at the moment of sending."""

Reply = list[Part]
"""The parts of one response frame, its length field included, in order."""
