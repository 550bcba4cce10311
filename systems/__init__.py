"""The systems under test: their descriptions, what each node runs, and how an observer asks a running cluster.

`load_system` returns a system by name or directory; `Deployed` is a system on the nodes of one run; `System` is the
base class of every system.
"""

from systems.errors import ClusterError, InputError
from systems.node_requirements import MachineRoot, Software
from systems.registry import known, load_system, rehearse, rehearse_command
from systems.service import Deployment, Place, Service
from systems.settings import RoleSettings, Settings, merge
from systems.system import Deployed, System
from systems.view import Elector, Member, Observer, PartitionState, TopicControl, View

__all__ = [
    "ClusterError",
    "Deployed",
    "Deployment",
    "Elector",
    "InputError",
    "MachineRoot",
    "Member",
    "Observer",
    "PartitionState",
    "Place",
    "RoleSettings",
    "Service",
    "Settings",
    "Software",
    "System",
    "TopicControl",
    "View",
    "known",
    "load_system",
    "merge",
    "rehearse",
    "rehearse_command",
]
