"""The systems under test: what each is told, how it is started, and how it is looked at from outside.

`load_system` finds one; `Deployed` is one on the nodes of a run; `System` is what a family's class is made from.
"""

from systems.errors import ClusterError, InputError
from systems.node_requirements import MachineRoot, Software
from systems.registry import known, load_system
from systems.service import Deployment, Place, Service
from systems.settings import RoleSettings, Settings, merge
from systems.system import Deployed, System
from systems.template_check import rehearse
from systems.view import Elector, Member, Observer, PartitionState, View

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
    "View",
    "known",
    "load_system",
    "merge",
    "rehearse",
]
