"""Histories that Brownout did not record: reads them into tables of a run's record, with values renumbered."""
