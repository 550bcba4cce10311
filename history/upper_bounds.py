"""How strictly queries bound a log's length from above: the values of `upper_bound` in campaigns, systems and runs."""

from typing import Final

UPPER_BOUNDS: Final = ("strict", "session", "lower-bound-only")
"""The strictest first."""
