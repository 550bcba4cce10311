"""Analyzes the evidence of a run: checkers, statistics, plots, report.

It imports neither broker nor orchestrator, so it can analyze a run of any system.
"""
