"""How far the clocks of nodes may differ in their rates. All waits for another node's time assume this."""

MOST_DRIFT = 0.1
"""The largest relative error of a node's clock."""
PACE = (1 + MOST_DRIFT) / (1 - MOST_DRIFT)
"""The factor of a wait by the fastest clock for a time that the slowest clock measures."""
