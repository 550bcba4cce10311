"""Engines: the same checks in this process or as Spark jobs."""
