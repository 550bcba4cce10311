"""Judges the files of a run: checkers, statistics, plots, report.

It imports neither broker nor orchestrator, so it can judge the run of any system.
"""
