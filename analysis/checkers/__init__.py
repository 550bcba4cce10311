"""One file per checker: what it looks at, the anomalies that it can name, and to which runs it applies.

To add one, put a module with a `CHECKER` here; `analysis/checker_registry.py` finds it. Modules import what is heavy
(Arrow, Spark, the compiled core) when they check, not when they are loaded: a campaign's file is read with the names.
"""
