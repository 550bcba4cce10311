"""Waits for conditions of a cluster, as its system's observer shows it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from nemeses import ClusterView
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.errors import OverdueError, RunError
from systems.view import Elector, Member, Observer, TopicControl, View

POLL_S = 0.03
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class Cluster:
    """One run's cluster, seen through its observer. One thread at a time."""

    def __init__(
        self, observer: Observer, members: Sequence[Member], topic: str, scheduler: Scheduler = REAL_TIME
    ) -> None:
        self.members = tuple(members)
        self.topic = topic
        self._observer = observer
        self._scheduler = scheduler

    def close(self) -> None:
        self._observer.close()

    def view(self) -> View:
        """The state of the cluster now; an empty view with complaints if no node answers."""
        return self._observer.view()

    def fault_view(self) -> ClusterView:
        """The view as the fault generator needs it."""
        view = self.view()
        leaders = {(self.topic, n): p.leader for n, p in view.partitions.items() if p.leader is not None}
        isr = {(self.topic, n): p.isr for n, p in view.partitions.items()}
        return ClusterView(tuple(member.name for member in self.members), leaders, isr, view.controller)

    def await_view(
        self,
        condition: Callable[[View], bool],
        what: str,
        timeout_s: float,
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> View:
        """Look until the condition holds. Raises `OverdueError` with the condition and the last view.

        `meanwhile` is called before each look; it raises to end the wait.
        """
        give_up = self._scheduler.monotonic() + timeout_s
        while True:
            meanwhile()
            view = self.view()
            if condition(view):
                return view
            if self._scheduler.monotonic() > give_up:
                raise OverdueError(f"{what}: not within {timeout_s:g} s; last seen: {view}")
            self._scheduler.sleep(POLL_S)

    def elect(self, node: str, partition: int | None) -> str | None:
        """See `systems.view.Elector`. Raises `RunError` where the system has no such elections."""
        if not isinstance(self._observer, Elector):
            raise RunError("this system's leaders cannot be chosen")
        return self._observer.elect(node, partition)

    @property
    def control(self) -> TopicControl:
        """The control of the topic. Raises `RunError` where the system has none."""
        if not isinstance(self._observer, TopicControl):
            raise RunError("this system's topics cannot be changed from outside")
        return self._observer

    def create_topic(
        self, assignment: Sequence[Sequence[int]], timeout_s: float, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        """Create the topic with these replicas and settings. Raises `RunError` with the system's message."""
        give_up = self._scheduler.monotonic() + timeout_s
        while True:
            if settings:
                complaint = self.control.create_topic_with(assignment, settings, timeout_s)
            else:
                complaint = self._observer.create_topic(assignment, timeout_s)
            if complaint is None:
                return
            if self._scheduler.monotonic() > give_up:
                raise RunError(f"the topic {self.topic} could not be created: {complaint}")
            self._scheduler.sleep(POLL_S)
