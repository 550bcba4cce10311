"""What goes wrong: seeded fault schedules, and the code that inflicts each fault on real hosts and proves it."""

from nemeses.fault import KINDS, Evidence, Fault, Status
from nemeses.generate import ClusterView, FaultPlan, Schedule, ScheduleError, plan_schedule
from nemeses.inflict import Nemesis
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

__all__ = [
    "KINDS",
    "ClusterView",
    "Evidence",
    "Fault",
    "FaultPlan",
    "Host",
    "HostError",
    "HostUnreachableError",
    "MachineState",
    "Nemesis",
    "Network",
    "PacketCount",
    "PowerSwitch",
    "Result",
    "Schedule",
    "ScheduleError",
    "Site",
    "Status",
    "Suspender",
    "plan_schedule",
]
