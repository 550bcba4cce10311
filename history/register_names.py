"""What the registers of a run are called: who works them, and who judges that all of them were worked, must agree."""

from __future__ import annotations


def key_name(number: int) -> str:
    """The register, counted from 0, as clients and the record name it."""
    return f"k{number}"
