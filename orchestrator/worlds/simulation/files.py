"""The files that only simulated runs have. This module imports nothing: commands that read the files start without the
simulator."""

from typing import Final

ORACLES: Final = "oracles.json"
"""In a run's history: the oracles' comparisons after every step, and their findings."""
SUMMARY: Final = "simulation.json"
"""In a run's directory: its name, the seed of the simulation, the digest over all events, virtual and CPU time."""
MESSAGES: Final = "messages.jsonl"
"""In the same place, with `messages`: every request and response, one `simulator.messages.Said` per line."""
