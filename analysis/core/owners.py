"""Whose records of what they sent are whole: what an incomplete one may explain is no proof of anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from history import decode_value

PHANTOM: Final = "phantom"
GAP: Final = "gap"


@dataclass(frozen=True)
class Owners:
    """The producers of a history, by the number in their values.

    `whole`: those whose record holds everything that they may have sent; `incomplete`: those of whose record a part is
    lost. `strangers`: the record of a client is missing altogether, so that anybody else may have sent something too.
    """

    whole: frozenset[int] = frozenset()
    incomplete: frozenset[int] = frozenset()
    strangers: bool = False

    reason = "the record of a client that may have sent it is not whole"

    def may_explain(self, name: str, values: tuple[int, ...]) -> bool:
        """Whether what is lost of the records may be all that is wrong: a value that nobody is known to have sent was
        sent, an offset at which no record is known holds one."""
        if name == GAP:
            return self.strangers or bool(self.incomplete)
        if name != PHANTOM or values[0] < 0:
            return False
        producer = decode_value(values[0]).producer
        return producer in self.incomplete or (self.strangers and producer not in self.whole)


ALL_WHOLE: Final = Owners()
