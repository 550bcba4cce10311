"""The pictures of a run: each function draws one figure from a `View`, also for failed and for empty runs."""
