"""What is done with many runs of the simulated world, and with one that is worth it: explore, replay, shrink."""
