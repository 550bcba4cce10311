"""Search with simulated runs: explore finds failures, replay repeats a run, shrink reduces a failure."""
