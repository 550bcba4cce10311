"""Reads the seeds that a command line names: `7`, `1-20`, `1,3,7` or `1-5,9`."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Final

from orchestrator.campaign.model import MAX_SEED
from orchestrator.campaign.plan import MOST_RUNS
from orchestrator.errors import UsageError

SEEDS: Final = "SEEDS"
"""The name of the value in help texts."""

_RULE: Final = "seeds are whole numbers from 0, below 2^63 - 1"
_FORMS: Final = "write seeds such as 7, 1-20, or 1,3,5-9"
_DIGITS: Final = 20  # no seed has more


def check_seed(seed: int, option: str) -> None:
    """Raise `UsageError` for a number that cannot be a seed."""
    if not 0 <= seed < MAX_SEED:
        raise UsageError(f"{option} {seed}: {_RULE}")


def read_seed_list(text: str | None) -> Sequence[int]:
    """The seeds in the given order, each once; empty for None. A single range is returned as `range`, since it may be
    huge. Raises `UsageError`."""
    if text is None:
        return range(0)
    parts = [_part(part, text) for part in text.split(",")]
    if len(parts) == 1:
        return parts[0]
    count = sum(map(_length, parts))
    if count > MOST_RUNS:
        raise UsageError(f"--seeds: {count:,} seeds are more than the {MOST_RUNS:,} runs that one invocation makes")
    return list(dict.fromkeys(chain.from_iterable(parts)))


def _part(part: str, text: str) -> range:
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
    if match is None:
        raise UsageError(f"--seeds {text}: {_FORMS}")
    if any(len(number) > _DIGITS for number in match.groups("")):
        raise UsageError(f"--seeds {text}: {_RULE}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last >= MAX_SEED:
        raise UsageError(f"--seeds {text}: {_RULE}")
    if last < first:
        raise UsageError(f"--seeds {text}: the first seed of a range is not above the last; {_FORMS}")
    return range(first, last + 1)


def _length(part: range) -> int:
    return part.stop - part.start  # `len` is limited to the machine's word
