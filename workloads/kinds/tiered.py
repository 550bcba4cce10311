"""The log workload for topics in remote storage (KIP-405): its consumers read old records again and again.

Of a consumer's polls some come after a jump: to the start of a partition, or to the record that a lookup by timestamp
(ListOffsets) returns for the time of a record that the consumer has read. From there it reads on to the end, across the
boundary between remote and local records. The reads are checked as those of the log; the lookups by the checker
`timestamp lookups`.
"""

from dataclasses import replace
from typing import Final

from workloads.control import Control
from workloads.kind import ClientRole, WorkloadParameter
from workloads.kinds import log
from workloads.settings import ClientSettings


def _consumer(settings: ClientSettings, control: Control) -> None:
    from workloads.consumer import main_tiered

    main_tiered(settings, control)


KIND: Final = replace(
    log.KIND,
    name="tiered",
    description="As log, but consumers also read from the start and by timestamp, across remote storage's boundary.",
    parameters=(
        *log.KIND.parameters,
        WorkloadParameter(
            "jumps_share",
            0.1,
            "share of a consumer's polls before which it goes to the start of a partition or to a timestamp",
            minimum=0.001,
            maximum=1.0,
        ),
    ),
    roles={**log.KIND.roles, "consumer": ClientRole(_consumer, changes=False)},
)
