"""The time scale of a world: the factor by which its machines are slower than this one."""

from typing import Any, Final

ORDINARY: Final = 1.0
"""The scale of a world that is as fast as this machine."""
MOST: Final = 100.0
UNLIMITED: Final = 2**31 - 1
"""From here up a setting stands for no limit: the largest numbers of 32 and 64 bits do, and in milliseconds it is 24
days, longer than any run."""


def is_scale(value: Any) -> bool:
    """Whether a value from a file is a time scale that a world can have."""
    return type(value) in (int, float) and ORDINARY <= value <= MOST


def scaled(value: int, time_scale: float) -> int:
    """A setting that is a time, in any unit, for a world of this scale. Zero, negative values and those that stand for
    no limit are unchanged."""
    if not 0 < value < UNLIMITED or time_scale == ORDINARY:
        return value
    return int(value * time_scale)
