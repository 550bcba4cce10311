"""The look of faults in plots, as words: a group, which has a colour, and a mark, which has a shape.

Each kind of fault declares both, and the journal stores them with the fault, because the analysis does not know the
kinds. No two kinds have the same pair. `analysis.plots.style` has the colours and shapes.
"""

from enum import StrEnum


class FaultGroup(StrEnum):
    """What a fault acts on; each group has a colour of its own."""

    PROCESS = "process"
    POWER = "power"
    MACHINE = "machine"
    CLOCK = "clock"
    PARTITION = "partition"
    PACKETS = "packets"
    DISK = "disk"
    STORE = "store"
    OBJECTS = "objects"
    OWN = "own"


class FaultMark(StrEnum):
    """A shape that distinguishes the kinds of a group."""

    CIRCLE = "circle"
    SQUARE = "square"
    DIAMOND = "diamond"
    TRIANGLE_UP = "triangle-up"
    TRIANGLE_DOWN = "triangle-down"
    STAR = "star"
    CROSS = "cross"
