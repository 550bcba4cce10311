"""The plots of a run: each function draws one figure from a `PlotData`, also for failed and for empty runs."""
