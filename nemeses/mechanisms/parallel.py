"""Doing one thing on several hosts at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from nemeses.fault import Evidence
from nemeses.ports import Host, HostError, Site


def on_each(site: Site, names: Iterable[str], action: Callable[[Host], Evidence]) -> dict[str, Evidence]:
    """The evidence of `action` on each named host; one that cannot be reached or seen is inconclusive."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    with ThreadPoolExecutor(len(wanted), thread_name_prefix="nemesis") as pool:
        return dict(zip(wanted, pool.map(lambda name: guarded(action, site.hosts[name]), wanted), strict=True))


def guarded(action: Callable[[Host], Evidence], host: Host) -> Evidence:
    """The evidence of `action`; inconclusive when the host cannot be reached or seen."""
    try:
        return action(host)
    except HostError as error:
        return Evidence("inconclusive", {"error": str(error)})
