"""For tests of faults and steps, without observation of services."""

from collections.abc import Iterable

from nemeses.kind import ServiceUnder


class Unwatched:
    """Stands in for a `ServiceWatch`."""

    def look(self) -> None: ...

    def expect(self, names: Iterable[str]) -> None: ...

    def excuse(self, names: Iterable[str]) -> None: ...

    def begin(self, under: ServiceUnder, names: Iterable[str]) -> None: ...

    def end(self, under: ServiceUnder, names: Iterable[str], *, seen: bool = True) -> None: ...
