"""Settings of a consumer group: its name, its session timeout, and the pace of its members."""

from typing import Final

from msgspec import structs

from workloads.control import ReadDone
from workloads.settings import ClientSettings

FETCH_EVERY_S: Final = 2.0
"""The time between two fetches of the committed offsets by a member."""
HEARTBEATS_PER_SESSION: Final = 10


def group_of(settings: ClientSettings) -> str:
    """The name of the group that reads a topic."""
    return f"{settings.topic}-group"


def session_ms(settings: ClientSettings) -> int:
    """The session timeout, in ms. It is short, so that members notice a dead coordinator soon."""
    return int(settings.parameters["session_timeout_s"] * 1000 * settings.time_scale)


def group_behind(done: ReadDone, idle_s: float) -> ReadDone:
    """The answer to a complete read whose group has not committed the end, and nothing more for `idle_s`."""
    return structs.replace(done, complete=False, error="the group did not reach the end", idle_s=idle_s)
