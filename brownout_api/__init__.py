"""All names that tests of a user-defined system import; `docs/your-system.md` documents them.

    from brownout_api import RegisterClient, Refused

A client is one class: `RegisterClient` (`read`, `write`, `compare_and_set` of keys) or `LogClient` (`append`, `read`,
`end` of partitions). An operation that returns has happened. One that raises `Refused` certainly has not happened and
never will. After any other exception it may have happened, or may still happen. An append whose acknowledgement names
no offset returns `NO_OFFSET`.

A system with a class of its own derives from `System`; most systems need none. `observe` returns an `Observer`; its
`view` describes the cluster's state: a `View`, with a `PartitionState` for each partition. It answers soon and never
raises, otherwise the run is unknown. `Member` is a node as the observer sees it, `Place` a node as templates and
`variables` see it. `InputError` is for mistakes that the user can correct: raised before a run, it ends the command
with exit code 64 and its message.

Brownout puts this package on the path of the classes that it loads; nothing has to be installed for it.
"""

from systems.errors import InputError
from systems.service import Place
from systems.system import PortObserver, System
from systems.view import Member, Observer, PartitionState, View
from workloads.api import NO_OFFSET, Client, LogClient, Refused, RegisterClient

__all__ = [
    "NO_OFFSET",
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
