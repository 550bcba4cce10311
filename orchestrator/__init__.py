"""Runs campaigns: the command line, the plan, the run loop, the worlds, the store and the gate."""
