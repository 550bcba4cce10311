"""One file per checker: what it checks, the anomalies that it can find, and the runs that it applies to.

To add one, put a module with a `CHECKER` here; `analysis/checker_registry.py` finds it. Modules import heavy libraries
(Arrow, Spark) in `check`, not on import: the campaign reader loads them for the checkers' names.
"""
