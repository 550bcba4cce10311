"""Labs of worlds in which nothing outlives a run: it makes its own nodes faster than old ones could be cleaned."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nemeses.ports import Host
from orchestrator.errors import WorldError
from orchestrator.worlds.base import Progress, World, WorldSpec, no_progress
from orchestrator.worlds.lab import Lab, LabSpec


class PerRunLab(Lab):
    """A lab that only holds the world of the current run."""

    kind: ClassVar[type[World]]
    keeps_machines: ClassVar[bool] = False

    def __init__(self, _: LabSpec) -> None:
        self.limits: list[str] = []  # each run's world has its own limits
        self._world: World | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name, cls.needs_sandbox = cls.kind.name, cls.kind.needs_sandbox
        cls.capabilities, cls.time_scale = cls.kind.capabilities, cls.kind.time_scale

    @classmethod
    def time_scales(cls, _: LabSpec) -> tuple[float, ...]:
        return (cls.time_scale,)

    @classmethod
    def prepare(cls, _: LabSpec) -> None:
        """Does nothing: `missing` has the requirements of these worlds."""

    def open(self, on_progress: Progress = no_progress) -> None:
        """Does nothing: nothing outlives a run."""

    def world(self, spec: WorldSpec) -> World:
        self._world = self.kind(spec)
        return self._world

    def close(self) -> None:
        if self._world is not None:
            self._world.down()

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {} if self._world is None else self._world.hosts

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        if self._world is None:
            raise WorldError(f"{name} does not exist yet: no run has made it")
        return self._world.shell(name, command)
