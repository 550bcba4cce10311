"""Faults: their kinds, seeded schedules of them, and the code that injects and proves each of them on real hosts."""

from nemeses.fault import Evidence, Fault, Status
from nemeses.kind import Kind, Need, RandomDraw
from nemeses.nemesis import Nemesis
from nemeses.parameters import Choice, Files, Parameter, ParameterError, Word
from nemeses.ports import (
    Host,
    HostError,
    HostUnreachableError,
    MachineState,
    Network,
    PacketCount,
    PowerSwitch,
    Result,
    Site,
    Suspender,
)
from nemeses.registry import HEALED_BY, INJECTED_BY, KINDS, injectable, needing
from nemeses.schedule import FaultPlan, Schedule, ScheduleError, plan_schedule
from nemeses.targeting import AIMS, Aim, ClusterView

__all__ = [
    "AIMS",
    "HEALED_BY",
    "INJECTED_BY",
    "KINDS",
    "Aim",
    "Choice",
    "ClusterView",
    "Evidence",
    "Fault",
    "FaultPlan",
    "Files",
    "Host",
    "HostError",
    "HostUnreachableError",
    "Kind",
    "MachineState",
    "Need",
    "Nemesis",
    "Network",
    "PacketCount",
    "Parameter",
    "ParameterError",
    "PowerSwitch",
    "RandomDraw",
    "Result",
    "Schedule",
    "ScheduleError",
    "Site",
    "Status",
    "Suspender",
    "Word",
    "injectable",
    "needing",
    "plan_schedule",
]
