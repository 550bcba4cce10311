"""Colours of faults and epochs, for plots and pages. A fault's kind has the colour of its group and a mark."""

from typing import Final

from history.fault_looks import FaultGroup

INK: Final = "#1f2933"
GROUP_COLORS = {
    FaultGroup.PROCESS: "#d55e00",
    FaultGroup.POWER: "#cc79a7",
    FaultGroup.MACHINE: "#e69f00",
    FaultGroup.CLOCK: "#009e73",
    FaultGroup.PARTITION: "#0072b2",
    FaultGroup.PACKETS: "#56b4e9",
    FaultGroup.DISK: "#882255",
    FaultGroup.OBJECTS: "#000078",
    FaultGroup.STORE: "#0000f0",
    FaultGroup.OWN: "#802000",
}
OTHER_FAULT: Final = "#333333"
EPOCH_COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255")
NODE_COLORS: Final = ("#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#7048c8", "#a6d854", "#ff9f6e", "#882255")
"""Colours of nodes on a run's page, in the nodes' order; they repeat. No colour of `style.css` that the timeline uses
is among them, and faults have none there: a colour has one meaning."""


def fault_color_of(group: str) -> str:
    """The colour of a fault's group, `#rrggbb`."""
    return next((color for name, color in GROUP_COLORS.items() if name == group), OTHER_FAULT)


def epoch_color(epoch: int) -> str:
    """The colour of a leader epoch; colours repeat."""
    return EPOCH_COLORS[epoch % len(EPOCH_COLORS)]
