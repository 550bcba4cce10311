"""What the lost part of a client's record may explain: that is no proof of anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PHANTOM: Final = "phantom"
GAP: Final = "gap"


def _nobody(_value: int) -> bool:
    return False


@dataclass(frozen=True)
class Owners:
    """The clients that appended. `may_have_sent`: whether a value of which no record speaks may have been sent all the
    same, by a client whose record is not whole; `incomplete`: there is such a client."""

    may_have_sent: Callable[[int], bool] = _nobody
    incomplete: bool = False

    def may_explain(self, name: str, values: tuple[int, ...]) -> bool:
        """Whether an anomaly may be lawful: a value that nobody is known to have sent was sent, or an offset at which
        no record is known holds one."""
        if name == GAP:
            return self.incomplete
        return name == PHANTOM and values[0] >= 0 and self.may_have_sent(values[0])


DOUBT: Final = "the record of a client that may have sent it is not whole"
ALL_WHOLE: Final = Owners()
