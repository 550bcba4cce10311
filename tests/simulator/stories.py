"""Makes tests of coroutine functions that run in a simulated cluster."""

from collections.abc import Callable
from typing import Any

from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.stories import Test, played_by


def in_cluster(*arguments: Any, **settings: Any) -> Callable[[Test], Callable[..., None]]:
    """The test runs in the cluster that `SimulatedCluster(*arguments, **settings)` makes, its first argument. A text
    stands for the fixture or parameter with this name."""
    names = [value for value in (*arguments, *settings.values()) if isinstance(value, str)]

    def play(*values_and_story: Any) -> None:
        *values, story = values_and_story
        by_name = dict(zip(names, values, strict=True))

        def value_of(argument: Any) -> Any:
            return by_name[argument] if isinstance(argument, str) else argument

        made = {name: value_of(argument) for name, argument in settings.items()}
        with SimulatedCluster(*map(value_of, arguments), **made) as cluster:
            cluster.run(story(cluster))

    return played_by(play, *names)


async def started(cluster: SimulatedCluster) -> SimulatedClient:
    """A client of the cluster, once all of its nodes have started and it is ready."""
    cluster.start()
    await cluster.ready()
    return SimulatedClient(cluster.addresses)
