"""The ordered events of a simulated run, and their digest: two runs are the same exactly if their digests are."""

from __future__ import annotations

import hashlib
import json
from typing import Any


class EventJournal:
    """Events of the brokers and of the world; network bytes are only part of the digest."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._hash = hashlib.sha256()

    def record(self, event: dict[str, Any]) -> None:
        """Add an event."""
        self.events.append(event)
        self._hash.update(json.dumps(event, sort_keys=True).encode() + b"\n")

    def mix(self, line: bytes) -> None:
        """Add a line to the digest without storing it."""
        self._hash.update(line)

    def of(self, name: str, **fields: object) -> list[dict[str, Any]]:
        """The events of one kind whose fields have the given values."""
        return [
            event
            for event in self.events
            if event["event"] == name and all(event.get(key) == value for key, value in fields.items())
        ]

    def digest(self) -> str:
        """The SHA-256 of everything so far, in hexadecimal."""
        return self._hash.hexdigest()
