"""The parameters of faults as data: unit, bounds and default of each."""

import math
import re
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal, get_args

_NAME = r"(?!\.{1,2}(/|$))[A-Za-z0-9_.*?-]+"
_PATHS = rf"^{_NAME}(/{_NAME})*$"


class ParameterError(ValueError):
    """An invalid value of a fault's parameter; `parameter` is its name, the message states the allowed values."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(f"{parameter}: {message}")
        self.parameter = parameter


@dataclass(frozen=True)
class Parameter:
    """A number between `least` and `most`; `signed`: or between their negatives.

    `default`: None if a value is required. `drawn`: the range for random schedules; None: derived from other values.
    `remedy`: what to use instead of a value that is out of bounds.
    """

    name: str
    unit: str
    meaning: str
    least: float
    most: float
    default: float | None = None
    signed: bool = False
    drawn: tuple[float, float] | None = None
    remedy: str = ""

    def check(self, value: Any) -> None:
        """Raises `ParameterError`."""
        sensible = isinstance(value, int | float) and not isinstance(value, bool)
        if not sensible or not self.least <= (abs(value) if self.signed else value) <= self.most:
            remedy = f"; {self.remedy}" if self.remedy else ""
            raise ParameterError(self.name, f"{value} is not {self.bounds}{remedy}")

    @property
    def contradiction(self) -> str:
        """Why no schedule can have a value of it; empty if its own numbers agree."""
        if not 0 <= self.least <= self.most:
            return f"{self.name}: the least value {self.least:g} is not 0 to the most, {self.most:g}"
        values = {"default": () if self.default is None else (self.default,), "drawn": self.drawn or ()}
        for field, numbers in values.items():
            for number in numbers:
                if not self.least <= (abs(number) if self.signed else number) <= self.most:
                    return f"{self.name}: {field} {number:g} is not {self.bounds}"
        if self.drawn and not 0 < self.drawn[0] <= self.drawn[1]:
            return f"{self.name}: drawn {self.drawn[0]:g} to {self.drawn[1]:g}: two rising numbers above 0 are needed"
        return ""

    @property
    def bounds(self) -> str:
        """The allowed values, for messages."""
        signs = ", forward or (negative) back" if self.signed else ""
        return f"{self.least:g} to {self.most:g} {self.unit}{signs}"

    @property
    def shape(self) -> dict[str, Any]:
        """The JSON Schema of the allowed values."""
        if not self.signed:
            return {"type": "number", "minimum": self.least, "maximum": self.most}
        ahead, back = (self.least, self.most), (-self.most, -self.least)
        return {"anyOf": [{"type": "number", "minimum": low, "maximum": high} for low, high in (ahead, back)]}

    def draw(self, rng: Random) -> float:
        """A number with a log-uniform distribution over the drawn range, because mistakes show at small and at large
        values."""
        assert self.drawn is not None, f"{self.name} is not drawn"
        return math.exp(rng.uniform(*map(math.log, self.drawn)))


@dataclass(frozen=True)
class Choice:
    """A parameter that is not a number. `drawn`: whether random schedules set it. `scripted`: whether scripts may set
    it to true or false; true stands for a seed, which is the step's number. `words`: its values; empty for a seed."""

    name: str
    meaning: str
    drawn: bool = True
    scripted: bool = False
    words: tuple[str, ...] = ()

    @property
    def shape(self) -> dict[str, Any]:
        """The JSON Schema of the values in scripts; empty if scripts cannot set it."""
        return {"type": "boolean"} if self.scripted else {}

    def check(self, value: Any) -> None:
        """Raises `ParameterError`."""
        if self.words and value not in self.words:
            raise ParameterError(self.name, f"{value!r} is not known; known: {', '.join(self.words)}")
        if self.scripted and value is not None and (not isinstance(value, int) or value < 0):
            raise ParameterError(self.name, f"{value!r} is not a seed, a whole number from 0")


@dataclass(frozen=True)
class Files:
    """Files of a node's data directory, as a pattern for their paths below it: `log/log-0/*.log`. Scripts may set it;
    random schedules do not, because they know no files."""

    name: str
    meaning: str

    @property
    def shape(self) -> dict[str, Any]:
        """The JSON Schema of the pattern."""
        return {"type": "string", "pattern": _PATHS}

    def check(self, value: Any) -> None:
        """Raises `ParameterError`."""
        if not isinstance(value, str) or re.fullmatch(_PATHS, value) is None:
            raise ParameterError(
                self.name, f"{value!r} is not a pattern for files below the data directory, such as log/log-0/*.log"
            )


@dataclass(frozen=True)
class Word:
    """One of some words. Scripts may set it; random schedules do not. `default`: the word that holds without it."""

    name: str
    meaning: str
    words: tuple[str, ...]
    default: str

    @property
    def shape(self) -> dict[str, Any]:
        """The JSON Schema of the words."""
        return {"type": "string", "enum": sorted(self.words)}

    def check(self, value: Any) -> None:
        """Raises `ParameterError`."""
        if value not in self.words:
            raise ParameterError(self.name, f"{value!r} is not known; known: {', '.join(self.words)}")


Direction = Literal["both", "out", "in"]
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
