"""Runs one operation on several hosts concurrently; what hosts and worlds cannot do is inconclusive evidence."""

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from nemeses.fault import Evidence
from nemeses.ports import Host, HostError, Site

P = ParamSpec("P")
E = TypeVar("E", Evidence, Evidence | None)
T = TypeVar("T")


def on_each(site: Site, names: Iterable[str], action: Callable[[Host], Evidence]) -> dict[str, Evidence]:
    """The evidence of `action` on each named host; inconclusive for a host that cannot be reached or observed."""
    unique_names = list(dict.fromkeys(names))
    evidence = site.scheduler.for_each(unique_names, lambda name: guarded(action, site.hosts[name]))
    return dict(zip(unique_names, evidence, strict=True))


def guarded(action: Callable[P, E], *args: P.args, **kwargs: P.kwargs) -> E | Evidence:
    """The evidence of `action`; inconclusive when a host cannot be reached or observed."""
    try:
        return action(*args, **kwargs)
    except HostError as error:
        return Evidence("inconclusive", {"error": str(error)})


def required(part: T | None, otherwise: str) -> T:
    """A part of a world. Raises `HostError` with this message if the world lacks it."""
    if part is None:
        raise HostError(otherwise)
    return part
