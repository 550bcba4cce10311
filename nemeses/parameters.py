"""What a fault can be told: each parameter with its unit, its bounds and its default, as data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random
from typing import Any, Literal


class ParameterError(ValueError):
    """A value that a fault cannot take; `parameter` is its name, the message says what it may be."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(f"{parameter}: {message}")
        self.parameter = parameter


@dataclass(frozen=True)
class Parameter:
    """A number that a fault takes, between `least` and `most`; `signed`: or between their negatives.

    `default`: None where it must be given. `drawn`: between what random schedules draw it; None: from other values.
    `remedy`: what to do instead when a value is out of bounds.
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
    def bounds(self) -> str:
        """The values that it takes, for people."""
        signs = ", forward or (negative) back" if self.signed else ""
        return f"{self.least:g} to {self.most:g} {self.unit}{signs}"

    def draw(self, rng: Random) -> float:
        """A number whose logarithm is even between the bounds of what is drawn: small values are as likely as large
        ones, for both are where mistakes are found."""
        assert self.drawn is not None, f"{self.name} is not drawn by itself"
        return math.exp(rng.uniform(*map(math.log, self.drawn)))


@dataclass(frozen=True)
class Choice:
    """Something else that a fault takes. `drawn`: whether random schedules set it. `scripted`: whether scripts may, as
    true or false: true stands for a seed, which is the step's number."""

    name: str
    meaning: str
    drawn: bool = True
    scripted: bool = False


@dataclass(frozen=True)
class Files:
    """Files of a node's data directory that a fault takes, as a pattern for their paths below it: `log/log-0/*.log`.
    Scripts may give it; random schedules cannot know any."""

    name: str
    meaning: str

    def check(self, value: Any) -> None:
        """Raises `ParameterError`."""
        parts = value.split("/") if isinstance(value, str) else ()
        sensible = [re.fullmatch(r"[\w.*?-]+", part, re.ASCII) and part not in (".", "..") for part in parts]
        if not sensible or not all(sensible):
            raise ParameterError(
                self.name, f"{value!r} is no pattern for files below the data directory, such as log/log-0/*.log"
            )


Direction = Literal["both", "out", "in"]
