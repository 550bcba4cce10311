"""What goes wrong: seeded fault schedules, and the code that inflicts each fault on real hosts and proves it."""

from nemeses.fault import KINDS, Evidence, Fault, Status
from nemeses.generate import ClusterView, FaultPlan, Schedule, ScheduleError, plan_schedule
from nemeses.inflict import Nemesis
from nemeses.ports import Host, HostError, HostUnreachableError, Network, PacketCount, PowerSwitch, Result, Site

__all__ = [
    "KINDS",
    "ClusterView",
    "Evidence",
    "Fault",
    "FaultPlan",
    "Host",
    "HostError",
    "HostUnreachableError",
    "Nemesis",
    "Network",
    "PacketCount",
    "PowerSwitch",
    "Result",
    "Schedule",
    "ScheduleError",
    "Site",
    "Status",
    "plan_schedule",
]
