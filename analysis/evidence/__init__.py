"""Reads the evidence of a run, and decides whether it is complete, in order and strong enough."""
