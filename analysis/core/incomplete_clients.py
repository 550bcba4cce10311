"""Clients with incomplete records: findings that the lost part may explain prove nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PHANTOM: Final = "phantom"
GAP: Final = "gap"


def _none_is_incomplete(_value: int) -> bool:
    return False


@dataclass(frozen=True)
class Owners:
    """The clients that appended. `may_have_sent`: whether a client with an incomplete record may have sent a value that
    is not recorded; `incomplete`: there is such a client."""

    may_have_sent: Callable[[int], bool] = _none_is_incomplete
    incomplete: bool = False

    def may_explain(self, name: str, values: tuple[int, ...]) -> bool:
        """Whether an anomaly may be lawful: an unrecorded value may have been sent, or an offset without a known record
        may hold one."""
        if name == GAP:
            return self.incomplete
        return name == PHANTOM and values[0] >= 0 and self.may_have_sent(values[0])


DOUBT: Final = "the record of a client that may have sent it is incomplete"
ALL_WHOLE: Final = Owners()
