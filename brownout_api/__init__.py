"""All that tests of a system of one's own import: one place for the names that `docs/your-system.md` speaks of.

    from brownout_api import RegisterClient, Refused

A client is one class: `RegisterClient` (`read`, `write`, `compare_and_set` of keys) or `LogClient` (`append`, `read`,
`end` of partitions). What returns has happened; what raises `Refused` certainly has not, and never will; after any
other exception it may have happened, or may yet.

A system of its own class derives from `System`; most need none. `observe` returns an `Observer`, whose `view` says what
the cluster looks like: a `View`, with a `PartitionState` for each partition. It answers soon and never raises, or the
run is unknown. `Member` is a node as the observer is told of it, `Place` a node as templates and `variables` see it.
`InputError` is for what the user can mend: before a run it ends the command with exit code 64 and its message.

Brownout puts this package on the path of the classes that it loads; nothing has to be installed for it.
"""

from systems.errors import InputError
from systems.service import Place
from systems.system import PortObserver, System
from systems.view import Member, Observer, PartitionState, View
from workloads.api import Client, LogClient, Refused, RegisterClient

__all__ = [
    "Client",
    "InputError",
    "LogClient",
    "Member",
    "Observer",
    "PartitionState",
    "Place",
    "PortObserver",
    "Refused",
    "RegisterClient",
    "System",
    "View",
]
