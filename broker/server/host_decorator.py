"""Decorator for a `ConnectionHost`: delegates everything that a subclass does not override."""

from broker.server.connection import Connection, ConnectionHost, Outcome, Shortcut


class InFront:
    """Delegates to the host inside; a subclass overrides some methods."""

    def __init__(self, inside: ConnectionHost) -> None:
        self.budget = inside.budget
        self.request_max_bytes = inside.request_max_bytes
        self.max_queued = inside.max_queued
        self._inside = inside

    def opened(self, connection: Connection) -> ConnectionHost | None:
        return self._inside.opened(connection)

    def closed(self, connection: Connection) -> None:
        self._inside.closed(connection)

    def rejected(self, connection: Connection, reason: str) -> None:
        self._inside.rejected(connection, reason)

    @property
    def turn_is_over(self) -> bool:
        return self._inside.turn_is_over

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        return self._inside.dispatch(connection, frame)

    def finish(self, shortcut: Shortcut) -> Outcome:
        return self._inside.finish(shortcut)
