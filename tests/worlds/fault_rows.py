"""The rows of the tests over pairs of faults: each kind, and each mode of an option that changes evidence or heal."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from nemeses import KINDS, Fault
from nemeses.kind import RandomDraw
from nemeses.parameters import Parameter

STAKE: Final = "at-stake"
"""The file of unsynced data that a power cut must take in the mode `loses`."""
OPTIONS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "tear": {"tear": {"tear": 7}},
    "loses": {"loses": {"loses": STAKE}},
    "direction": {"out": {"direction": "out"}, "in": {"direction": "in"}},
    "replaced": {"replaced": {"replaced": 7}},
    "pairs": {"pairs": {"pairs": [["n1", "n2"]]}},
    "files": {},
    "restarts": {"restarts": {"restarts": 7, "files": "any", "number": 1}},
    "crash": {"power": {"crash": "power-loss-after"}, "kill": {"crash": "kill-before"}},
    "signal": {},  # other signals do not end a suspended service, and the simulation has none
}
"""By option: its modes, with the parameters of each. The options that are numbers have a mode for each sign."""
BACK: Final = "back"
_AS_ANOTHER: Final = {"partition-halves", "partition-leader"}
"""With given targets they are `partition-one`, which has the modes."""


class Row(NamedTuple):
    """A kind of fault with its usual options, or in one mode."""

    kind: str
    mode: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.mode}".strip()

    def drawn(self, draw: float, nodes: tuple[str, ...]) -> Fault:
        """A fault of the first node, or of all; with another strength for each draw."""
        kind = KINDS[self.kind]
        parameters = kind.draw(RandomDraw(draw, "both", None))
        for option in kind.parameters:
            if isinstance(option, Parameter):
                if option.signed:
                    parameters[option.name] = abs(parameters[option.name]) * (-1 if self.mode == BACK else 1)
            else:
                parameters |= OPTIONS[option.name].get(self.mode, {})
        targets = nodes if self.kind == "power-loss-all" else nodes[:1]
        return Fault(self.kind, targets, draw, {key: value for key, value in parameters.items() if value is not None})


def rows(kinds: Iterable[str]) -> list[Row]:
    """The rows of these kinds."""
    return [Row(kind, mode) for kind in kinds for mode in ("", *_modes(kind))]


def _modes(kind: str) -> Iterable[str]:
    for option in () if kind in _AS_ANOTHER else KINDS[kind].parameters:
        if not isinstance(option, Parameter):
            yield from OPTIONS[option.name]
        elif option.signed:
            yield BACK
